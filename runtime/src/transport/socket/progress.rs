//! The engine that moves the messages of all socket links of a communicator, and its thread.
//!
//! A *round* looks at what executor threads have rung for, sends, and receives, all without waiting.
//! The thread makes rounds as long as they bring something; then, while somebody is inside a
//! collective, it polls for up to [`POLL_FOR`], yielding the core between rounds; else it sleeps until
//! a doorbell or a socket wakes it. In a crowd (see [`doorbell`](super::super::doorbell)) executor
//! threads make rounds too, and the thread naps instead of polling.
//!
//! It ends when the connections are closed: what was published is sent, each peer is told goodbye, and
//! the confirmation is awaited, all within a bounded time. One engine serves the whole communicator; one
//! per NIC would be several of these, each with its own board and wires.

use super::super::departure::Departure;
use super::super::doorbell::{Board, Helper};
use super::super::error::LinkFault;
use super::super::{Alarm, LinkError};
use super::wire::{Activity, Wire, WireError};
use crate::memory::mapping::Mapping;
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread polls inside a collective after the last thing that happened. Ours: several
/// times what waking a thread costs, and far below what a person notices of a busy core.
const POLL_FOR: Duration = Duration::from_micros(200);
/// How long the thread naps while executor threads make rounds. Ours: what a message may lie unread
/// when all of them are busy with something else.
const NAP: Duration = Duration::from_micros(200);
/// How long it goes on napping inside a collective after the last thing that anybody moved; then it
/// sleeps until a socket wakes it. Ours.
const NAP_FOR: Duration = Duration::from_millis(10);
/// Up to this many sockets are cheaper to read in vain than to ask about.
const FEW_WIRES: usize = 2;
/// Sockets looked at in one call.
const EVENTS: usize = 64;

/// What the thread gets and, in part, shares.
pub(crate) struct Plan {
    pub(crate) rank: u32,
    pub(crate) wires: Vec<Wire>,
    /// Channels per peer, to find a wire from a place on the board.
    pub(crate) channels: u32,
    /// Wires per peer.
    pub(crate) stride: u32,
    pub(crate) activity: Arc<Shared>,
    pub(crate) alarm: Arc<dyn Alarm>,
    pub(crate) close_timeout: Duration,
    /// Keeps the FIFOs mapped as long as the thread lives.
    #[expect(dead_code, reason = "held, not read")]
    pub(crate) memory: Vec<Arc<Mapping>>,
}

/// What the thread tells everybody.
#[derive(Debug)]
pub(crate) struct Shared {
    /// When the thread began.
    pub(crate) began: Instant,
    /// By place on the board.
    pub(crate) ends: Vec<Activity>,
    /// By place of the peer among those reached by sockets: how it has gone ([`Departure`]). Written
    /// with release after the counters, by whoever makes a round.
    pub(crate) left: Vec<AtomicU32>,
}

impl Shared {
    pub(crate) fn new(peers: usize, channels: u32) -> Self {
        Self {
            began: Instant::now(),
            ends: (0..peers * channels as usize * 2).map(|_| Activity::default()).collect(),
            left: (0..peers).map(|_| AtomicU32::new(Departure::Here.word())).collect(),
        }
    }
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Progress {
    board: Arc<Board>,
    thread: Option<JoinHandle<()>>,
    process: u32,
}

impl Progress {
    /// Starts it.
    pub(crate) fn start(plan: Plan, board: &Arc<Board>) -> Result<Self, LinkError> {
        let rank = plan.rank;
        let failed = |call| move |source: std::io::Error| LinkError::Progress { rank, call, source };
        let events = events(&plan).map_err(|errno| failed("epoll")(errno.into()))?;
        let alarm = Arc::clone(&plan.alarm);
        let run = Run { plan, events, ready: Vec::new(), closing: None };
        let engine = Arc::new(Engine { run: Mutex::new(Some(run)) });
        board.set_helper(engine.clone());
        let watch = Watch { rank, alarm };
        let name = format!("ringsmith-net{rank}");
        let shared = Arc::clone(board);
        let thread = std::thread::Builder::new().name(name).spawn(move || engine.work(&shared, &watch));
        let thread = Some(thread.map_err(failed("starting a thread"))?);
        Ok(Self { board: Arc::clone(board), thread, process: std::process::id() })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        // A forked child has no such thread to wait for.
        if self.process != std::process::id() {
            std::mem::forget(self.thread.take());
            return;
        }
        self.board.stop();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported through the alarm.
            let _ = thread.join();
        }
    }
}

/// Makes rounds, for whoever holds the lock. None once closed.
struct Engine {
    run: Mutex<Option<Run>>,
}

impl Helper for Engine {
    fn try_round(&self, board: &Board, look: bool) -> Option<bool> {
        match self.run.try_lock() {
            Ok(mut run) => Some(run.as_mut().is_some_and(|run| run.round(board, look))),
            // After a panic in a round the thread reports it.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => None,
        }
    }

    fn round(&self, board: &Board) -> bool {
        self.run.lock().is_ok_and(|mut run| run.as_mut().is_some_and(|run| run.round(board, true)))
    }
}

impl Engine {
    /// The thread's work, until the connections are closed.
    fn work(&self, board: &Board, watch: &Watch) {
        let (mut busy_until, mut seen) = (Instant::now(), 0);
        loop {
            let mut guard = self.run.lock().expect("no round panics; see Watch");
            let run = guard.as_mut().expect("only this thread takes it out");
            if run.is_closed(board) {
                *guard = None;
                return;
            }
            let moved = run.round(board, true);
            let moves = board.moves();
            let helped = std::mem::replace(&mut seen, moves) != moves;
            let closing = run.closing.map(|begun| run.close_rest(begun));
            if helped {
                busy_until = Instant::now() + if board.is_crowded() { NAP_FOR } else { POLL_FOR };
            }
            if moved {
                // On to the next round.
            } else if closing.is_some() {
                run.look(closing);
            } else if board.is_active() && board.is_crowded() && Instant::now() < busy_until {
                drop(guard);
                board.nap(NAP);
            } else if board.is_active() && Instant::now() < busy_until {
                drop(guard);
                std::thread::yield_now();
            } else {
                let events = Arc::clone(&run.events);
                drop(guard);
                if board.doze() {
                    if let Err(errno) = wait_for(&events, board) {
                        watch.report(format!("waiting for sockets failed: {errno}"));
                        return;
                    }
                    // Whoever entered a collective and woke this thread will want it soon.
                    busy_until = Instant::now() + POLL_FOR;
                }
            }
        }
    }
}

/// Sleeps until a socket or the bell is ready. Whoever makes the next round serves the sockets; the bell
/// is this thread's alone, since a ring that somebody else took might leave it asleep.
fn wait_for(events: &OwnedFd, board: &Board) -> Result<(), Errno> {
    let mut fds = [PollFd::new(events, PollFlags::IN), PollFd::new(board, PollFlags::IN)];
    let result = poll(&mut fds, None);
    board.awake();
    board.drain();
    match result {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn events(plan: &Plan) -> Result<Arc<OwnedFd>, Errno> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (index, wire) in (0u64..).zip(&plan.wires) {
        epoll::add(&events, wire.fd(), epoll::EventData::new_u64(index), epoll::EventFlags::IN)?;
    }
    Ok(Arc::new(events))
}

struct Run {
    plan: Plan,
    events: Arc<OwnedFd>,
    /// Wires with something to send, which may not have it any more.
    ready: Vec<usize>,
    closing: Option<Instant>,
}

/// Reports the thread's end, which would otherwise leave every executor waiting.
struct Watch {
    rank: u32,
    alarm: Arc<dyn Alarm>,
}

impl Watch {
    fn report(&self, reason: String) {
        self.alarm.raise(LinkFault::Progress { rank: self.rank, reason });
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.report("it panicked, which is a bug in this program".to_owned());
        }
    }
}

impl Run {
    /// Does what can be done without waiting; without `look` only what there is to send. True if anything
    /// moved.
    fn round(&mut self, board: &Board, look: bool) -> bool {
        self.take_news(board);
        let mut moved = self.send();
        if look {
            moved |= if self.plan.wires.len() <= FEW_WIRES {
                self.try_all()
            } else {
                self.look(Some(Duration::ZERO))
            };
            if !moved && self.queue_credits() {
                moved |= self.send();
            }
        }
        if moved {
            board.count_move();
        }
        moved
    }

    /// Whether the thread's work is over. Starts closing when asked to.
    fn is_closed(&mut self, board: &Board) -> bool {
        if !board.stopping() {
            return false;
        }
        if self.plan.alarm.raised() {
            let culprit = self.plan.alarm.culprit().unwrap_or(self.plan.rank);
            let open = |wire: &&mut Wire| !wire.bye().over;
            self.plan.wires.iter_mut().filter(open).for_each(|wire| wire.say_broken(culprit));
            return true;
        }
        let begun = *self.closing.get_or_insert_with(Instant::now);
        // The stop may have overtaken the last news.
        self.take_news(board);
        for index in 0..self.plan.wires.len() {
            let wire = &mut self.plan.wires[index];
            if !wire.bye().over && !wire.bye().said {
                wire.say_bye();
                self.ready.push(index);
            }
        }
        let open = |wire: &Wire| !wire.bye().over && (!wire.bye().confirmed || wire.has_output());
        let open = self.plan.wires.iter().filter(|wire| open(wire)).collect::<Vec<_>>();
        if !open.is_empty() && self.close_rest(begun).is_zero() {
            let peers: Vec<u32> = open.iter().map(|wire| wire.peer()).collect();
            let rank = self.plan.rank;
            tracing::warn!(target: "ringsmith::net", rank, ?peers, "closed before these peers confirmed all that was sent");
            return true;
        }
        open.is_empty()
    }

    fn close_rest(&self, begun: Instant) -> Duration {
        self.plan.close_timeout.saturating_sub(begun.elapsed())
    }

    /// Looks at the ends that executor threads rang for.
    fn take_news(&mut self, board: &Board) -> bool {
        let Self { plan, ready, .. } = self;
        let Plan { wires, channels, stride, alarm, rank, .. } = plan;
        board.take(|end| {
            let end = end as u32;
            let (peer, channel, inward) = (end / (2 * *channels), end / 2 % *channels, end % 2 == 1);
            let index = (peer * *stride + channel % *stride) as usize;
            let wire = &mut wires[index];
            if wire.bye().over || wire.bye().said {
                // What is published for a peer that has gone never arrives; whoever waits for its room
                // finds out that it has gone.
                return;
            }
            let channel = (channel / *stride) as usize;
            let result = if inward { wire.notice_in(channel) } else { wire.notice_out(channel) };
            if let Err(error) = result {
                report(*rank, &**alarm, wire, error);
                wire.give_up();
            }
            if wire.has_output() {
                ready.push(index);
            }
        })
    }

    /// Queues credits held back; true if there were any.
    fn queue_credits(&mut self) -> bool {
        let before = self.ready.len();
        for (index, wire) in self.plan.wires.iter_mut().enumerate() {
            if wire.queue_credits() {
                self.ready.push(index);
            }
        }
        self.ready.len() != before
    }

    /// Sends what is queued on wires that take it.
    fn send(&mut self) -> bool {
        let mut any = false;
        for index in std::mem::take(&mut self.ready) {
            if !self.plan.wires[index].blocked {
                any |= self.send_on(index);
            }
        }
        any
    }

    fn send_on(&mut self, index: usize) -> bool {
        let was_blocked = self.plan.wires[index].blocked;
        let peer = index as u32 / self.plan.stride;
        let result = {
            let Plan { wires, activity, channels, .. } = &mut self.plan;
            wires[index].send(|channel, count| note(activity, *channels, peer, channel, 0, count))
        };
        let wire = &self.plan.wires[index];
        if wire.blocked != was_blocked && !wire.bye().over {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, wire.blocked);
            let data = epoll::EventData::new_u64(index as u64);
            if let Err(errno) = epoll::modify(&*self.events, wire.fd(), data, flags) {
                self.fail(index, WireError::Own(format!("epoll_ctl failed: {errno}")));
            }
        }
        match result {
            Ok(any) => any,
            Err(error) => {
                self.fail(index, error);
                true
            }
        }
    }

    /// Serves every socket, ready or not.
    fn try_all(&mut self) -> bool {
        let mut any = false;
        for index in 0..self.plan.wires.len() {
            let mut flags = epoll::EventFlags::IN;
            flags.set(epoll::EventFlags::OUT, self.plan.wires[index].blocked);
            any |= self.serve(index, flags);
        }
        any
    }

    /// Asks for ready sockets, waiting as long as said, and serves them.
    fn look(&mut self, timeout: Option<Duration>) -> bool {
        let mut space = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let timeout = timeout.map(|timeout| rustix::time::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let found = match epoll::wait(&*self.events, &mut space, timeout.as_ref()) {
            Ok((found, _)) => found,
            Err(Errno::INTR) => return false,
            Err(errno) => {
                let reason = format!("asking for ready sockets failed: {errno}");
                self.plan.alarm.raise(LinkFault::Progress { rank: self.plan.rank, reason });
                return false;
            }
        };
        let mut any = false;
        for event in found {
            let data = event.data;
            any |= self.serve(data.u64() as usize, event.flags);
        }
        any
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags) -> bool {
        let peer = index as u32 / self.plan.stride;
        if self.plan.wires[index].bye().over {
            let _ = epoll::delete(&*self.events, self.plan.wires[index].fd());
            return false;
        }
        let mut any = false;
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            let result = {
                let Plan { wires, activity, channels, .. } = &mut self.plan;
                wires[index].receive(|channel, count| note(activity, *channels, peer, channel, 1, count))
            };
            match result {
                Ok(received) => any |= received,
                Err(error) => self.fail(index, error),
            }
        }
        if self.plan.wires[index].bye().heard {
            // Other connections of the peer may still hold what it sent before.
            let first = (peer * self.plan.stride) as usize;
            let wires = &self.plan.wires[first..first + self.plan.stride as usize];
            if wires.iter().all(|wire| wire.bye().heard) {
                self.depart(index, Departure::InOrder);
            }
        }
        let wire = &mut self.plan.wires[index];
        if wire.bye().over {
            // Its messages, if any were left, have nowhere to go.
            let _ = epoll::delete(&*self.events, wire.fd());
            return true;
        }
        if wire.has_output() && (!wire.blocked || flags.contains(epoll::EventFlags::OUT)) {
            any |= self.send_on(index);
        }
        any
    }

    /// Notes how the peer of a wire has gone. What is noted first stays.
    fn depart(&self, index: usize, departure: Departure) {
        let word = &self.plan.activity.left[index / self.plan.stride as usize];
        let (here, gone) = (Departure::Here.word(), departure.word());
        let _ = word.compare_exchange(here, gone, Ordering::Release, Ordering::Relaxed);
    }

    fn fail(&mut self, index: usize, error: WireError) {
        if let WireError::Told(culprit) = error {
            // Whoever waits for this peer decides; the peer's own words may still be on their way.
            self.depart(index, Departure::GaveUp { culprit });
        } else if self.closing.is_none() {
            // While closing, what peers do is no concern any more.
            report(self.plan.rank, &*self.plan.alarm, &self.plan.wires[index], error);
        }
        let wire = &mut self.plan.wires[index];
        wire.give_up();
        let _ = epoll::delete(&*self.events, wire.fd());
    }
}

/// Notes that a message moved.
fn note(activity: &Shared, channels: u32, peer: u32, channel: u32, direction: u32, count: u64) {
    let end = &activity.ends[((peer * channels + channel) * 2 + direction) as usize];
    end.moved.store(count, Ordering::Relaxed);
    end.moved_ms.store(activity.began.elapsed().as_millis() as u64, Ordering::Relaxed);
}

fn report(rank: u32, alarm: &dyn Alarm, wire: &Wire, error: WireError) {
    let (peer, address) = (wire.peer(), wire.address().to_owned());
    alarm.raise(match error {
        WireError::Lost(reason) => LinkFault::PeerLost { rank, peer, address, reason },
        WireError::Told(culprit) => {
            unreachable!("rank {peer} gave up because of rank {culprit}; departures are noted, not reported")
        }
        WireError::Protocol(reason) => LinkFault::Protocol { rank, peer, address, reason },
        WireError::Own(reason) => LinkFault::Progress { rank, reason },
    });
}
