//! Ranks that never come, die, or stop: the others say whom they miss, and nothing is left behind.

use crate::job::{Folder, Job, ringsmith, shared_memory};
use crate::{Outcome, ensure};
use libtest_mimic::{Completion, Failed};
use rustix::process::{Signal, kill_process};

/// A job long enough to be disturbed: a small size that shows that data moves, then much data.
const LONG: &str = "--inplace no -b 8 -e 4M -f 524288 -w 0 -n 20000";
/// The same, which ends by itself.
const SHORT: &str = "--inplace no -b 8 -e 4M -f 524288 -w 0 -n 200";

/// One of three ranks is not there: the others stop at the deadline, naming it.
pub(crate) fn never_started() -> Outcome {
    let folder = Folder::new()?;
    let file = folder.path().join("id");
    let rank = |rank: u32| {
        let words = format!("run all_reduce --rank {rank} --world 3 --id-file {}", file.display());
        let mut command = ringsmith(&words);
        command.env("RINGSMITH_INIT_TIMEOUT_S", "3");
        Job::start(command)
    };
    let jobs = [rank(0)?, rank(2)?];
    for job in jobs {
        job.end_soon()?.failed(3, &["rank 1 did not come"])?;
    }
    let left = std::fs::read_dir(folder.path())?.count();
    ensure(left == 0, || "the file with the job's id is left".to_owned())?;
    Ok(Completion::Completed)
}

/// A rank is killed while data moves through shared memory.
pub(crate) fn killed_over_memory() -> Outcome {
    killed("shm", 1)
}

/// A rank is killed while data moves over sockets.
pub(crate) fn killed_over_sockets() -> Outcome {
    killed("socket", 2)
}

/// The rank that the others joined at is killed.
pub(crate) fn killed_root() -> Outcome {
    killed("shm", 0)
}

fn killed(transport: &str, rank: u32) -> Outcome {
    let before = shared_memory();
    let job = Job::start(ringsmith(&format!("run all_reduce --ranks 3 --transport {transport} {LONG}")))?;
    job.running()?;
    kill_process(job.pid_of(rank)?, Signal::KILL).map_err(|error| format!("kill: {error}"))?;
    let done = job.end_soon()?;
    done.failed(3, &[&format!("rank {rank}"), " number ", "start the job again"])?;
    let line = done.stderr.lines().find(|line| said_twice(line));
    ensure(line.is_none(), || format!("a rank is named twice at the head: {line:?}"))?;
    let left: Vec<_> = shared_memory().into_iter().filter(|file| !before.contains(file)).collect();
    ensure(left.is_empty(), || format!("shared memory is left: {left:?}"))?;
    Ok(Completion::Completed)
}

/// Whether a message names its rank at the head more than once.
fn said_twice(line: &str) -> bool {
    (0..3).any(|rank| line.contains(&format!("rank {rank}: rank {rank}:")))
}

/// A rank is stopped while data moves through shared memory.
pub(crate) fn stopped_over_memory() -> Outcome {
    stopped("shm")
}

/// A rank is stopped while data moves over sockets.
pub(crate) fn stopped_over_sockets() -> Outcome {
    stopped("socket")
}

/// The others warn once each, naming it, and go on when it does.
fn stopped(transport: &str) -> Outcome {
    let mut command = ringsmith(&format!("run all_reduce --ranks 3 --transport {transport} {SHORT}"));
    command.env("RINGSMITH_STALL_S", "1");
    let job = Job::start(command)?;
    job.running()?;
    let stopped = job.pid_of(1)?;
    signal(stopped, Signal::STOP)?;
    let warned = job.message(|line| line.contains("WARN") && line.contains("rank 1"));
    signal(stopped, Signal::CONT)?;
    let line = warned?;
    let done = job.end()?;
    done.right()?;
    ensure(line.contains("all_reduce"), || format!("the warning does not name the collective: {line}"))?;
    // Each of the two others may warn, once in a stall; the rank that was stopped has nobody to blame.
    let mut seen = Vec::new();
    for line in done.stderr.lines() {
        let Some((who, _)) = line.split_once(": nothing has come from ") else { continue };
        let (_, who) = who.split_once("rank ").ok_or_else(|| format!("a warning of nobody: {line}"))?;
        ensure(!seen.contains(&who), || format!("rank {who} has warned twice:\n{}", done.stderr))?;
        seen.push(who);
    }
    let (_, call) =
        line.split_once("all_reduce ").ok_or_else(|| format!("the warning names no call: {line}"))?;
    let (call, _) = call.split_once(':').ok_or_else(|| format!("the warning names no call: {line}"))?;
    let accused = format!("1: all_reduce {call}");
    ensure(!seen.contains(&accused.as_str()), || format!("rank {accused} blames others:\n{}", done.stderr))?;
    ensure(line.contains('#'), || format!("the warning does not name the op: {line}"))?;
    Ok(Completion::Completed)
}

/// With `--timeout`, a stopped rank ends the job.
pub(crate) fn timeout() -> Outcome {
    let job = Job::start(ringsmith(&format!("run all_reduce --ranks 3 --timeout 2 {LONG}")))?;
    job.running()?;
    let stopped = job.pid_of(1)?;
    signal(stopped, Signal::STOP)?;
    job.end_soon()?.failed(3, &["rank 1"])?;
    Ok(Completion::Completed)
}

fn signal(process: rustix::process::Pid, signal: Signal) -> Result<(), Failed> {
    kill_process(process, signal).map_err(|error| format!("cannot send a signal: {error}").into())
}
