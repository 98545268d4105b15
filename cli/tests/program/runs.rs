//! `run`: real processes, the table, JSON rows, and what happens when a rank is lost.

use crate::program::{Done, Folder, command, run};
use libtest_mimic::{Failed, Trial};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread;

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("run::prints_a_table", prints_a_table),
        Trial::test("run::every_collective_is_right", every_collective_is_right),
        Trial::test("run::every_operation_and_root", every_operation_and_root),
        Trial::test("run::one_rank_and_no_bytes", one_rank_and_no_bytes),
        Trial::test("run::unchecked_rows_say_null", unchecked_rows_say_null),
        Trial::test("run::follows_a_program", follows_a_program),
        Trial::test("run::a_refuted_program_is_not_run", a_refuted_program_is_not_run),
        Trial::test("run::over_sockets", over_sockets),
        Trial::test("run::ranks_meet_through_a_file", ranks_meet_through_a_file),
        Trial::test("run::a_file_that_holds_no_id_is_refused", a_file_that_holds_no_id_is_refused),
        Trial::test("run::an_id_of_an_earlier_job_is_left_behind", an_id_of_an_earlier_job_is_left_behind),
        Trial::test("run::two_jobs_cannot_meet_through_one_file", two_jobs_cannot_meet_through_one_file),
        Trial::test("run::a_size_that_sizes_do_not_reach_is_told", a_size_that_sizes_do_not_reach_is_told),
        Trial::test("run::a_timeout_is_named_by_its_flag", a_timeout_is_named_by_its_flag),
        Trial::test("run::a_schedule_of_one_rank_alone_is_named", a_schedule_of_one_rank_alone_is_named),
        Trial::test(
            "run::different_schedules_of_one_name_are_shown_where_they_differ",
            different_schedules_of_one_name_are_shown_where_they_differ,
        ),
        Trial::test("run::too_few_ports_are_named_once", too_few_ports_are_named_once),
        Trial::test("run::a_missing_rank_is_named", a_missing_rank_is_named),
        Trial::test("run::a_killed_rank_ends_the_others", a_killed_rank_ends_the_others),
        Trial::test("run::an_interrupt_ends_every_rank", an_interrupt_ends_every_rank),
        Trial::test("run::ranks_die_with_the_first_process", ranks_die_with_the_first_process),
        Trial::test("run::a_reader_that_goes_ends_the_run", a_reader_that_goes_ends_the_run),
    ]
}

fn rows(done: &Done) -> Vec<serde_json::Value> {
    done.stdout.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

fn prints_a_table() -> Result<(), Failed> {
    let done = run("run all_reduce --ranks 3 -e 4K -n 2 -w 1".split(' '));
    assert_eq!(done.status, 0, "{}", done.stderr);
    let table: Vec<&str> = done.stdout.lines().filter(|line| !line.starts_with('#')).collect();
    let sizes: Vec<&str> = table.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(sizes, ["8", "64", "512", "4096"]);
    for line in table {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((cells.len(), cells[2], cells[3], cells[4]), (13, "float32", "sum", "-1"), "{line}");
        assert_eq!((cells[8], cells[12]), ("0", "0"), "{line}");
    }
    assert!(done.stdout.contains("# Wrong elements: 0 OK"), "{}", done.stdout);
    assert!(done.stdout.lines().last().is_some_and(|line| line.starts_with("# Avg bus bandwidth: ")));
    Ok(())
}

fn every_collective_is_right() -> Result<(), Failed> {
    let collectives = [
        ("all_reduce", 2),
        ("all_gather", 2),
        ("reduce_scatter", 2),
        ("broadcast", 2),
        ("reduce", 2),
        ("gather", 2),
        ("scatter", 2),
        ("all_to_all", 2),
        ("all_to_all_v", 1),
        ("send_recv", 1),
        ("barrier", 1),
    ];
    for (collective, kinds) in collectives {
        let done = run([
            "run", collective, "--ranks", "3", "-b", "1000", "-e", "1000", "-n", "2", "-w", "0", "--json",
        ]);
        let rows = rows(&done);
        assert_eq!((done.status, rows.len()), (0, kinds), "{collective}: {}", done.stderr);
        for row in rows {
            assert_eq!(
                (&row["collective"], &row["wrong"], &row["ranks"]),
                (&collective.into(), &0.into(), &3.into())
            );
            assert!(row["plan"].as_str().is_some_and(|plan| !plan.is_empty()), "{row}");
        }
    }
    Ok(())
}

fn every_operation_and_root() -> Result<(), Failed> {
    let done =
        run("run reduce --ranks 2 -b 4K -e 4K -n 1 -w 0 -d all -o all -r all --inplace no --json".split(' '));
    let rows = rows(&done);
    assert_eq!((done.status, rows.len()), (0, 12 * 6 * 2), "{}", done.stderr);
    assert!(rows.iter().all(|row| row["wrong"] == 0 && row["inplace"] == false));
    assert_eq!((&rows[1]["op"], &rows[1]["root"]), (&"sum".into(), &1.into()));
    Ok(())
}

fn one_rank_and_no_bytes() -> Result<(), Failed> {
    let done = run("run reduce_scatter --ranks 1 -b 0 -e 8 -n 1 -w 0 --json".split(' '));
    let bytes: Vec<_> = rows(&done).iter().map(|row| row["bytes"].as_u64()).collect();
    assert_eq!((done.status, bytes), (0, vec![Some(0), Some(0), Some(8), Some(8)]), "{}", done.stderr);
    Ok(())
}

fn unchecked_rows_say_null() -> Result<(), Failed> {
    let done = run("run all_gather -b 64 -e 64 -n 1 -w 0 -c 0 --json".split(' '));
    let rows = rows(&done);
    assert_eq!((done.status, rows.len()), (0, 2), "{}", done.stderr);
    assert!(rows.iter().all(|row| row["wrong"].is_null() && row["op"].is_null() && row["root"].is_null()));
    Ok(())
}

fn follows_a_program() -> Result<(), Failed> {
    let done =
        run("run all_reduce --schedule ring_all_reduce.sched --ranks 3 -b 1M -e 1M -n 2 --json".split(' '));
    let rows = rows(&done);
    assert_eq!((done.status, rows.len()), (0, 2), "{}", done.stderr);
    assert!(rows[0]["plan"].as_str().is_some_and(|plan| plan.contains("ring_all_reduce")), "{}", rows[0]);
    Ok(())
}

fn a_refuted_program_is_not_run() -> Result<(), Failed> {
    let done = run("run all_reduce --schedule one_inbox.sched --ranks 3 -b 64 -e 64".split(' '));
    assert_eq!(done.status, 1, "{}{}", done.stdout, done.stderr);
    assert!(done.stderr.contains("V0301"), "{}", done.stderr);
    assert!(!done.stdout.lines().any(|line| !line.starts_with('#')), "{}", done.stdout);
    Ok(())
}

fn over_sockets() -> Result<(), Failed> {
    let done = run("run all_reduce --ranks 2 -b 100K -e 100K -n 2 --transport socket --json".split(' '));
    assert_eq!((done.status, rows(&done).len()), (0, 2), "{}", done.stderr);
    Ok(())
}

/// A rank that a test starts by hand.
fn by_hand(rank: &str, world: &str, file: &std::path::Path) -> std::process::Command {
    let mut command = command("run all_gather -b 64 -e 64 -n 1 -w 0".split(' '));
    command
        .args(["--rank", rank, "--world", world, "--id-file"])
        .arg(file)
        .env("RINGSMITH_INIT_TIMEOUT_S", "20");
    command
}

fn ranks_meet_through_a_file() -> Result<(), Failed> {
    let folder = Folder::new("id");
    let file = folder.0.join("id");
    let children: Vec<Child> =
        ["1", "0"].iter().map(|rank| by_hand(rank, "2", &file).spawn()).collect::<Result<_, _>>()?;
    let done: Vec<Done> = children
        .into_iter()
        .map(|child| child.wait_with_output().map(Done::from))
        .collect::<Result<_, _>>()?;
    assert_eq!((done[0].status, done[1].status), (0, 0), "{}{}", done[0].stderr, done[1].stderr);
    assert_eq!(done[0].stdout, "", "only rank 0 prints");
    assert!(done[1].stdout.contains("# Wrong elements: 0 OK"));
    assert!(!file.exists(), "the id's file is gone");
    Ok(())
}

fn a_schedule_of_one_rank_alone_is_named() -> Result<(), Failed> {
    let folder = Folder::new("one-schedule");
    let file = folder.0.join("id");
    let start = |rank: &str, more: &[&str]| {
        let mut command = command("run all_reduce -b 64 -e 64 -n 1 --world 2 --rank".split(' '));
        command.arg(rank).args(more).arg("--id-file").arg(&file).env("RINGSMITH_INIT_TIMEOUT_S", "20").spawn()
    };
    for (one, other) in [
        (&["--schedule", "ring2.sched"][..], &["--dtype", "int8"][..]),
        (&[], &["--schedule", "ring2.sched"]),
    ] {
        let children = [start("0", one)?, start("1", other)?];
        for child in children {
            let done = Done::from(child.wait_with_output()?);
            assert_eq!((done.status, done.stdout.as_str()), (1, ""), "{}", done.stderr);
            let named =
                done.stderr.contains("--schedule = nothing") || done.stderr.contains("--dtype = int8,");
            assert!(named && !done.stderr.contains("One("), "{}", done.stderr);
        }
    }
    Ok(())
}

fn different_schedules_of_one_name_are_shown_where_they_differ() -> Result<(), Failed> {
    let folder = Folder::new("two-schedules");
    let file = folder.0.join("id");
    let flat = run("expand ring_all_reduce.sched --ranks 2".split(' ')).stdout;
    let sizes = flat.len();
    let one = folder.file("one.sched", &flat);
    let other = folder.file("other.sched", flat.replace("inbox", "inbux"));
    let start = |rank: &str, schedule: &std::path::Path| {
        let mut command = command("run all_reduce -b 64 -e 64 -n 1 --world 2 --rank".split(' '));
        command.arg(rank).arg("--schedule").arg(schedule).arg("--id-file").arg(&file);
        command.env("RINGSMITH_INIT_TIMEOUT_S", "20").spawn()
    };
    for child in [start("0", &one)?, start("1", &other)?] {
        let done = Done::from(child.wait_with_output()?);
        assert_eq!((done.status, done.stdout.as_str()), (1, ""), "{}", done.stderr);
        for part in ["rank 1 has schedule = …", "inbux", "inbox"] {
            assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        }
        assert!(done.stderr.len() < 700, "{sizes} bytes of text: {}", done.stderr);
    }
    Ok(())
}

fn too_few_ports_are_named_once() -> Result<(), Failed> {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let mut command = command("run all_reduce --ranks 4 --transport socket -e 8 -n 1".split(' '));
    let done = Done::from(command.env("RINGSMITH_PORT_RANGE", port.to_string()).output()?);
    assert_eq!((done.status, done.stdout.as_str()), (3, ""), "{}", done.stderr);
    let told: Vec<&str> = done.stderr.lines().filter(|line| line.starts_with("error")).collect();
    let [line] = told[..] else { panic!("every rank says the same: {}", done.stderr) };
    for part in ["ranks 0, 1, 2, 3: no transport", &format!("RINGSMITH_PORT_RANGE={port} "), "widen it"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    Ok(())
}

fn an_id_of_an_earlier_job_is_left_behind() -> Result<(), Failed> {
    let folder = Folder::new("stale-id");
    let file = folder.0.join("id");
    let mut earlier = by_hand("0", "2", &file).spawn()?;
    while !file.exists() {
        thread::yield_now();
    }
    earlier.kill()?;
    earlier.wait()?;
    let mut waiting = by_hand("1", "2", &file);
    waiting.env("RINGSMITH_INIT_TIMEOUT_S", "100").env("RINGSMITH_DEBUG", "trace");
    let mut waiting = waiting.spawn()?;
    let mut log = BufReader::new(waiting.stderr.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("nobody listens there") {
        assert!(log.read_line(&mut said)? > 0, "it goes on: {said}");
    }
    // Whoever reads no more would hold it up.
    let rest = thread::spawn(move || log.read_to_string(&mut said).map(|_| said));
    let first = Done::from(by_hand("0", "2", &file).env("RINGSMITH_INIT_TIMEOUT_S", "100").output()?);
    assert_eq!(first.status, 0, "{}", first.stderr);
    let status = waiting.wait()?;
    let said = rest.join().expect("no panic")?;
    assert!(status.success(), "{said}");
    assert!(!file.exists(), "the id's file is gone");
    Ok(())
}

/// A rank 0 that waits keeps its file, and another job's is told so.
fn two_jobs_cannot_meet_through_one_file() -> Result<(), Failed> {
    let folder = Folder::new("taken-id");
    let file = folder.0.join("id");
    let first = by_hand("0", "2", &file).env("RINGSMITH_INIT_TIMEOUT_S", "100").spawn()?;
    while !file.exists() {
        thread::yield_now();
    }
    let other = Done::from(by_hand("0", "2", &file).output()?);
    assert_eq!((other.status, other.stdout.as_str()), (2, ""), "{}", other.stderr);
    let told = format!("--id-file {}: another job meets through this file now; name another", file.display());
    assert!(other.stderr.contains(&told), "{}", other.stderr);
    let second = Done::from(by_hand("1", "2", &file).output()?);
    let first = Done::from(first.wait_with_output()?);
    assert_eq!((first.status, second.status), (0, 0), "{}{}", first.stderr, second.stderr);
    assert_eq!(std::fs::read_dir(&folder.0)?.count(), 0, "no file is left");
    Ok(())
}

fn a_size_that_sizes_do_not_reach_is_told() -> Result<(), Failed> {
    let told = |line: &str| {
        let done = run(line.split(' '));
        assert_eq!(done.status, 0, "{line}: {}", done.stderr);
        let line = done.stdout.lines().find(|line| line.contains("sizes:"));
        line.map(|line| line.trim_start_matches(['#', ' ']).to_owned())
    };
    assert_eq!(
        told("run all_reduce -b 8 -e 1K -f 16 -n 1").as_deref(),
        Some("sizes: 8 to 128, each 16 times the one before, none above --max 1K")
    );
    assert_eq!(told("run all_reduce -b 8 -e 1K -f 2 -n 1"), None);
    assert_eq!(told("run barrier -b 8 -e 1K -f 16 -n 1"), None);
    Ok(())
}

/// The advice of a call that took too long is the flag that was given.
fn a_timeout_is_named_by_its_flag() -> Result<(), Failed> {
    for (flag, advised) in
        [(true, "allow more with --timeout"), (false, "allow more with RINGSMITH_TIMEOUT_S")]
    {
        let mut command = command("run all_reduce --ranks 2 -b 8 -e 8 -n 1000000000".split(' '));
        if flag {
            command.args(["--timeout", "1"]);
        } else {
            command.env("RINGSMITH_TIMEOUT_S", "1");
        }
        let mut job = command.spawn()?;
        let mut table = BufReader::new(job.stdout.take().expect("it is piped")).lines();
        let stopped = loop {
            let line = table.next().ok_or("a line for every rank")??;
            if let Some((_, place)) = line.split_once("rank   1: pid ") {
                break place.split(' ').next().unwrap_or_default().parse()?;
            }
        };
        let stopped = Pid::from_raw(stopped).ok_or("a process has a number")?;
        kill_process(stopped, Signal::STOP)?;
        let done = Done::from(job.wait_with_output()?);
        assert_eq!(done.status, 3, "{}", done.stderr);
        assert!(done.stderr.contains(advised), "{advised}: {}", done.stderr);
    }
    Ok(())
}

fn a_file_that_holds_no_id_is_refused() -> Result<(), Failed> {
    let folder = Folder::new("no-id");
    for text in ["", "nonsense", &"0".repeat(128), &"x".repeat(4096)] {
        let file = folder.file("id", text);
        let done = Done::from(by_hand("1", "2", &file).output()?);
        assert_eq!((done.status, done.stdout.as_str()), (2, ""), "{}", done.stderr);
        assert!(done.stderr.contains("--id-file") && done.stderr.contains("128"), "{}", done.stderr);
    }
    Ok(())
}

fn a_missing_rank_is_named() -> Result<(), Failed> {
    let folder = Folder::new("missing");
    let file = folder.0.join("id");
    let mut command = by_hand("0", "3", &file);
    let done = Done::from(command.env("RINGSMITH_INIT_TIMEOUT_S", "1").output()?);
    assert_eq!((done.status, done.stdout.as_str()), (3, ""));
    assert!(done.stderr.contains("ranks 1, 2"), "{}", done.stderr);
    let mut command = by_hand("2", "3", &file);
    let done = Done::from(command.env("RINGSMITH_INIT_TIMEOUT_S", "1").output()?);
    assert_eq!(done.status, 3);
    assert!(done.stderr.contains("rank 0") && done.stderr.contains("--id-file"), "{}", done.stderr);
    Ok(())
}

/// A run that takes far longer than any test, and its ranks' processes.
fn long_run() -> Result<(Child, Vec<u32>), Failed> {
    let mut child = command("run all_reduce --ranks 3 -b 8 -e 8 -n 1000000000 -c 0".split(' ')).spawn()?;
    let mut ranks = Vec::new();
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    // The heading names the processes, and nothing is printed before all ranks have met.
    while ranks.len() < 3 {
        let line = lines.next().ok_or("the run ended before its heading")??;
        if let Some(pid) = line.split("pid ").nth(1).and_then(|rest| rest.split(' ').next()) {
            ranks.push(pid.parse()?);
        }
    }
    // Whoever closes the pipe ends the run: keep reading.
    thread::spawn(move || lines.count());
    Ok((child, ranks))
}

/// Waits until a process has ended. A process that closes its files is not yet gone, and its number may
/// be another's later: the handle means this one.
fn gone(pid: u32, handle: &OwnedFd) -> Result<(), Failed> {
    let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
    match poll(&mut [PollFd::new(handle, PollFlags::IN)], Some(&limit))? {
        0 => Err(format!("process {pid} still runs").into()),
        _ => Ok(()),
    }
}

/// Handles of a run's ranks.
fn handles(pids: &[u32]) -> Result<Vec<OwnedFd>, Failed> {
    let open = |&pid: &u32| Pid::from_raw(pid as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    Ok(pids.iter().filter_map(open).collect::<Result<_, _>>()?)
}

fn all_gone(pids: &[u32], handles: &[OwnedFd]) -> Result<(), Failed> {
    pids.iter().zip(handles).try_for_each(|(&pid, handle)| gone(pid, handle))
}

fn signal(name: &str, pid: u32) -> Result<(), Failed> {
    let status = std::process::Command::new("kill").args(["-s", name, &pid.to_string()]).status()?;
    if status.success() { Ok(()) } else { Err(format!("kill -s {name} {pid}: {status}").into()) }
}

fn ended(mut child: Child) -> Result<(std::process::ExitStatus, String), Failed> {
    let mut stderr = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut stderr)?;
    Ok((child.wait()?, stderr))
}

fn a_killed_rank_ends_the_others() -> Result<(), Failed> {
    for victim in [0, 1] {
        let (child, ranks) = long_run()?;
        let handles = handles(&ranks)?;
        signal("KILL", ranks[victim])?;
        let (status, stderr) = ended(child)?;
        assert_eq!(status.code(), Some(3), "{stderr}");
        assert!(stderr.contains(&format!("rank {victim}: lost")), "{stderr}");
        all_gone(&ranks, &handles)?;
    }
    Ok(())
}

fn an_interrupt_ends_every_rank() -> Result<(), Failed> {
    for name in ["INT", "TERM"] {
        let (child, ranks) = long_run()?;
        let handles = handles(&ranks)?;
        signal(name, child.id())?;
        let (status, stderr) = ended(child)?;
        assert_eq!(status.code(), None, "ended by the signal: {stderr}");
        all_gone(&ranks, &handles)?;
    }
    Ok(())
}

fn ranks_die_with_the_first_process() -> Result<(), Failed> {
    let (child, ranks) = long_run()?;
    let handles = handles(&ranks)?;
    signal("KILL", child.id())?;
    ended(child)?;
    all_gone(&ranks, &handles)
}

fn a_reader_that_goes_ends_the_run() -> Result<(), Failed> {
    let mut child = command("run all_reduce -b 8 -e 8 -n 1 -d all -o all --json".split(' ')).spawn()?;
    let mut row = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut row)?;
    let (status, stderr) = ended(child)?;
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&status),
        Some(13),
        "SIGPIPE: {status} {stderr}"
    );
    assert!(!stderr.contains("error:"), "{stderr}");
    Ok(())
}
