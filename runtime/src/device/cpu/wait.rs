//! How a rank waits: it spins while cores are to be had, yields while they are not, naps when nothing
//! comes for long; says so once when the wait looks like a stall; and ends when what it waits for cannot
//! come any more.
//!
//! A wait fails in two steps. First [`Wait::pause`] notices that the communicator is broken, or that a
//! rank that something is awaited of has gone. Then the caller looks at its counters once more, since
//! what came before the bad news counts; only if nothing moves even so, the next pause is the error.

use crate::error::{Error, Seconds, Silent};
use crate::fault::{Fault, Reason};
use crate::transport::{Connections, Departure, Direction, TransportKind};
use rustix::thread::sched_yield;
use smallvec::SmallVec;
use std::fmt::Write;
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
/// What counts of the time between two looks at the clock. Ours: 64 rounds or a nap take less even on a
/// machine with many more ranks than cores; beyond it the rank did not run.
const LONGEST_GAP: Duration = Duration::from_millis(250);
/// How long a rank that sees a peer give up waits for the peer's own words, which come through the root.
/// Ours: many times what they take; without a root they never come.
const WORDS_GRACE: Duration = Duration::from_secs(2);

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

/// What every wait of a communicator looks at.
pub(crate) struct Watch<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) fault: &'a Fault,
    pub(crate) connections: &'a Connections,
}

/// What a wait is for: asked only when there is something to decide or to say.
pub(crate) trait Pending {
    /// The ranks that something is awaited of, the one to name first in front.
    fn peers(&self) -> SmallVec<[u32; 8]>;

    /// What is awaited of `peer`, one of [`peers`](Self::peers).
    fn awaited(&self, peer: u32) -> Awaited;
}

/// What is awaited of a rank, for messages.
pub(crate) struct Awaited {
    /// The rank that waits.
    pub(crate) rank: u32,
    /// The collective and its sequence number.
    pub(crate) operation: String,
    /// The op's address and what it waits for.
    pub(crate) detail: String,
}

/// Why a wait is about to fail.
#[derive(Clone, Copy)]
enum BadNews {
    /// The communicator is broken.
    Broken,
    /// This rank has left in good order.
    Left(u32),
}

/// How long a rank has waited, of the time in which it ran.
///
/// A rank that was itself stopped, or whose machine slept, has not waited for others meanwhile: they
/// would be blamed, or the call given up, before it has looked whether they have sent something.
#[derive(Clone, Copy)]
struct Clock {
    looked: Option<Instant>,
    waited: Duration,
}

impl Clock {
    /// Before the first look.
    const STOPPED: Self = Self { looked: None, waited: Duration::ZERO };

    /// Looks at the time: how long the wait has been.
    fn look(&mut self, now: Instant) -> Duration {
        if let Some(before) = self.looked.replace(now) {
            self.waited += now.saturating_duration_since(before).min(LONGEST_GAP);
        }
        self.waited
    }
}

/// One wait, from the moment nothing could be done.
pub(crate) struct Wait {
    rounds: u32,
    clock: Clock,
    /// Who waits in which call, once that has been told.
    warned: Option<String>,
    bad_news: Option<BadNews>,
    /// When a peer was first seen to have given up.
    given_up: Option<Instant>,
}

impl Wait {
    /// A wait that has not begun.
    pub(crate) const fn new() -> Self {
        Self { rounds: 0, clock: Clock::STOPPED, warned: None, bad_news: None, given_up: None }
    }

    /// Something could be done: the next pause begins a new wait.
    #[inline]
    pub(crate) fn reset(&mut self) {
        if self.rounds > 0 {
            if let Some(who) = &self.warned {
                tracing::warn!(target: "ringsmith::coll", "{who}: the wait is over");
            }
            *self = Self::new();
        }
    }

    /// One round in which nothing could be done.
    ///
    /// Errors: `Interrupted` when the communicator is broken, `PeerLeft` when a rank that is waited for
    /// has left, both only after the caller has looked once more; `Timeout` at the limit.
    #[inline]
    pub(crate) fn pause(&mut self, watch: &Watch<'_>, pending: &impl Pending) -> Result<(), Error> {
        self.rounds = self.rounds.saturating_add(1);
        if watch.policy.spin && self.rounds < SPIN_ROUNDS && self.bad_news.is_none() {
            std::hint::spin_loop();
            return Ok(());
        }
        self.pause_long(watch, pending)
    }

    #[cold]
    #[inline(never)]
    fn pause_long(&mut self, watch: &Watch<'_>, pending: &dyn Pending) -> Result<(), Error> {
        if let Some(news) = self.bad_news {
            return Err(failure(news, watch, pending));
        }
        if watch.fault.word().load(Ordering::Acquire) != 0 {
            watch.connections.catch_up();
            self.bad_news = Some(BadNews::Broken);
            return Ok(());
        }
        sched_yield();
        if !self.rounds.is_multiple_of(ROUNDS_PER_CLOCK) {
            return Ok(());
        }
        let waited = self.clock.look(Instant::now());
        self.look_for_departures(watch, pending);
        if self.bad_news.is_some() {
            return Ok(());
        }
        if waited >= NAP_AFTER {
            std::thread::sleep(NAP);
            self.rounds = self.rounds.next_multiple_of(ROUNDS_PER_CLOCK) - 1;
        }
        if let Some(limit) = watch.policy.timeout
            && waited >= limit
        {
            return Err(timeout(pending, waited));
        }
        if waited >= watch.policy.stall && self.warned.is_none() {
            self.warned = Some(warn_of_stall(watch, pending, waited));
        }
        Ok(())
    }

    /// Looks whether a rank that something is awaited of has gone.
    fn look_for_departures(&mut self, watch: &Watch<'_>, pending: &dyn Pending) {
        for peer in pending.peers() {
            match watch.connections.departure(peer) {
                Departure::Here => {}
                Departure::InOrder => return self.bad_news = Some(BadNews::Left(peer)),
                Departure::GaveUp { culprit } => {
                    // Its own words say more, and end this wait when they come.
                    if self.given_up.get_or_insert_with(Instant::now).elapsed() >= WORDS_GRACE {
                        watch.fault.raise(Reason::PeerGaveUp { rank: peer, culprit });
                    }
                }
            }
        }
    }
}

fn first(pending: &dyn Pending) -> (u32, Awaited) {
    let peer = *pending.peers().first().expect("a wait is for something of some rank");
    (peer, pending.awaited(peer))
}

/// The ranks that something is awaited of, but for the one to name first.
fn others(pending: &dyn Pending) -> Vec<u32> {
    pending.peers().into_iter().skip(1).collect()
}

fn timeout(pending: &dyn Pending, waited: Duration) -> Error {
    let (peer, Awaited { rank, operation, detail }) = first(pending);
    Error::Timeout { rank, peer, others: others(pending), operation, detail, waited }
}

fn failure(news: BadNews, watch: &Watch<'_>, pending: &dyn Pending) -> Error {
    match news {
        BadNews::Left(peer) => {
            let Awaited { rank, operation, detail } = pending.awaited(peer);
            Error::PeerLeft { rank, peer, operation, detail }
        }
        BadNews::Broken => {
            let reason = watch.fault.reason().expect("the word is set after the reason").clone();
            let peers = pending.peers();
            let culprit = reason.culprit().filter(|culprit| peers.contains(culprit));
            let Awaited { rank, operation, detail } = match culprit {
                Some(culprit) => pending.awaited(culprit),
                None => first(pending).1,
            };
            Error::Interrupted { rank, operation, detail, reason }
        }
    }
}

/// Says who waits for whom. Returns who waits in which call.
fn warn_of_stall(watch: &Watch<'_>, pending: &dyn Pending, waited: Duration) -> String {
    let (peer, Awaited { rank, operation, detail }) = first(pending);
    let who = format!("rank {rank}: {operation}");
    let silent = Silent::of(peer, &others(pending));
    tracing::warn!(
        target: "ringsmith::coll",
        "{who}: nothing has come from {silent} for {}: {detail}{queues}; {}; this rank goes on when something comes",
        Seconds(waited),
        silent.blame(),
        queues = queues(watch.connections, peer, waited),
    );
    who
}

/// What the queues of the sockets to `peer` hold, and which of them moved during the wait. Nothing over other
/// transports, where a counter that has been moved is seen.
fn queues(connections: &Connections, peer: u32, waited: Duration) -> String {
    let mut text = String::new();
    if connections.transport(peer) != TransportKind::Socket {
        return text;
    }
    text.push_str("; its sockets:");
    let links = connections.describe();
    for link in links.iter().filter(|link| link.peer == peer) {
        let (queued, under_way) = (link.posted.wrapping_sub(link.sent), link.sent.wrapping_sub(link.done));
        let moved = moved(link.idle, waited);
        let channel = link.channel;
        // Writing into a string cannot fail.
        let _ = match link.direction {
            Direction::Out => write!(
                text,
                " channel {channel} out: messages queued here {queued}, sent but not taken {under_way}{moved};"
            ),
            Direction::In => {
                write!(text, " channel {channel} in: messages unread here {under_way}{moved};")
            }
        };
    }
    if text.ends_with(':') {
        text.push_str(" no message has travelled yet");
    }
    text.truncate(text.trim_end_matches(';').len());
    text
}

/// When a queue last moved, if that was while something else was awaited: how long the others have not
/// moved is said of the wait.
fn moved(idle: Duration, waited: Duration) -> String {
    /// Ours: the two are not measured at one moment.
    const CLOSE: Duration = Duration::from_millis(500);
    if idle + CLOSE < waited { format!(", and moved {} ago", Seconds(idle)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::{Exchange, ExchangeError, Geometry, Options};
    use std::sync::Arc;

    struct Alone;

    impl Exchange for Alone {
        fn rank(&self) -> u32 {
            0
        }

        fn world(&self) -> u32 {
            1
        }

        fn all_gather(&self, _: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError> {
            Ok(vec![bytes.to_vec()])
        }
    }

    struct Message;

    impl Pending for Message {
        fn peers(&self) -> SmallVec<[u32; 8]> {
            smallvec::smallvec![0]
        }

        fn awaited(&self, peer: u32) -> Awaited {
            let (operation, detail) =
                ("barrier number 3".to_owned(), format!("op r0.0#1 waits for rank {peer}"));
            Awaited { rank: 0, operation, detail }
        }
    }

    #[test]
    fn after_an_abort_the_counters_are_looked_at_once_more() {
        let fault = Fault::new();
        let geometry =
            Geometry { ranks: 1, channels: 1, slots: 1, slot_bytes: 64, zone_cells: 0, zone_cell_bytes: 64 };
        let connections =
            Connections::connect(&Alone, &Options::default(), geometry, Arc::new(fault.clone()));
        let policy = Policy { spin: false, stall: Duration::MAX, timeout: None };
        let watch = Watch { policy: &policy, fault: &fault, connections: &connections.expect("alone") };
        let mut wait = Wait::new();
        wait.pause(&watch, &Message).expect("all is well");
        fault.raise(Reason::AbortedBy { rank: 2, reason: "the disk is full".to_owned() });
        wait.pause(&watch, &Message).expect("the message may have come before the abort");
        // It had.
        wait.reset();
        wait.pause(&watch, &Message).expect("and so may the next");
        let error = wait.pause(&watch, &Message).expect_err("it had not");
        assert_eq!(
            error.to_string(),
            "rank 0: barrier number 3: op r0.0#1 waits for rank 0: rank 2 aborted: the disk is full; mend that, then \
             make a new communicator"
        );
    }

    #[test]
    fn a_rank_that_was_stopped_has_not_waited_meanwhile() {
        let start = Instant::now();
        let mut clock = Clock::STOPPED;
        assert_eq!(clock.look(start), Duration::ZERO);
        assert_eq!(clock.look(start + Duration::from_millis(3)), Duration::from_millis(3));
        let stopped = Duration::from_secs(3600);
        let waited = clock.look(start + stopped);
        assert_eq!(waited, Duration::from_millis(3) + LONGEST_GAP);
        assert_eq!(clock.look(start + stopped + Duration::from_millis(1)), waited + Duration::from_millis(1));
    }

    #[test]
    fn a_queue_that_did_not_move_repeats_no_time() {
        let seconds = Duration::from_secs;
        assert_eq!(moved(seconds(30), seconds(30)), "");
        assert_eq!(moved(seconds(100), seconds(30)), "");
        assert_eq!(moved(seconds(2), seconds(30)), ", and moved 2 s ago");
    }

    struct Messages;

    impl Pending for Messages {
        fn peers(&self) -> SmallVec<[u32; 8]> {
            smallvec::smallvec![3, 1, 3]
        }

        fn awaited(&self, peer: u32) -> Awaited {
            Message.awaited(peer)
        }
    }

    #[test]
    fn a_timeout_names_every_rank_that_something_is_awaited_of() {
        let text = timeout(&Messages, Duration::from_secs(2)).to_string();
        assert!(text.contains("op r0.0#1 waits for rank 3: nothing came from ranks 1, 3 for"), "{text}");
        assert!(text.contains("others may only wait for it"), "{text}");
        let text = timeout(&Message, Duration::from_secs(2)).to_string();
        assert!(text.contains("nothing came from rank 0 for 2 s; it is late"), "{text}");
    }
}
