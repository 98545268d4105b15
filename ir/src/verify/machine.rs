//! The abstract machine under both verifiers: lanes with vector clocks, counters, and memory whose
//! every access must be ordered against the ones before it.
//!
//! Programs are deterministic: each counter has one signalling and one waiting lane, so the relation
//! "happens before" and the set of lanes that get stuck do not depend on the order in which the
//! machine runs its lanes. One greedy run decides both.
//!
//! An event is a lane and its tick. Event `e` happens before the present of lane `x` exactly when
//! `x`'s clock for `e`'s lane has reached `e`'s tick.
//!
//! A put is written by one lane and complete for another: it starts at the put and ends at the wait
//! for the signal that publishes it. While it is open, any other access to the memory is a race.

use super::bounds::{MAX_CLOCK_WORDS, MAX_COLLISIONS, MAX_WORK};
use super::value::{Value, Values};
use crate::entity::Lane;
use cranelift_entity::EntityRef;
use std::collections::VecDeque;

/// An op of a lane: where diagnostics point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OpRef {
    pub(crate) lane: Lane,
    pub(crate) op: u32,
}

/// A dense index of a memory location.
pub(crate) type LocationId = usize;
/// A dense index of a counter.
pub(crate) type CounterId = usize;

type Tick = u32;

/// A past access to a location.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// The op that did it.
    op: OpRef,
    /// The lane whose event ends it, and that event; `None` while a put is open.
    end: Option<(Lane, Tick)>,
}

#[derive(Clone, Debug)]
struct Location {
    value: Value,
    write: Option<Access>,
    reads: Vec<Access>,
}

/// A signal that has not been waited for.
#[derive(Clone, Debug)]
struct Signal {
    clock: Box<[Tick]>,
    op: OpRef,
    puts: Vec<LocationId>,
}

#[derive(Clone, Debug, Default)]
struct Counter {
    /// Signals that nobody sent and that come before all others: the credits of a FIFO.
    credits: u32,
    pending: VecDeque<Signal>,
    waiting: Option<OpRef>,
}

/// How two accesses collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Race {
    /// A write not ordered after an earlier write.
    WriteWrite,
    /// A read not ordered after the write whose value it expects.
    ReadAfterWrite,
    /// A write not ordered after a read of what it overwrites.
    WriteAfterRead,
}

/// A collision, in the order in which the machine met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Collision {
    pub(crate) race: Race,
    pub(crate) location: LocationId,
    pub(crate) first: OpRef,
    pub(crate) second: OpRef,
    /// Whether the first is a put that nobody has waited for yet.
    pub(crate) open: bool,
}

/// What a lane learned at its last wait on a counter; a `get` reads memory as of then.
pub(crate) type Snapshot = Box<[Tick]>;

/// The machine.
pub(crate) struct Machine {
    pub(crate) values: Values,
    clocks: Vec<Box<[Tick]>>,
    counters: Vec<Counter>,
    locations: Vec<Location>,
    pub(crate) collisions: Vec<Collision>,
    /// Lanes that a signal has made runnable again.
    pub(crate) woken: Vec<Lane>,
    /// Clocks of signals that have been taken, to be used again.
    spare: Vec<Box<[Tick]>>,
    /// Clocks of signals that nobody has taken, and of those that a lane has kept.
    kept: usize,
    /// Words of clocks and entries of read lists gone through.
    work: u64,
}

impl Machine {
    /// A machine with undefined memory and no pending signals.
    pub(crate) fn new(ranks: u32, lanes: usize, counters: usize, locations: usize) -> Self {
        Self {
            values: Values::new(ranks),
            clocks: vec![vec![0; lanes].into_boxed_slice(); lanes],
            counters: vec![Counter::default(); counters],
            locations: vec![Location { value: Value::UNDEFINED, write: None, reads: Vec::new() }; locations],
            collisions: Vec::new(),
            woken: Vec::new(),
            spare: Vec::new(),
            kept: 0,
            work: 0,
        }
    }

    /// Whether the run has outgrown the verifier's bounds; it must stop then.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.work > MAX_WORK
            || self.kept.saturating_mul(self.clocks.len()) > MAX_CLOCK_WORDS
            || self.values.is_exhausted()
    }

    /// Starts the lane's next op.
    pub(crate) fn tick(&mut self, lane: Lane) {
        self.clocks[lane.index()][lane.index()] += 1;
    }

    /// Sets what a location holds without anyone having written it (a launch's inputs).
    pub(crate) fn define(&mut self, location: LocationId, value: Value) {
        self.locations[location].value = value;
    }

    /// Forgets who used a location: for memory that the caller owns between launches.
    pub(crate) fn release(&mut self, location: LocationId) {
        self.locations[location].write = None;
        self.locations[location].reads.clear();
    }

    /// What a location holds.
    pub(crate) fn value(&self, location: LocationId) -> Value {
        self.locations[location].value
    }

    /// The op that wrote a location last.
    pub(crate) fn writer(&self, location: LocationId) -> Option<OpRef> {
        self.locations[location].write.map(|w| w.op)
    }

    /// Puts `count` signals into a counter that nobody sent (the credits of a FIFO).
    pub(crate) fn preload(&mut self, counter: CounterId, count: u32) {
        self.counters[counter].credits += count;
    }

    /// Signals a counter, publishing the puts in `puts`.
    pub(crate) fn signal(&mut self, at: OpRef, counter: CounterId, puts: Vec<LocationId>) {
        let own = &self.clocks[at.lane.index()];
        let clock = match self.spare.pop() {
            Some(mut clock) => {
                clock.copy_from_slice(own);
                clock
            }
            None => own.clone(),
        };
        self.kept += 1;
        self.work += own.len() as u64;
        let counter = &mut self.counters[counter];
        counter.pending.push_back(Signal { clock, op: at, puts });
        if let Some(waiting) = counter.waiting.take() {
            self.woken.push(waiting.lane);
        }
    }

    /// Takes the next signal of a counter. False means that the lane is blocked there.
    pub(crate) fn wait(&mut self, at: OpRef, counter: CounterId) -> bool {
        if self.counters[counter].credits > 0 {
            self.counters[counter].credits -= 1;
            self.tick(at.lane);
            return true;
        }
        match self.take(at, counter) {
            Some(clock) => {
                self.kept -= 1;
                self.spare.push(clock);
                true
            }
            None => false,
        }
    }

    /// As [`wait`](Self::wait), and keeps what the lane learned, in place of what it kept before. For
    /// counters without credits.
    pub(crate) fn wait_and_keep(
        &mut self,
        at: OpRef,
        counter: CounterId,
        kept: &mut Option<Snapshot>,
    ) -> bool {
        let Some(clock) = self.take(at, counter) else { return false };
        if let Some(old) = kept.replace(clock) {
            self.kept -= 1;
            self.spare.push(old);
        }
        true
    }

    fn take(&mut self, at: OpRef, counter: CounterId) -> Option<Snapshot> {
        let Some(signal) = self.counters[counter].pending.pop_front() else {
            self.counters[counter].waiting = Some(at);
            return None;
        };
        self.work += signal.clock.len() as u64;
        self.tick(at.lane);
        let clock = &mut self.clocks[at.lane.index()];
        for (mine, theirs) in clock.iter_mut().zip(&signal.clock) {
            *mine = (*mine).max(*theirs);
        }
        let end = (at.lane, clock[at.lane.index()]);
        for location in signal.puts {
            if let Some(write) = &mut self.locations[location].write
                && write.end.is_none()
            {
                write.end = Some(end);
            }
        }
        Some(signal.clock)
    }

    /// How many signals of a counter nobody has taken.
    pub(crate) fn pending(&self, counter: CounterId) -> usize {
        self.counters[counter].credits as usize + self.counters[counter].pending.len()
    }

    /// The op that sent the oldest signal of a counter that nobody has taken.
    pub(crate) fn oldest_signal(&self, counter: CounterId) -> Option<OpRef> {
        self.counters[counter].pending.front().map(|s| s.op)
    }

    /// Reads a location.
    pub(crate) fn read(&mut self, at: OpRef, location: LocationId) -> Value {
        self.check_write(at, location, Race::ReadAfterWrite);
        self.record_read(at, location)
    }

    /// Reads a location as it was at an earlier snapshot: what a `get` does.
    pub(crate) fn read_as_of(&mut self, at: OpRef, location: LocationId, snapshot: &Snapshot) -> Value {
        if let Some(write) = self.locations[location].write
            && write.end.is_none_or(|(lane, tick)| snapshot[lane.index()] < tick)
        {
            self.collide(Race::ReadAfterWrite, location, write, at);
        }
        self.record_read(at, location)
    }

    /// Writes a location.
    pub(crate) fn write(&mut self, at: OpRef, location: LocationId, value: Value) {
        let end = Some((at.lane, self.clocks[at.lane.index()][at.lane.index()]));
        self.write_until(at, location, value, end);
    }

    /// Starts a put: the write ends when its publishing signal is waited for.
    pub(crate) fn put(&mut self, at: OpRef, location: LocationId, value: Value) {
        self.write_until(at, location, value, None);
    }

    /// Whether lane `x` has seen any op of lane `of`.
    pub(crate) fn has_heard(&self, x: Lane, of: Lane) -> bool {
        self.clocks[x.index()][of.index()] > 0
    }

    /// The tick that lane `x` has seen of lane `of`.
    pub(crate) fn seen(&self, x: Lane, of: Lane) -> Tick {
        self.clocks[x.index()][of.index()]
    }

    /// Makes every lane of `lanes` start after all of them have ended.
    pub(crate) fn join(&mut self, lanes: &[Lane]) {
        let mut all = vec![0; self.clocks.len()].into_boxed_slice();
        for lane in lanes {
            for (a, b) in all.iter_mut().zip(&self.clocks[lane.index()]) {
                *a = (*a).max(*b);
            }
        }
        for lane in lanes {
            self.clocks[lane.index()].clone_from(&all);
        }
    }

    fn record_read(&mut self, at: OpRef, location: LocationId) -> Value {
        let tick = self.clocks[at.lane.index()][at.lane.index()];
        let location = &mut self.locations[location];
        let access = Access { op: at, end: Some((at.lane, tick)) };
        self.work += location.reads.len() as u64;
        match location.reads.iter_mut().find(|r| r.op.lane == at.lane) {
            Some(read) => *read = access,
            None => location.reads.push(access),
        }
        location.value
    }

    fn write_until(&mut self, at: OpRef, location: LocationId, value: Value, end: Option<(Lane, Tick)>) {
        self.check_write(at, location, Race::WriteWrite);
        let mut reads = std::mem::take(&mut self.locations[location].reads);
        for read in reads.drain(..) {
            if !self.happened(read, at.lane) {
                self.collide(Race::WriteAfterRead, location, read, at);
            }
        }
        self.locations[location].reads = reads;
        let location = &mut self.locations[location];
        location.value = value;
        location.write = Some(Access { op: at, end });
    }

    fn check_write(&mut self, at: OpRef, location: LocationId, race: Race) {
        if let Some(write) = self.locations[location].write
            && !self.happened(write, at.lane)
        {
            self.collide(race, location, write, at);
        }
    }

    fn happened(&self, access: Access, before: Lane) -> bool {
        access.end.is_some_and(|(lane, tick)| self.clocks[before.index()][lane.index()] >= tick)
    }

    fn collide(&mut self, race: Race, location: LocationId, first: Access, second: OpRef) {
        if self.collisions.len() == MAX_COLLISIONS {
            return;
        }
        self.collisions.push(Collision {
            race,
            location,
            first: first.op,
            second,
            open: first.end.is_none(),
        });
    }
}
