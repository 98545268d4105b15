//! The first process of a run on one host: starts the ranks, waits for them, and leaves none behind.
//!
//! It holds the root of the bootstrap, so that losing rank 0 is no different from losing another. It
//! prints no results: rank 0 does. What ranks report is told once for all that report the same.

use super::arguments::{Device, MAX_LOCAL_RANKS, RunArguments};
use super::child::{LastWord, Place, briefing};
use super::job::Job;
use super::limits;
use super::rank::failure;
use crate::input::name_of;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::remark;
use crate::values::print_size;
use ringsmith_runtime::error::without_rank;
use ringsmith_runtime::unique_id::UniqueId;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long ranks may take to end by themselves once one is lost. Ours: they notice within a second;
/// one that is stopped never does.
const GRACE: Duration = Duration::from_secs(5);
/// How long ranks may take to end once they are told to.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// A rank that was started.
struct Started {
    rank: u32,
    pid: u32,
    handle: OwnedFd,
    ended: bool,
}

/// What the first process waits for.
enum Event {
    /// A rank's process is no more.
    Ended { rank: u32, status: io::Result<ExitStatus>, word: Option<LastWord> },
    /// Somebody asks for the end.
    Asked { signal: i32 },
}

/// How the ranks ended.
#[derive(Default)]
struct Endings {
    outcome: Option<Outcome>,
    /// Whether rank 0 ended because nobody reads standard output any more.
    output_closed: bool,
    /// What to tell the user, and which ranks say so, in the order in which it came.
    told: Vec<(String, Vec<u32>)>,
}

/// Runs a job of `ranks` local ranks.
pub(super) fn run(job: &Job<'_>, ranks: u32) -> Result {
    check_count(job, ranks)?;
    limits::files_of_first_process(job, ranks)?;
    job.check(ranks, format_args!("--ranks {ranks}"))?;
    if job.arguments().device != Device::Cuda {
        check_memory(job, ranks)?;
        job.check_plans(ranks)?;
    }
    let proved = job.prove(ranks)?;
    if proved != Outcome::Done {
        return Ok(proved);
    }
    for warning in job.warnings() {
        remark(format_args!("warning: {warning}"));
    }
    let (id, root) = UniqueId::create_local(job.config()).map_err(failure)?;
    let (events, inbox) = mpsc::channel();
    watch_signals(events.clone())?;
    let mut job_ranks = Ranks { started: Vec::new(), endings: Endings::default(), hurry: None, by_us: false };
    let briefing: Arc<[u8]> = briefing(&id, job.schedule_text()).into();
    for rank in 0..ranks {
        match start(rank, ranks, &briefing, &events) {
            Ok(started) => job_ranks.started.push(started),
            Err(error) => {
                job_ranks.signal(Signal::KILL);
                let text = format_args!(
                    "cannot start rank {rank} of {ranks}: {error}; a limit on processes (ulimit -u, pids cgroup) or open files (ulimit -n) may be reached"
                );
                return Err(Failure::world(text));
            }
        }
    }
    let asked = job_ranks.wait(&inbox);
    // The ranks are gone: nothing is left to wait for.
    drop(root);
    if let Some(signal) = asked {
        remark("interrupted; every rank has ended");
        // Whoever started this process should see what ended it.
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        return Ok(Outcome::WorldFailed);
    }
    if job_ranks.endings.output_closed {
        return Err(Failure::OutputClosed);
    }
    Ok(job_ranks.endings.tell())
}

fn watch_signals(events: Sender<Event>) -> Result<()> {
    let failed = |e: io::Error| Failure::world(format_args!("cannot watch for signals: {e}"));
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(failed)?;
    let watch = move || {
        for signal in signals.forever() {
            if events.send(Event::Asked { signal }).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(watch).map(|_| ()).map_err(failed)
}

/// Starts a rank and a thread that waits for its end.
fn start(rank: u32, world: u32, briefing: &Arc<[u8]>, events: &Sender<Event>) -> io::Result<Started> {
    let (mut near, far) = UnixStream::pair()?;
    let place = Place { parent: std::process::id() as i32, rank, world };
    let mut child =
        Command::new(program()?).args(arguments(place)).stdin(Stdio::from(OwnedFd::from(far))).spawn()?;
    let pid = child.id();
    let handle = match own(&child) {
        Ok(handle) => handle,
        Err(error) => {
            // It has heard nothing yet; it ends here.
            let _ = child.kill().and_then(|()| child.wait());
            return Err(error);
        }
    };
    let (events, briefing) = (events.clone(), briefing.clone());
    let wait = move || {
        // It may be longer than what the socket holds. A rank that ends before it has heard all says why.
        let _ = near.write_all(&briefing);
        let word = LastWord::listen(&near);
        let status = child.wait();
        // Nobody listens once the first process has given up.
        let _ = events.send(Event::Ended { rank, status, word });
    };
    // If this fails, the rank dies with this process, which ends for it.
    thread::Builder::new().name(format!("rank {rank}")).stack_size(128 << 10).spawn(wait)?;
    Ok(Started { rank, pid, handle, ended: false })
}

/// A handle that means this very process, even after it has ended and its number is another's.
fn own(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(child.id() as i32).expect("a child has a number");
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// This program's file, even if it has been replaced since.
fn program() -> io::Result<std::path::PathBuf> {
    let path = std::env::current_exe()?;
    Ok(if path.exists() { path } else { "/proc/self/exe".into() })
}

/// This process's arguments with the place put behind the command.
fn arguments(place: Place) -> Vec<OsString> {
    let mut given = std::env::args_os().skip(1);
    let command = given.next();
    let hidden = OsString::from(format!("--child={place}"));
    command.into_iter().chain([hidden]).chain(given).collect()
}

/// The ranks of a job, while the first process waits for them.
struct Ranks {
    started: Vec<Started>,
    endings: Endings,
    /// When those that are left are killed.
    hurry: Option<Instant>,
    /// Whether the first process has told ranks to end: how they end then says nothing.
    by_us: bool,
}

impl Ranks {
    /// Waits until every rank has ended. Returns the signal that asked for it, if one did.
    fn wait(&mut self, inbox: &mpsc::Receiver<Event>) -> Option<i32> {
        let mut asked = None;
        while self.started.iter().any(|s| !s.ended) {
            let event = match self.hurry {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(when) => inbox.recv_timeout(when.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Ended { rank, status, word }) => self.ended(rank, status, word),
                Ok(Event::Asked { signal }) => {
                    asked = asked.or(Some(signal));
                    self.by_us = true;
                    self.signal(Signal::TERM);
                    self.hurry = Some(Instant::now() + KILL_GRACE);
                }
                Err(RecvTimeoutError::Timeout) => self.kill(),
                // Every rank's thread holds a sender until it has sent the rank's end.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        asked
    }

    fn ended(&mut self, rank: u32, status: io::Result<ExitStatus>, word: Option<LastWord>) {
        let pid = {
            let started = self.started.iter_mut().find(|s| s.rank == rank).expect("only started ranks end");
            started.ended = true;
            started.pid
        };
        if self.by_us {
            return;
        }
        let outcome = self.endings.add(rank, pid, status, word);
        if outcome > Outcome::No && self.hurry.is_none() {
            self.hurry = Some(Instant::now() + GRACE);
        }
    }

    /// Ends the ranks that did not end by themselves.
    fn kill(&mut self) {
        if !self.by_us {
            let left = self.started.iter().filter(|s| !s.ended).map(|s| s.rank).collect();
            let text = format!("did not end by itself within {} s and was killed", GRACE.as_secs());
            self.endings.told.push((text, left));
            self.by_us = true;
        }
        self.signal(Signal::KILL);
        self.hurry = None;
    }

    fn signal(&self, signal: Signal) {
        for started in self.started.iter().filter(|s| !s.ended) {
            // It may have ended meanwhile.
            let _ = pidfd_send_signal(&started.handle, signal);
        }
    }
}

impl Endings {
    /// Notes how a rank ended.
    fn add(
        &mut self,
        rank: u32,
        pid: u32,
        status: io::Result<ExitStatus>,
        word: Option<LastWord>,
    ) -> Outcome {
        let (outcome, text) = judge(pid, status);
        let said = match word {
            Some(LastWord::Text(text)) => Some(text),
            Some(LastWord::OutputClosed) => {
                self.output_closed = true;
                None
            }
            None => None,
        };
        // The rank is named in front of what it says.
        let text = text.or(said.map(|text| without_rank(&text, rank).to_owned()));
        if let Some(text) = text {
            match self.told.iter_mut().find(|(told, _)| *told == text) {
                Some((_, ranks)) => ranks.push(rank),
                None => self.told.push((text, vec![rank])),
            }
        }
        self.outcome = Some(self.outcome.map_or(outcome, |so_far| so_far.max(outcome)));
        outcome
    }

    /// Drops what only repeats that another rank gave up, where that rank is told of itself.
    fn drop_echoes(&mut self) {
        let told = self.told.clone();
        let echoes =
            |text: &str, other: &str, rank: &u32| text.contains(&format!("rank {rank} aborted: {other}"));
        self.told.retain(|(text, _)| {
            !told
                .iter()
                .any(|(other, ranks)| other != text && ranks.iter().any(|rank| echoes(text, other, rank)))
        });
    }

    /// Tells the user. Returns how the run ended.
    fn tell(mut self) -> Outcome {
        self.drop_echoes();
        for (text, ranks) in &mut self.told {
            ranks.sort_unstable();
            let listed: Vec<String> = ranks.iter().map(u32::to_string).collect();
            let what = if listed.len() == 1 { "rank" } else { "ranks" };
            remark(format_args!("error: {what} {}: {text}", listed.join(", ")));
        }
        self.outcome.unwrap_or(Outcome::WorldFailed)
    }
}

/// What an exit status means, and what there is to say about it that the rank cannot have said.
fn judge(pid: u32, status: io::Result<ExitStatus>) -> (Outcome, Option<String>) {
    let status = match status {
        Ok(status) => status,
        Err(error) => return (Outcome::WorldFailed, Some(format!("cannot wait for process {pid}: {error}"))),
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => (Outcome::Done, None),
        (Some(1), _) => (Outcome::No, None),
        (Some(2), _) => (Outcome::Unusable, None),
        (Some(3), _) => (Outcome::WorldFailed, None),
        (Some(code), _) => (
            Outcome::WorldFailed,
            Some(format!("process {pid} ended with status {code}, a bug of Ringsmith")),
        ),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal without a name");
            (
                Outcome::WorldFailed,
                Some(format!("lost: process {pid} was killed by signal {signal} ({name})")),
            )
        }
        (None, None) => (Outcome::WorldFailed, Some(format!("process {pid} ended: {status}"))),
    }
}

/// Refuses a schedule for more ranks than are started on one host.
fn check_count(job: &Job<'_>, ranks: u32) -> Result<()> {
    if ranks <= MAX_LOCAL_RANKS {
        return Ok(());
    }
    let file = job.arguments().schedule.as_deref().map_or_else(String::new, name_of);
    Err(Failure::unusable(format_args!(
        "--schedule {file}: it is for {ranks} ranks, and at most {MAX_LOCAL_RANKS} are started on one host"
    )))
}

/// Refuses sizes for which this host has not the memory, before anything is started.
fn check_memory(job: &Job<'_>, ranks: u32) -> Result<()> {
    let needed =
        needed_bytes(job.arguments(), job.cases(ranks)?.iter().map(|c| c.bytes()).max().unwrap_or(0), ranks);
    let Some(available) = available_bytes() else { return Ok(()) };
    if needed <= u128::from(available) {
        return Ok(());
    }
    let max = print_size(job.arguments().max);
    Err(Failure::unusable(format_args!(
        "--max {max} needs {needed} bytes for the buffers of {ranks} ranks; this host has {available} left; choose a smaller --max or fewer --ranks"
    )))
}

fn needed_bytes(arguments: &RunArguments, largest: u64, ranks: u32) -> u128 {
    let buffers = if arguments.inplace.kinds().contains(&false) { 2 } else { 1 };
    u128::from(largest) * buffers * u128::from(ranks)
}

/// Memory that programs can still have without swapping, as the kernel estimates it.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_with_the_rank_that_had_it() {
        let mut endings = Endings::default();
        let mut say = |rank, text: &str| {
            let status = ExitStatus::from_raw(3 << 8);
            endings.add(rank, 1, Ok(status), Some(LastWord::Text(text.to_owned())));
        };
        say(1, "rank 1: barrier number 3: op r1.0#2: rank 2 aborted: barrier number 3: rank 0 has left");
        say(2, "rank 2: barrier number 3: rank 0 has left");
        say(3, "rank 3: rank 9 aborted: something else");
        say(4, "rank 4: rank 9 aborted: something else");
        say(5, "rank 5 of 9: join: rank 8 did not come");
        say(6, "rank 6 of 9: join: rank 8 did not come");
        endings.drop_echoes();
        let expected = [
            ("barrier number 3: rank 0 has left".to_owned(), vec![2]),
            ("rank 9 aborted: something else".to_owned(), vec![3, 4]),
            ("join: rank 8 did not come".to_owned(), vec![5, 6]),
        ];
        assert_eq!(endings.told, expected);
        assert_eq!(endings.outcome, Some(Outcome::WorldFailed));
    }
}
