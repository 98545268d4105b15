//! A rank's end of its connection: what is sent, and the thread that reads what comes.
//!
//! The thread is the only reader. It puts what it reads into `state`, raises the fault when a rank
//! is lost, and wakes whoever waits. It ends with the connection.
//!
//! | word | written by | read by | order |
//! | --- | --- | --- | --- |
//! | `state` | the monitor thread; `gather`, to say what it waits for | callers that wait | mutex, `changed` |
//! | `writer` | callers, one frame at a time | | mutex |
//! | `closing` | `close`, once | the monitor thread | in `state` |

use super::Member;
use super::frame::{Frame, MAX_FRAME_BYTES, decode, encode};
use super::refusal::{Process, Refusal};
use crate::error::{Error, Result};
use crate::fault::{Fault, Reason};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest a frame may take to be handed to the system. The root reads at all times, so beyond it
/// the network is gone.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// A gathering that this rank waits for.
pub(crate) struct Gathered {
    sequence: u64,
    parts: Vec<Option<Vec<u8>>>,
    outcome: Option<Result<(), Refusal>>,
}

impl Gathered {
    pub(crate) fn new(sequence: u64, world: usize) -> Self {
        Self { sequence, parts: vec![None; world], outcome: None }
    }
}

#[derive(Default)]
struct State {
    members: Vec<Member>,
    welcome: Option<Process>,
    refused: Option<Refusal>,
    gathering: Option<Gathered>,
    root_left: bool,
    closing: bool,
    /// The connection ended before the welcome.
    ended: Option<String>,
}

/// One rank's connection and what came over it.
pub(crate) struct Session {
    rank: u32,
    world: u32,
    root: SocketAddr,
    pub(crate) fault: Fault,
    stream: TcpStream,
    writer: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
}

impl Session {
    pub(crate) fn new(
        rank: u32,
        world: u32,
        stream: TcpStream,
        root: SocketAddr,
        fault: Fault,
    ) -> Result<Self> {
        let system = |source| Error::System { operation: "preparing the connection to the root", source };
        stream.set_write_timeout(Some(WRITE_LIMIT)).map_err(system)?;
        let (writer, state) = (Mutex::default(), Mutex::default());
        Ok(Self { rank, world, root, fault, stream, writer, state, changed: Condvar::new() })
    }

    /// Makes a fault that this rank raises known to its own waiters and to every other rank.
    pub(crate) fn spread_faults(self: &Arc<Self>) {
        // Weak: the fault belongs to the session, and outlives it in its clones.
        let session = Arc::downgrade(self);
        self.fault.on_raise(move |reason| {
            let Some(session) = session.upgrade() else { return };
            let told = match reason {
                Reason::AbortedLocally { reason } | Reason::GaveUp { reason, .. } => Some(reason.clone()),
                Reason::Transport { .. } | Reason::PeerGaveUp { .. } => Some(reason.to_string()),
                // The root said so, or is gone.
                Reason::PeerLost { .. } | Reason::AbortedBy { .. } | Reason::RootLost { .. } => None,
            };
            if let Some(reason) = told {
                // If it fails, the end of this process's connection tells the others.
                let _ = session.send("abort", &Frame::Abort { reason });
            }
            session.notify();
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits, to look at the fault.
    pub(crate) fn notify(&self) {
        // Under the lock, else a waiter that has just looked would sleep through it.
        let _state = self.lock();
        self.changed.notify_all();
    }

    pub(crate) fn send(&self, phase: &str, frame: &Frame) -> Result<()> {
        let mut bytes = Vec::new();
        encode(frame, &mut bytes);
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        (&self.stream).write_all(&bytes).map_err(|source| {
            // Half a frame may have gone, after which nothing can be sent. The monitor thread sees the
            // end of the connection and raises the fault.
            let _ = self.stream.shutdown(Shutdown::Both);
            Error::Send {
                rank: self.rank,
                world: self.world,
                phase: phase.to_owned(),
                root: self.root,
                source,
            }
        })
    }

    /// The address under which this rank talks to the root.
    pub(crate) fn own_address(&self) -> Option<IpAddr> {
        self.stream.local_addr().ok().map(|address| address.ip().to_canonical())
    }

    /// Says goodbye and ends the connection.
    pub(crate) fn leave(&self) {
        // First, since the root closes its end as soon as it has read the goodbye.
        self.lock().closing = true;
        // If it fails the root has gone, and nobody is left to be told.
        let _ = self.send("goodbye", &Frame::Goodbye);
        self.close();
    }

    /// Ends the connection and with it the monitor thread.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        // Fails when the other end was first, and then the thread has ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn refused(&self, phase: &str, refusal: Refusal) -> Error {
        Error::Refused { rank: self.rank, world: self.world, phase: phase.to_owned(), refusal }
    }

    fn silent(&self, phase: &str, waited: Duration) -> Error {
        Error::RootSilent {
            rank: self.rank,
            world: self.world,
            phase: phase.to_owned(),
            root: self.root,
            waited,
        }
    }

    /// Waits on `changed` until `done` gives something or the time is over.
    fn wait<T>(&self, deadline: Option<Instant>, mut done: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(value) = done(&mut state) {
                return Some(value);
            }
            let Some(deadline) = deadline else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until every rank has joined.
    pub(crate) fn wait_for_welcome(
        &self,
        started: Instant,
        limit: Duration,
        grace: Duration,
    ) -> Result<Vec<Member>> {
        let outcome = self.wait(started.checked_add(limit + grace), |state| {
            if state.welcome.is_some() {
                return Some(Ok(state.members.clone()));
            }
            if let Some(refusal) = state.refused.take() {
                return Some(Err(self.refused("join", refusal)));
            }
            state.ended.take().map(|why| {
                let source = io::Error::other(why);
                Err(Error::Send {
                    rank: self.rank,
                    world: self.world,
                    phase: "join".into(),
                    root: self.root,
                    source,
                })
            })
        });
        outcome.unwrap_or_else(|| Err(self.silent("join", started.elapsed())))
    }

    /// Sends this rank's part and waits for all parts.
    pub(crate) fn gather(
        &self,
        tag: &str,
        gathering: Gathered,
        part: &Frame,
        started: Instant,
        limit: Duration,
        grace: Duration,
    ) -> Result<Vec<Vec<u8>>> {
        let sequence = gathering.sequence;
        self.check_fault(tag, sequence, "not begun")?;
        {
            let mut state = self.lock();
            if state.root_left {
                return Err(Error::RootLeft { rank: self.rank, phase: tag.to_owned() });
            }
            state.gathering = Some(gathering);
        }
        let sent = self.send(tag, part);
        // A connection that ended is a lost rank as soon as the monitor has seen it.
        let deadline = limit.checked_add(grace).and_then(|limit| started.checked_add(limit));
        let outcome = match sent {
            Ok(()) => self.wait(deadline, |state| self.look_at_gathering(tag, sequence, state)),
            Err(error) => Some(self.check_fault(tag, sequence, "the root is gone").and(Err(error))),
        };
        self.lock().gathering = None;
        outcome.unwrap_or_else(|| Err(self.silent(tag, started.elapsed())))
    }

    /// Fails when the job is broken, naming the gathering and how far it had come.
    fn check_fault(&self, tag: &str, sequence: u64, detail: &str) -> Result<()> {
        let Some(reason) = self.fault.reason() else { return Ok(()) };
        Err(Error::Interrupted {
            rank: self.rank,
            operation: format!("exchange of `{tag}`, number {sequence}"),
            detail: detail.to_owned(),
            reason: reason.clone(),
        })
    }

    fn look_at_gathering(&self, tag: &str, sequence: u64, state: &mut State) -> Option<Result<Vec<Vec<u8>>>> {
        if let Some(gathering) = state.gathering.take_if(|g| matches!(g.outcome, Some(Ok(())))) {
            let parts: Option<Vec<_>> = gathering.parts.into_iter().collect();
            return Some(Ok(parts.expect("the monitor checks that all parts have come")));
        }
        // Before a failure: a gathering may fail because of the fault.
        if let Err(error) = self.check_fault(tag, sequence, "not every rank's part has come") {
            return Some(Err(error));
        }
        if let Some(Err(refusal)) = state.gathering.as_mut().and_then(|g| g.outcome.take()) {
            return Some(Err(self.refused(tag, refusal)));
        }
        state.root_left.then(|| Err(Error::RootLeft { rank: self.rank, phase: tag.to_owned() }))
    }

    /// Takes in a frame of the root. The error says how it breaks the protocol.
    fn receive(&self, frame: Frame) -> Result<(), &'static str> {
        let mut state = self.lock();
        match frame {
            Frame::Member { rank, process, host_key } => {
                if rank as usize != state.members.len() || rank >= self.world || state.welcome.is_some() {
                    return Err("the root lists ranks out of order");
                }
                state.members.push(Member { rank, process, host_key });
                return Ok(());
            }
            Frame::Welcome { world, root } => {
                if world != self.world || state.members.len() != world as usize || state.welcome.is_some() {
                    return Err("the root welcomes another number of ranks");
                }
                state.welcome = Some(root);
            }
            Frame::Refused(refusal) => state.refused = Some(refusal),
            Frame::Gathered { sequence, rank, bytes } => {
                // Parts of a gathering that this rank has given up may still be under way.
                if let Some(gathering) = state.gathering.as_mut().filter(|g| g.sequence == sequence) {
                    let place =
                        gathering.parts.get_mut(rank as usize).ok_or("the root sends a part of no rank")?;
                    *place = Some(bytes);
                }
                // Nobody waits for a single part, and waking for each would cost more than reading it.
                return Ok(());
            }
            Frame::GatherDone { sequence } => {
                if let Some(gathering) = state.gathering.as_mut().filter(|g| g.sequence == sequence) {
                    if gathering.parts.contains(&None) {
                        return Err("the root ends a gathering with parts missing");
                    }
                    gathering.outcome = Some(Ok(()));
                }
            }
            Frame::GatherFailed { sequence, refusal } => {
                if let Some(gathering) = state.gathering.as_mut().filter(|g| g.sequence == sequence) {
                    gathering.outcome = Some(Err(refusal));
                }
            }
            Frame::Lost { rank, process, detail } => {
                self.raise(state, Reason::PeerLost { rank, host: process.to_string(), detail });
                return Ok(());
            }
            Frame::Aborted { rank, reason } => {
                self.raise(state, Reason::AbortedBy { rank, reason });
                return Ok(());
            }
            Frame::RootLeaving => state.root_left = true,
            Frame::Join(_) | Frame::Part { .. } | Frame::Goodbye | Frame::Abort { .. } => {
                return Err("the root sends what only ranks send");
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    /// Raises the fault without holding the lock: its hooks may come back here.
    fn raise(&self, state: MutexGuard<'_, State>, reason: Reason) {
        drop(state);
        if self.fault.raise(reason) {
            let reason = self.fault.reason().expect("it was raised");
            // The call that it ends returns it, which is where it is told; this is for those who trace.
            tracing::info!(target: "ringsmith::bootstrap", "rank {}: {reason}", self.rank);
        }
    }

    /// The connection ended. Means nothing when either side had said so.
    fn ended(&self, why: String) {
        let mut state = self.lock();
        if state.closing || state.root_left || state.refused.is_some() {
            return self.changed.notify_all();
        }
        let Some(process) = state.welcome.clone() else {
            state.ended = Some(format!("the root's process ended or dropped this rank: {why}"));
            return self.changed.notify_all();
        };
        let in_root = |member: &&Member| member.process == process;
        let reason = match state.members.iter().find(in_root) {
            Some(member) => Reason::PeerLost {
                rank: member.rank,
                host: process.to_string(),
                detail: format!("its process held the root, and {why}"),
            },
            None => Reason::RootLost { host: process.to_string(), detail: why },
        };
        self.raise(state, reason);
    }
}

/// Starts the thread that reads.
pub(crate) fn start(session: Arc<Session>) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(format!("ringsmith-mon{}", session.rank))
        .spawn(move || {
            let why = read_all(&session);
            session.ended(why);
        })
        .map_err(|source| Error::Thread { name: "monitor", source })
}

/// Reads until the connection ends; says how it ended.
fn read_all(session: &Session) -> String {
    let mut input = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match (&session.stream).read(&mut buffer) {
            Ok(0) => return "its connection was closed".into(),
            Ok(len) => input.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return format!("its connection failed: {error}"),
        }
        let mut taken = 0;
        loop {
            match decode(&input[taken..], MAX_FRAME_BYTES) {
                Ok(Some((frame, len))) => {
                    taken += len;
                    if let Err(why) = session.receive(frame) {
                        return format!("it broke the protocol: {why}");
                    }
                }
                Ok(None) => break,
                Err(error) => return format!("it broke the protocol: {error}"),
            }
        }
        input.drain(..taken);
    }
}
