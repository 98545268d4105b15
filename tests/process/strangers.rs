//! Strangers at every port of a job: they are dropped, and the job does not notice.

use crate::job::{self, Job, free_port, ringsmith, with_clean_environment};
use crate::{Outcome, ensure};
use libtest_mimic::{Completion, Failed};
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a stranger waits to be dropped before it goes by itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// What strangers say: nothing, a web request, noise, and lengths without an end.
fn sayings() -> Vec<Vec<u8>> {
    let noise =
        |seed: u32| (0..4096u32).map(|i| ((i ^ seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    vec![
        Vec::new(),
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
        vec![0; 64],
        vec![0xFF; 65_536],
        noise(1),
        noise(2),
    ]
}

/// Says everything at a port. Returns the connections that say nothing and stay.
fn disturb(port: u16) -> Vec<TcpStream> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut open = Vec::new();
    for saying in sayings() {
        let Ok(mut stream) = TcpStream::connect_timeout(&address, PATIENCE) else { continue };
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let _ = stream.write_all(&saying);
        let _ = stream.read(&mut [0; 256]);
        // Half of them stay, so that the job is not saved by their leaving.
        if saying.len() < 100 {
            open.push(stream);
        }
    }
    open
}

/// Strangers come before the ranks do.
pub(crate) fn while_joining() -> Outcome {
    let port = free_port()?;
    let rank = |rank: u32| {
        let words = format!("run all_reduce --rank {rank} --world 2 --root 127.0.0.1:{port} -e 64K");
        Job::start(ringsmith(&words))
    };
    let root = rank(0)?;
    wait_for_listener(&root, port)?;
    let open = disturb(port);
    ensure(!open.is_empty(), || "no stranger got through to the port".to_owned())?;
    let other = rank(1)?;
    root.end()?.right()?;
    other.end()?.failed(0, &[])?;
    Ok(Completion::Completed)
}

/// More strangers than rank 0's process may have files open come first, say nothing and stay. Each alone would
/// be borne for longer than the ranks wait for each other.
pub(crate) fn more_than_files() -> Outcome {
    const FILES: usize = 64;
    let port = free_port()?;
    let rank = |rank: u32| {
        let words = format!("run all_reduce --rank {rank} --world 2 --root 127.0.0.1:{port} -e 64K");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {FILES}; exec \"$0\" \"$@\""), job::program()]);
        let mut command = with_clean_environment(shell, &words);
        command.env("RINGSMITH_INIT_TIMEOUT_S", "8");
        Job::start(command)
    };
    let root = rank(0)?;
    wait_for_listener(&root, port)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let open: Vec<TcpStream> =
        (0..4 * FILES).map(|_| TcpStream::connect(address)).collect::<Result<_, _>>()?;
    let other = rank(1)?;
    let (root, other) = (root.end()?, other.end()?);
    drop(open);
    root.right()?;
    other.failed(0, &[])?;
    Ok(Completion::Completed)
}

/// A job whose ranks `run` has started itself listens where only this host reaches it.
pub(crate) fn local_jobs_are_not_seen_from_outside() -> Outcome {
    let mut command = ringsmith(
        "run all_reduce --ranks 2 --transport socket --inplace no -b 8 -e 4M -f 524288 -w 0 -n 300",
    );
    command.env_remove("RINGSMITH_SOCKET_IFNAME");
    let job = Job::start(command)?;
    job.running()?;
    let listening: BTreeSet<String> =
        job.processes().into_iter().flat_map(listening).map(|(a, _)| a).collect();
    job.end()?.right()?;
    // 127.0.0.1 and ::1, as the kernel writes them.
    let loopback = ["0100007F", "00000000000000000000000001000000"];
    let outside: Vec<&String> = listening.iter().filter(|a| !loopback.contains(&a.as_str())).collect();
    ensure(!listening.is_empty() && outside.is_empty(), || format!("it listens at {listening:?}"))?;
    Ok(Completion::Completed)
}

/// Strangers come to every port of a running job whose data goes over sockets.
pub(crate) fn while_running() -> Outcome {
    let words = "run all_reduce --ranks 3 --transport socket --inplace no -b 8 -e 4M -f 524288 -w 0 -n 300";
    let job = Job::start(ringsmith(words))?;
    job.running()?;
    let ports: BTreeSet<u16> = job.processes().into_iter().flat_map(listening_ports).collect();
    ensure(!ports.is_empty(), || "the job listens nowhere".to_owned())?;
    let open: Vec<TcpStream> = ports.into_iter().flat_map(disturb).collect();
    let done = job.end()?;
    drop(open);
    done.right()?;
    Ok(Completion::Completed)
}

fn wait_for_listener(job: &Job, port: u16) -> Result<(), Failed> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !listening_ports(job.pid()).contains(&port) {
        ensure(Instant::now() < deadline, || format!("nobody listens at port {port}"))?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The TCP ports that a process listens at.
fn listening_ports(process: Pid) -> Vec<u16> {
    listening(process).into_iter().map(|(_, port)| port).collect()
}

/// The addresses and TCP ports that a process listens at, as the kernel tells.
fn listening(process: Pid) -> Vec<(String, u16)> {
    let folder = format!("/proc/{}", process.as_raw_pid());
    let sockets: BTreeSet<String> = std::fs::read_dir(format!("{folder}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter_map(|target| Some(target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables = ["tcp", "tcp6"]
        .map(|name| std::fs::read_to_string(format!("{folder}/net/{name}")).unwrap_or_default());
    // Columns: number, local address and port, remote ones, state (0A listens), …, inode.
    let port = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let ours = *columns.get(3)? == "0A" && sockets.contains(*columns.get(9)?);
        let (address, port) = columns.get(1)?.rsplit_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        ours.then(|| (address.to_owned(), port))
    };
    tables.iter().flat_map(|table| table.lines().skip(1).filter_map(port)).collect()
}
