//! One rank of a run: calls the communicator, measures, checks, and on rank 0 prints.
//!
//! The only part of the program that talks to the communicator. Every rank walks the same list of
//! cases; what rank 0 prints is gathered through the bootstrap, so no rank prints for another.

use super::cases::{Case, SEED};
use super::job::{Job, Own};
use super::report::{self, Measured};
use crate::outcome::{Failure, Outcome, Result};
use ringsmith_ir::entity::Rank as RankId;
use ringsmith_ir::types::{Collective, DataType};
use ringsmith_runtime::communicator::{Buffers, Call, Communicator, Request};
use ringsmith_runtime::error::{Error, ExitStatus};
use ringsmith_runtime::reference::{self, Data};
use std::time::Instant;

/// What a rank tells the others of a case, as bytes: seconds a call, and wrong elements.
const SHARE_BYTES: usize = 16;

/// A runtime error as the program ends with it.
pub(super) fn failure(error: Error) -> Failure {
    let outcome = match error.exit_status() {
        ExitStatus::No => Outcome::No,
        ExitStatus::Unusable => Outcome::Unusable,
        ExitStatus::WorldFailed => Outcome::WorldFailed,
    };
    Failure::Message { outcome, text: error.to_string() }
}

/// Runs every case and leaves in good order.
///
/// Errors: what the runtime reports; standard output that cannot be written, which the other ranks are
/// told of.
pub(super) fn run(job: &Job<'_>, communicator: Communicator) -> Result {
    let outcome = every_case(job, &communicator);
    leave(outcome, communicator, Communicator::abort, Communicator::finish)
}

/// Leaves in good order, or tells the others why not.
pub(super) fn leave<C>(
    outcome: Result,
    communicator: C,
    abort: fn(&C, &str),
    finish: fn(C) -> std::result::Result<(), Error>,
) -> Result {
    match outcome {
        Ok(outcome) => finish(communicator).map(|()| outcome).map_err(failure),
        Err(failed) => {
            let reason = match &failed {
                Failure::Message { text, .. } => text,
                Failure::OutputClosed => "the reader of its standard output has gone",
            };
            abort(&communicator, reason);
            Err(failed)
        }
    }
}

/// The arguments that every rank must have been given alike: those that say which calls are made.
pub(super) fn compared(job: &Job<'_>) -> Result<Vec<(&'static str, String)>> {
    let arguments = job.arguments();
    Ok(vec![
        ("the collective", arguments.collective.to_string()),
        ("--min", arguments.min.to_string()),
        ("--max", arguments.max.to_string()),
        ("--factor", arguments.factor.to_string()),
        ("--iters", arguments.iters.to_string()),
        ("--warmup", arguments.warmup.to_string()),
        ("--check", u8::from(arguments.check).to_string()),
        ("--dtype", arguments.dtype.to_string()),
        ("--op", arguments.op.to_string()),
        ("--root", job.roots()?.to_string()),
        ("--inplace", arguments.inplace.name().to_owned()),
        ("--schedule", job.own().map_or_else(|| "nothing".to_owned(), Own::name)),
    ])
}

fn every_case(job: &Job<'_>, communicator: &Communicator) -> Result {
    let cases = job.cases(communicator.world())?;
    communicator.agree("arguments of `run`", &compared(job)?).map_err(failure)?;
    match job.own() {
        Some(Own::Program(program, set)) => {
            communicator.use_program(program, set.clone()).map_err(failure)?
        }
        Some(Own::Schedule(schedule)) => communicator.use_schedule(schedule).map_err(failure)?,
        None => (),
    }
    let places = communicator.all_gather_info("places", place().as_bytes()).map_err(failure)?;
    let heading = (communicator.rank() == 0).then(|| heading(job, communicator, &places));
    let mut rank = Rank::new(job, communicator, &cases)?;
    report::table(job.arguments(), heading, &cases, |case, in_place| rank.measure(case, in_place))
}

/// Where this process runs, for the heading.
pub(super) fn place() -> String {
    format!("pid {} on {}", std::process::id(), ringsmith_runtime::bootstrap::host::name())
}

fn heading(job: &Job<'_>, communicator: &Communicator, places: &[Vec<u8>]) -> Vec<String> {
    let mut lines = vec![report::title(job.arguments(), communicator.world())];
    lines.extend(report::last_size(job.arguments()));
    lines.extend(listed(places));
    lines
}

/// Where every rank runs, one a line.
pub(super) fn listed(places: &[Vec<u8>]) -> Vec<String> {
    /// Ranks listed one by one. Ours: a screen.
    const MAX_LISTED: usize = 16;
    let first = places.iter().enumerate().take(MAX_LISTED);
    let line =
        |(rank, place): (usize, &Vec<u8>)| format!("  rank {rank:>3}: {}", String::from_utf8_lossy(place));
    let mut lines: Vec<String> = first.map(line).collect();
    if places.len() > MAX_LISTED {
        lines.push(format!("  and {} more", places.len() - MAX_LISTED));
    }
    lines
}

/// The slowest rank's time and the wrong elements of all ranks, whose words `gather` brings together.
pub(super) fn shared(
    seconds: f64,
    wrong: u64,
    gather: impl FnOnce(&[u8]) -> std::result::Result<Vec<Vec<u8>>, Error>,
) -> Result<(f64, u64)> {
    let mut own = [0; SHARE_BYTES];
    own[..8].copy_from_slice(&seconds.to_le_bytes());
    own[8..].copy_from_slice(&wrong.to_le_bytes());
    let (mut slowest, mut sum) = (0f64, 0u64);
    for (rank, share) in gather(&own).map_err(failure)?.iter().enumerate() {
        let share: &[u8; SHARE_BYTES] = share.as_slice().try_into().map_err(|_| {
            let version = env!("CARGO_PKG_VERSION");
            Failure::world(format_args!(
                "rank {rank} sent results of another form; is it ringsmith {version} too?"
            ))
        })?;
        let (time, wrong) = share.split_at(8);
        slowest = slowest.max(f64::from_le_bytes(time.try_into().expect("8 bytes")));
        sum = sum.saturating_add(u64::from_le_bytes(wrong.try_into().expect("8 bytes")));
    }
    Ok((slowest, sum))
}

/// A rank's memory and place.
struct Rank<'a> {
    job: &'a Job<'a>,
    communicator: &'a Communicator,
    send: Vec<u8>,
    receive: Vec<u8>,
    /// Whether wrong elements have been named: the first case says enough.
    named: bool,
    /// Whether a barrier can be planned: `--algo` may exclude it. The same on every rank.
    has_barrier: bool,
}

impl<'a> Rank<'a> {
    fn new(job: &'a Job<'a>, communicator: &'a Communicator, cases: &[Case]) -> Result<Self> {
        let largest = cases.iter().map(Case::bytes).max().unwrap_or(0);
        let apart =
            cases.iter().any(|c| job.arguments().inplace.kinds().contains(&false) || !c.has_in_place());
        let send = memory(if apart { largest } else { 0 })?;
        let barrier = Request::new(Collective::Barrier, DataType::Int8, 0);
        let has_barrier = communicator.plan_name(&barrier).is_ok();
        Ok(Self { job, communicator, send, receive: memory(largest)?, named: false, has_barrier })
    }

    /// Checks and times one case.
    fn measure(&mut self, case: &Case, in_place: bool) -> Result<Measured> {
        let arguments = self.job.arguments();
        let request = case.request();
        let plan = match case.collective {
            Collective::AllToAllV | Collective::SendRecv => "exchange".to_owned(),
            _ => self.communicator.plan_name(&request).map_err(failure)?,
        };
        let mut wrong = 0;
        if arguments.check {
            self.fill(case, in_place);
            self.call(case, &request, in_place).map_err(failure)?;
            wrong = self.check(case, in_place);
        }
        self.fill(case, in_place);
        for _ in 0..arguments.warmup {
            self.call(case, &request, in_place).map_err(failure)?;
        }
        self.line_up()?;
        let start = Instant::now();
        for _ in 0..arguments.iters {
            self.call(case, &request, in_place).map_err(failure)?;
        }
        let seconds = start.elapsed().as_secs_f64() / arguments.iters as f64;
        let gather = |own: &[u8]| self.communicator.all_gather_info("results", own);
        let (seconds, wrong) = shared(seconds, wrong, gather)?;
        Ok(Measured { in_place, time_us: seconds * 1e6, wrong: arguments.check.then_some(wrong), plan })
    }

    /// Makes every rank start at about the same time: within a message through the collective's own
    /// transport, where the settings leave a barrier to run.
    fn line_up(&self) -> Result<()> {
        let barrier = Request::new(Collective::Barrier, DataType::Int8, 0);
        if self.has_barrier {
            let nothing = Buffers::Apart { send: &[], recv: &mut [] };
            return self.communicator.run(&barrier, nothing).map_err(failure);
        }
        self.communicator.all_gather_info("line up", &[]).map(|_| ()).map_err(failure)
    }

    /// Puts the input where a call finds it, and something else where the output will be.
    fn fill(&mut self, case: &Case, in_place: bool) {
        let reference = case.reference();
        let rank = RankId::from_u32(self.communicator.rank());
        let element_bytes = case.dtype.size_bytes() as u64;
        let len = (reference.input_elements(rank) * element_bytes) as usize;
        let whole = case.bytes() as usize;
        // No result may be right because an earlier one was left in place.
        self.receive[..whole].fill(0xa5);
        if in_place {
            let start = case.in_place_offsets(rank.as_u32()).0 as usize;
            reference::fill_input(
                &reference,
                &Data::exact(SEED),
                rank,
                &mut self.receive[start..start + len],
            );
        } else {
            reference::fill_input(&reference, &Data::exact(SEED), rank, &mut self.send[..len]);
        }
    }

    /// Compares the output with what it should be. Returns how many elements differ.
    fn check(&mut self, case: &Case, in_place: bool) -> u64 {
        let reference = case.reference();
        let rank = RankId::from_u32(self.communicator.rank());
        let len = (reference.output_elements(rank) * case.dtype.size_bytes() as u64) as usize;
        let start = if in_place { case.in_place_offsets(rank.as_u32()).1 as usize } else { 0 };
        let found = reference::check(&reference, &Data::exact(SEED), rank, &self.receive[start..start + len]);
        if found.wrong > 0 && !std::mem::replace(&mut self.named, true) {
            report::tell_wrong(rank.as_u32(), case, in_place, &found);
        }
        found.wrong
    }

    /// Makes one call.
    fn call(&mut self, case: &Case, request: &Request, in_place: bool) -> std::result::Result<(), Error> {
        let whole = case.bytes() as usize;
        match case.collective {
            Collective::AllToAllV | Collective::SendRecv => self.exchange(case),
            _ if in_place => self.communicator.run(request, Buffers::InPlace(&mut self.receive[..whole])),
            _ => {
                let (send, recv) = (&self.send[..whole], &mut self.receive[..whole]);
                self.communicator.run(request, Buffers::Apart { send, recv })
            }
        }
    }

    /// Every message of the rank at once.
    fn exchange(&mut self, case: &Case) -> std::result::Result<(), Error> {
        let messages = case.messages(self.communicator.rank());
        let mut calls = Vec::with_capacity(messages.sends.len() + messages.receives.len());
        for message in messages.sends {
            let start = message.offset as usize;
            let data = &self.send[start..start + message.bytes as usize];
            calls.push(Call::Send { peer: message.peer, data });
        }
        let mut rest = &mut self.receive[..];
        for message in messages.receives {
            let data;
            (data, rest) = rest.split_at_mut(message.bytes as usize);
            calls.push(Call::Recv { peer: message.peer, data });
        }
        self.communicator.run_group(&mut calls)
    }
}

/// Memory of a size that the user chose: refused, not aborted on, if there is none.
fn memory(bytes: u64) -> Result<Vec<u8>> {
    let refused = || {
        Failure::world(format_args!(
            "--max: {bytes} bytes of memory cannot be had; choose a smaller --max, or raise the limit on memory (ulimit -v)"
        ))
    };
    let len = usize::try_from(bytes).map_err(|_| refused())?;
    let mut memory = Vec::new();
    memory.try_reserve_exact(len).map_err(|_| refused())?;
    memory.resize(len, 0);
    Ok(memory)
}
