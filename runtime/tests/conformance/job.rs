//! A job: ranks as processes of this program, started, watched and collected.

use crate::cases::Draw;
use ringsmith_compiler::plan::Algorithm;
use ringsmith_ir::schedule::Protocol;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable that makes this program a rank.
pub(crate) const RANK: &str = "CONFORMANCE_RANK";
pub(crate) const WORLD: &str = "CONFORMANCE_WORLD";
pub(crate) const ID_FILE: &str = "CONFORMANCE_ID_FILE";
pub(crate) const WORK: &str = "CONFORMANCE_WORK";

/// After this a trial counts as hung. Ours: many times what the slowest takes.
const DEADLINE: Duration = Duration::from_secs(3600);

/// How the ranks are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hosts {
    /// One host, shared memory.
    Shared,
    /// Sockets between all.
    Sockets,
    /// Two pretended hosts: shared memory within, sockets between.
    Two,
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shm",
            Self::Sockets => "socket",
            Self::Two => "two_hosts",
        })
    }
}

/// What the ranks do.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// The table of cases.
    Table(Draw),
    /// Cases of one collective, by one algorithm and protocol.
    Algorithm(Draw, &'static Algorithm, Protocol),
    /// That many random calls in a row.
    Mixture(Draw, u64),
}

impl Work {
    fn encode(&self) -> String {
        let draw = |d: &Draw| format!("{} {}", d.seed, u8::from(d.whole));
        match self {
            Self::Table(d) => format!("table {}", draw(d)),
            Self::Algorithm(d, a, _) => format!("algorithm {} {}", draw(d), a.collective),
            Self::Mixture(d, calls) => format!("mixture {} {calls}", draw(d)),
        }
    }
}

/// A job to run.
pub(crate) struct Job {
    world: u32,
    hosts: Hosts,
    work: Work,
}

impl Job {
    pub(crate) fn new(world: u32, hosts: Hosts, work: Work) -> Self {
        Self { world, hosts, work }
    }

    /// Runs the job; the error is what its ranks had to say.
    pub(crate) fn run(&self) -> Result<(), String> {
        let folder =
            std::env::temp_dir().join(format!("ringsmith-conformance-{}-{:p}", std::process::id(), self));
        std::fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let ranks: Vec<Rank> = (0..self.world).map(|rank| self.start(rank, folder.join("id"))).collect();
        let outcome = collect(ranks);
        let _ = std::fs::remove_dir_all(&folder);
        outcome
    }

    fn start(&self, rank: u32, id_file: PathBuf) -> Rank {
        let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
        for (name, _) in
            std::env::vars().filter(|(name, _)| name.starts_with("RINGSMITH_") || name.starts_with("NCCL_"))
        {
            command.env_remove(name);
        }
        command
            .env(RANK, rank.to_string())
            .env(WORLD, self.world.to_string())
            .env(ID_FILE, id_file)
            .env(WORK, self.work.encode())
            // A tenth of the cases on two cores: nobody is late by this much unless it hangs.
            .env("RINGSMITH_TIMEOUT_S", "300")
            .env("RINGSMITH_SOCKET_IFNAME", "lo")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        match self.hosts {
            Hosts::Shared => {}
            Hosts::Sockets => {
                command.env("RINGSMITH_NET", "socket").env("RINGSMITH_SHM_DISABLE", "1");
            }
            Hosts::Two => {
                command.env("RINGSMITH_HOST_ID", format!("host{}", rank % 2));
            }
        }
        if let Work::Algorithm(_, algorithm, protocol) = self.work {
            command.env("RINGSMITH_ALGO", algorithm.name).env("RINGSMITH_PROTO", protocol.name());
        }
        let mut child = command.spawn().expect("this program starts");
        let mut stderr = child.stderr.take().expect("it was piped");
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Rank { rank, child, reader }
    }
}

struct Rank {
    rank: u32,
    child: Child,
    reader: std::thread::JoinHandle<String>,
}

fn collect(mut ranks: Vec<Rank>) -> Result<(), String> {
    let started = Instant::now();
    while ranks.iter_mut().any(|r| matches!(r.child.try_wait(), Ok(None))) {
        if started.elapsed() > DEADLINE {
            ranks.iter_mut().for_each(|r| drop(r.child.kill()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    for mut rank in ranks {
        let status = rank.child.wait().map_err(|e| e.to_string())?;
        let text = rank.reader.join().unwrap_or_default();
        if !status.success() {
            said.push_str(&format!("rank {} ({status}):\n{text}\n", rank.rank));
        }
    }
    if said.is_empty() { Ok(()) } else { Err(said) }
}
