//! The thread that moves the messages of all socket links of a communicator.
//!
//! It looks at what executor threads have rung for, sends, receives, and starts over. While a thread is
//! inside a collective it polls, yielding the core between rounds that brought nothing; after
//! [`POLL_FOR`] of those, or outside of collectives, it sleeps until a doorbell or a socket wakes it. It
//! ends when the connections are closed: what was published is sent, each peer is told goodbye, and the
//! confirmation is awaited, all within a bounded time. One thread serves the whole communicator; a
//! thread per NIC would be several of these, each with its own board and wires.

use super::super::doorbell::Board;
use super::super::error::LinkFault;
use super::super::{Alarm, LinkError};
use super::wire::{Activity, Wire, WireError};
use crate::memory::mapping::Mapping;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread polls inside a collective after the last thing that happened. Ours: several
/// times what waking a thread costs, and far below what a person notices of a busy core.
const POLL_FOR: Duration = Duration::from_micros(200);
/// Sockets looked at in one call.
const EVENTS: usize = 64;
const BELL: u64 = u64::MAX;

/// What the thread gets and, in part, shares.
pub(crate) struct Plan {
    pub(crate) rank: u32,
    pub(crate) board: Arc<Board>,
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
    /// By place of the peer among those reached by sockets: whether it has said goodbye.
    pub(crate) left: Vec<AtomicBool>,
}

impl Shared {
    pub(crate) fn new(peers: usize, channels: u32) -> Self {
        Self {
            began: Instant::now(),
            ends: (0..peers * channels as usize * 2).map(|_| Activity::default()).collect(),
            left: (0..peers).map(|_| AtomicBool::new(false)).collect(),
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
    pub(crate) fn start(plan: Plan) -> Result<Self, LinkError> {
        let (rank, board) = (plan.rank, Arc::clone(&plan.board));
        let failed = |call| move |source: std::io::Error| LinkError::Progress { rank, call, source };
        let events = events(&plan).map_err(|errno| failed("epoll")(errno.into()))?;
        let run = Run { plan, events, ready: Vec::new(), closing: None };
        let thread = std::thread::Builder::new().name(format!("ringsmith-net{rank}"));
        let thread = thread.spawn(move || run.guarded()).map_err(failed("starting a thread"))?;
        Ok(Self { board, thread: Some(thread), process: std::process::id() })
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

fn events(plan: &Plan) -> Result<OwnedFd, Errno> {
    let events = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&events, &*plan.board, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
    for (index, wire) in (0u64..).zip(&plan.wires) {
        epoll::add(&events, wire.fd(), epoll::EventData::new_u64(index), epoll::EventFlags::IN)?;
    }
    Ok(events)
}

struct Run {
    plan: Plan,
    events: OwnedFd,
    /// Wires with something to send, which may not have it any more.
    ready: Vec<usize>,
    closing: Option<Instant>,
}

/// Reports a panic of the thread, which would otherwise leave every executor waiting.
struct Watch {
    rank: u32,
    alarm: Arc<dyn Alarm>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "it panicked, which is a bug in this program".to_owned();
            self.alarm.raise(LinkFault::Progress { rank: self.rank, reason });
        }
    }
}

impl Run {
    fn guarded(mut self) {
        let _watch = Watch { rank: self.plan.rank, alarm: Arc::clone(&self.plan.alarm) };
        if let Err(errno) = self.run() {
            let reason = format!("waiting for sockets failed: {errno}");
            self.plan.alarm.raise(LinkFault::Progress { rank: self.plan.rank, reason });
        }
    }

    fn run(&mut self) -> Result<(), Errno> {
        let mut busy_until = Instant::now();
        while !self.is_closed() {
            let mut moved = self.take_news();
            moved |= self.send();
            moved |= self.look(Some(Duration::ZERO))?;
            if moved {
                busy_until = Instant::now() + POLL_FOR;
            } else if self.queue_credits() {
                self.send();
            } else if let Some(begun) = self.closing {
                self.look(Some(self.close_rest(begun)))?;
            } else if self.plan.board.is_active() && Instant::now() < busy_until {
                std::thread::yield_now();
            } else if self.plan.board.doze() {
                let result = self.look(None);
                self.plan.board.awake();
                result?;
                busy_until = Instant::now() + POLL_FOR;
            }
        }
        Ok(())
    }

    /// Whether the thread's work is over. Starts closing when asked to.
    fn is_closed(&mut self) -> bool {
        if !self.plan.board.stopping() {
            return false;
        }
        if self.plan.alarm.raised() {
            // Peers learn of a failure from connections that end without goodbye.
            return true;
        }
        let begun = *self.closing.get_or_insert_with(Instant::now);
        // The stop may have overtaken the last news.
        self.take_news();
        for index in 0..self.plan.wires.len() {
            let wire = &mut self.plan.wires[index];
            if !wire.bye().over && !wire.bye().said {
                wire.say_bye();
                self.ready.push(index);
            }
        }
        let open = |wire: &Wire| !wire.bye().over && !(wire.bye().confirmed && !wire.has_output());
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
    fn take_news(&mut self) -> bool {
        let Self { plan, ready, closing, .. } = self;
        let closing = closing.is_some();
        let Plan { board, wires, channels, stride, alarm, rank, .. } = plan;
        board.take(|end| {
            let end = end as u32;
            let (peer, channel, inward) = (end / (2 * *channels), end / 2 % *channels, end % 2 == 1);
            let index = (peer * *stride + channel % *stride) as usize;
            let wire = &mut wires[index];
            if wire.bye().over || wire.bye().said {
                if !inward && !closing {
                    // What is published for a peer that has gone would never arrive.
                    report(*rank, &**alarm, wire, WireError::Lost("it has left already".to_owned()));
                }
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
            if let Err(errno) = epoll::modify(&self.events, wire.fd(), data, flags) {
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

    /// Asks for ready sockets, waiting as long as said, and serves them.
    fn look(&mut self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let mut space = [const { std::mem::MaybeUninit::uninit() }; EVENTS];
        let timeout = timeout.map(|timeout| rustix::time::Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let (found, _) = match epoll::wait(&self.events, &mut space, timeout.as_ref()) {
            Ok(found) => found,
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno),
        };
        let mut any = false;
        for event in found {
            let data = event.data;
            if data.u64() == BELL {
                self.plan.board.drain();
                continue;
            }
            let index = data.u64() as usize;
            any |= self.serve(index, event.flags);
        }
        Ok(any)
    }

    fn serve(&mut self, index: usize, flags: epoll::EventFlags) -> bool {
        let peer = index as u32 / self.plan.stride;
        if self.plan.wires[index].bye().over {
            let _ = epoll::delete(&self.events, self.plan.wires[index].fd());
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
        let wire = &mut self.plan.wires[index];
        if wire.bye().heard {
            self.plan.activity.left[peer as usize].store(true, Ordering::Release);
        }
        if wire.bye().over {
            // Its messages, if any were left, have nowhere to go.
            let _ = epoll::delete(&self.events, wire.fd());
            return true;
        }
        if wire.has_output() && (!wire.blocked || flags.contains(epoll::EventFlags::OUT)) {
            any |= self.send_on(index);
        }
        any
    }

    fn fail(&mut self, index: usize, error: WireError) {
        let wire = &mut self.plan.wires[index];
        // While closing, what peers do is no concern any more.
        if self.closing.is_none() {
            report(self.plan.rank, &*self.plan.alarm, wire, error);
        }
        wire.give_up();
        let _ = epoll::delete(&self.events, wire.fd());
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
        WireError::Protocol(reason) => LinkFault::Protocol { rank, peer, address, reason },
        WireError::Own(reason) => LinkFault::Progress { rank, reason },
    });
}
