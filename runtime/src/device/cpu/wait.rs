//! How a rank waits: it spins while cores are to be had, yields while they are not, naps when nothing
//! comes for long; says so once when the wait looks like a stall; and ends at once when the
//! communicator breaks.

use crate::error::Error;
use crate::fault::Fault;
use rustix::thread::sched_yield;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Rounds of spinning before the core is first offered to others: some microseconds, many times what a
/// message takes between two cores. Longer spins hold up the peer where something else keeps it from a
/// core of its own.
const SPIN_ROUNDS: u32 = 300;
/// A rank that has waited this long no longer burns its core. Ours: far beyond any collective that
/// runs, far below what a person notices.
const NAP_AFTER: Duration = Duration::from_millis(200);
/// Length of a nap.
const NAP: Duration = Duration::from_micros(200);
/// Between looks at the clock while yielding.
const ROUNDS_PER_CLOCK: u32 = 64;

/// How waits of one communicator behave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Whether this host has a core for each of its ranks.
    pub(crate) spin: bool,
    /// After this time one warning says who waits for whom.
    pub(crate) stall: Duration,
    /// After this time the wait is an error.
    pub(crate) timeout: Option<Duration>,
}

/// What a wait is for: asked only when there is something to say.
pub(crate) struct Awaited {
    /// The rank that waits.
    pub(crate) rank: u32,
    /// The rank it waits for.
    pub(crate) peer: u32,
    /// The collective and its sequence number.
    pub(crate) operation: String,
    /// The op's address and what it waits for.
    pub(crate) detail: String,
}

/// One wait, from the moment nothing could be done.
pub(crate) struct Wait {
    rounds: u32,
    since: Option<Instant>,
    warned: bool,
}

impl Wait {
    /// A wait that has not begun.
    pub(crate) const fn new() -> Self {
        Self { rounds: 0, since: None, warned: false }
    }

    /// Something could be done: the next pause begins a new wait.
    #[inline]
    pub(crate) fn reset(&mut self) {
        if self.rounds > 0 {
            if self.warned {
                tracing::warn!(target: "ringsmith::coll", "the wait is over");
            }
            *self = Self::new();
        }
    }

    /// One round in which nothing could be done.
    ///
    /// Errors: `Fault` when the communicator is broken, `Timeout` at the limit.
    #[inline]
    pub(crate) fn pause(
        &mut self,
        policy: &Policy,
        fault: &Fault,
        awaited: impl FnOnce() -> Awaited,
    ) -> Result<(), Error> {
        self.rounds = self.rounds.saturating_add(1);
        if policy.spin && self.rounds < SPIN_ROUNDS {
            std::hint::spin_loop();
            return Ok(());
        }
        self.pause_long(policy, fault, awaited)
    }

    #[cold]
    #[inline(never)]
    fn pause_long(
        &mut self,
        policy: &Policy,
        fault: &Fault,
        awaited: impl FnOnce() -> Awaited,
    ) -> Result<(), Error> {
        if fault.word().load(Ordering::Relaxed) != 0 {
            fault.check()?;
        }
        sched_yield();
        if !self.rounds.is_multiple_of(ROUNDS_PER_CLOCK) {
            return Ok(());
        }
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited >= NAP_AFTER {
            std::thread::sleep(NAP);
            self.rounds = self.rounds.next_multiple_of(ROUNDS_PER_CLOCK) - 1;
        }
        if let Some(limit) = policy.timeout
            && waited >= limit
        {
            let Awaited { rank, peer, operation, detail } = awaited();
            return Err(Error::Timeout { rank, peer, operation, detail, waited });
        }
        if waited >= policy.stall && !self.warned {
            self.warned = true;
            let Awaited { rank, peer, operation, detail } = awaited();
            tracing::warn!(
                target: "ringsmith::coll",
                "rank {rank} has waited {:.0} s for rank {peer} in {operation}: {detail}. \
                 Rank {peer} is late, stopped, or in another collective; it goes on when that rank does",
                waited.as_secs_f64()
            );
        }
        Ok(())
    }
}
