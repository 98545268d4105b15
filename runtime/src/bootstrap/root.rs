//! The root: one thread that listens, lets in who holds the secret, and moves frames between the
//! connections and the `Hub`, which decides.
//!
//! Every socket is nonblocking, so nobody can make another wait: a stranger costs a table entry and
//! a few bytes until its deadline. It keeps serving after the join, as the job's monitor: the end of
//! a connection is how a rank's death is noticed.
//!
//! | word | written by | read by | order |
//! | --- | --- | --- | --- |
//! | `order` | `Root` when it is dropped | the thread, after each wake-up | Release, Acquire |

use super::frame::{self, Frame, MAX_FRAME_BYTES, MAX_JOIN_BYTES};
use super::handshake::{HELLO_BYTES, Key, PROOF_BYTES, RootHandshake, Stranger};
use super::hub::{Action, Connection, Hub};
use super::interface::Listening;
use super::refusal::Process;
use super::{host, keep_alive};
use crate::config::Config;
use crate::error::{Error, Ranks, Result};
use crate::unique_id::UniqueId;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::process::{Resource, getrlimit};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a connection may take to prove itself and say who it is. An honest rank needs one round
/// trip; ten seconds allow for a host that is swamped by thousands of starting processes.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Most connections that have not proved themselves, however many files the process may have open. The
/// oldest goes when one more comes.
const MAX_STRANGERS: usize = 4096;
/// Connections that are accepted before those that are there are heard again: who is honest proves itself
/// long before it is the oldest.
const ACCEPTED_AT_ONCE: usize = 16;
/// How long to leave waiting connections alone when no descriptor is to be had for them.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long the root's process waits, when it leaves, for the other ranks to leave too. After it
/// they are told that the job has lost its monitor, not that it is broken.
const LEAVE_GRACE: Duration = Duration::from_secs(5);
/// How long the last bytes may take to be sent.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

const LISTENER: Token = Token(0);
const WAKER: Token = Token(1);
const FIRST_CONNECTION: usize = 2;

const ORDER_SERVE: u8 = 0;
const ORDER_LEAVE: u8 = 1;
const ORDER_DIE: u8 = 2;

/// The root of a job, in the process that made the id. Keep it until this process leaves the job.
///
/// Dropping it waits up to five seconds for the other ranks to leave, then tells those that remain
/// that it goes. During a panic it goes at once, and the others take it for dead.
pub struct Root {
    order: Arc<AtomicU8>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
    owner: u32,
}

impl Root {
    pub(crate) fn start(listening: Listening, id: &UniqueId, config: &Config) -> Result<Self> {
        let system = |source| Error::System { operation: "preparing the root's sockets", source };
        let poll = Poll::new().map_err(system)?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).map_err(system)?);
        let mut listener = TcpListener::from_std(listening.socket);
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE).map_err(system)?;
        let order = Arc::new(AtomicU8::new(ORDER_SERVE));
        let owner = std::process::id();
        let process = Process { host: host::name(), pid: owner };
        let mut server = Server {
            poll,
            listener,
            key: id.handshake_key(config),
            hub: Hub::new(process, env!("CARGO_PKG_VERSION").to_owned()),
            connections: HashMap::new(),
            next: FIRST_CONNECTION,
            unproved: VecDeque::new(),
            max_strangers: max_strangers(getrlimit(Resource::Nofile).current),
            strangers: Strangers::default(),
            resume_accepting: None,
            order: order.clone(),
            ended: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("ringsmith-root".into())
            .spawn(move || server.serve())
            .map_err(|source| Error::Thread { name: "root", source })?;
        Ok(Self { order, waker, thread: Some(thread), owner })
    }

    fn give_order(&self, order: u8) {
        self.order.store(order, Ordering::Release);
        // Fails only if the eventfd is gone, and then so is the thread.
        let _ = self.waker.wake();
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        // A forked child has no root thread, and its sockets are the parent's too.
        if std::process::id() != self.owner {
            return;
        }
        self.give_order(if std::thread::panicking() { ORDER_DIE } else { ORDER_LEAVE });
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(target: "ringsmith::bootstrap", "the root's thread panicked; this is a bug of Ringsmith");
        }
    }
}

impl std::fmt::Debug for Root {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Root").field("owner", &self.owner).finish_non_exhaustive()
    }
}

enum Stage {
    Hello,
    Proof(RootHandshake),
    /// Proved; its first frame says which rank it is.
    Proved,
    Joined,
}

struct Link {
    stream: TcpStream,
    peer: SocketAddr,
    stage: Stage,
    input: Vec<u8>,
    output: VecDeque<Arc<[u8]>>,
    /// How much of the first piece of `output` is sent.
    sent: usize,
    /// Close once `output` is empty; nothing is read any more.
    closing: bool,
    /// It waits in `Server::ended`.
    ended: bool,
}

/// Who failed the handshake, for the report on missing ranks.
#[derive(Default)]
struct Strangers {
    count: u64,
    last: Option<(SocketAddr, String)>,
    /// Why connections that wait cannot be accepted, while they cannot.
    starved: Option<String>,
}

impl Strangers {
    fn note(&mut self, peer: SocketAddr, why: String) {
        tracing::debug!(target: "ringsmith::bootstrap", "dropped the connection from {peer}: {why}");
        self.count += 1;
        self.last = Some((peer, why));
    }

    /// Notes that the system gives no more connections. True if that is news.
    fn starve(&mut self, error: &io::Error) -> bool {
        let text = format!(
            "the root's process can accept no more connections: {error}; raise its limit on open files (ulimit -n)"
        );
        self.starved.replace(text).is_none()
    }

    fn report(&self) -> Option<String> {
        if self.starved.is_some() {
            return self.starved.clone();
        }
        let (peer, why) = self.last.as_ref()?;
        let plural = if self.count == 1 { "connection" } else { "connections" };
        Some(format!(
            "{} {plural} failed the handshake, the last from {}: {why}",
            self.count,
            peer.ip().to_canonical()
        ))
    }
}

/// How many connections of strangers are kept by a process that may have so many files open: a quarter is
/// theirs, the rest is for the job.
fn max_strangers(files: Option<u64>) -> usize {
    let quarter = files.map_or(usize::MAX, |files| usize::try_from(files / 4).unwrap_or(usize::MAX));
    quarter.clamp(2 * ACCEPTED_AT_ONCE, MAX_STRANGERS)
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    key: Key,
    hub: Hub,
    connections: HashMap<Connection, Link>,
    next: Connection,
    /// Connections that have not said who they are, oldest first, with their deadlines.
    unproved: VecDeque<(Connection, Instant)>,
    /// How many of those there may be.
    max_strangers: usize,
    strangers: Strangers,
    resume_accepting: Option<Instant>,
    order: Arc<AtomicU8>,
    /// Connections that ended, with the reason, until `settle` has told the hub. Telling it at once
    /// would recurse through every connection of a network that is down.
    ended: Vec<(Connection, String)>,
}

impl Server {
    fn serve(&mut self) {
        let mut events = Events::with_capacity(1024);
        let mut leave_by = None;
        loop {
            let timeout = self.next_deadline(leave_by).map(|at| at.saturating_duration_since(Instant::now()));
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(target: "ringsmith::bootstrap", "the root cannot wait for its sockets: {error}");
                return;
            }
            let now = Instant::now();
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(now),
                    WAKER => {}
                    Token(connection) => {
                        self.receive(connection, now);
                        self.send(connection);
                    }
                }
            }
            self.tick(now);
            self.settle();
            match self.order.load(Ordering::Acquire) {
                ORDER_DIE => return,
                ORDER_LEAVE => {
                    let by = *leave_by.get_or_insert(now + LEAVE_GRACE);
                    if self.hub.is_idle() || now >= by {
                        return self.leave();
                    }
                }
                _ => {}
            }
        }
    }

    fn next_deadline(&self, leave_by: Option<Instant>) -> Option<Instant> {
        let stranger = self.unproved.front().map(|&(_, deadline)| deadline);
        [self.hub.deadline(), stranger, self.resume_accepting, leave_by].into_iter().flatten().min()
    }

    fn tick(&mut self, now: Instant) {
        while let Some(&(connection, deadline)) = self.unproved.front()
            && deadline <= now
        {
            self.unproved.pop_front();
            self.drop_stranger(connection, "it did not prove itself in time");
        }
        if self.resume_accepting.is_some_and(|at| at <= now) {
            self.resume_accepting = None;
            self.accept(now);
        }
        let mut actions = Vec::new();
        self.hub.tick(now, || self.strangers.report(), &mut actions);
        self.carry_out(actions);
    }

    fn accept(&mut self, now: Instant) {
        if self.resume_accepting.is_some() {
            return;
        }
        let mut accepted = 0;
        loop {
            if accepted == ACCEPTED_AT_ONCE {
                self.resume_accepting = Some(now);
                return;
            }
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    self.strangers.starved = None;
                    accepted += 1;
                    self.admit(stream, peer, now);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    // The other end gave up while it waited, or a signal came: the next one may do.
                    io::ErrorKind::Interrupted
                    | io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset => {}
                    // Those who proved nothing hold what the next one needs.
                    _ if !self.unproved.is_empty() => self.make_room(),
                    _ => {
                        if self.strangers.starve(&error) {
                            tracing::warn!(
                                target: "ringsmith::bootstrap",
                                "the root cannot accept connections for now: {error}; check the limit on open files (ulimit -n)"
                            );
                        }
                        self.resume_accepting = Some(now + ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
    }

    fn admit(&mut self, mut stream: TcpStream, peer: SocketAddr, now: Instant) {
        let connection = self.next;
        self.next += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = self.poll.registry().register(&mut stream, Token(connection), interest) {
            return self.strangers.note(peer, format!("the root could not watch it: {error}"));
        }
        self.keep_strangers(self.max_strangers - 1);
        keep_alive(&stream);
        let link = Link {
            stream,
            peer,
            stage: Stage::Hello,
            input: Vec::new(),
            output: VecDeque::new(),
            sent: 0,
            closing: false,
            ended: false,
        };
        self.connections.insert(connection, link);
        self.unproved.push_back((connection, now + HANDSHAKE_LIMIT));
        // Bytes that came with the connection raise no event of their own after this one.
        self.receive(connection, now);
        self.send(connection);
    }

    /// Keeps fewer strangers from now on: no more files can be had, and the rest of the process needs some
    /// too.
    fn make_room(&mut self) {
        self.max_strangers = (self.unproved.len() * 3 / 4).max(1);
        self.keep_strangers(self.max_strangers - 1);
    }

    /// Drops the oldest strangers until so many are left.
    fn keep_strangers(&mut self, most: usize) {
        while self.unproved.len() > most
            && let Some((oldest, _)) = self.unproved.pop_front()
        {
            self.drop_stranger(oldest, "it proved nothing while others came");
        }
    }

    fn drop_stranger(&mut self, connection: Connection, why: &str) {
        let is_joined = |link: &Link| matches!(link.stage, Stage::Joined);
        if self.connections.get(&connection).is_some_and(|link| !is_joined(link) && !link.closing)
            && let Some(link) = self.connections.remove(&connection)
        {
            self.strangers.note(link.peer, why.to_owned());
        }
    }

    /// Reads all there is and acts on it.
    fn receive(&mut self, connection: Connection, now: Instant) {
        let mut buffer = [0; 16 << 10];
        loop {
            let Some(link) = self.connections.get_mut(&connection) else { return };
            if link.closing || link.ended {
                return;
            }
            let why = match link.stream.read(&mut buffer) {
                Ok(0) => "its connection was closed".to_owned(),
                Ok(len) => {
                    link.input.extend_from_slice(&buffer[..len]);
                    match self.digest(connection, now) {
                        Ok(()) => continue,
                        Err(why) => why,
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => format!("its connection failed: {error}"),
            };
            return self.end(connection, why);
        }
    }

    /// Acts on the bytes that have come, as far as they are whole.
    fn digest(&mut self, connection: Connection, now: Instant) -> Result<(), String> {
        loop {
            let Some(link) = self.connections.get_mut(&connection) else { return Ok(()) };
            if link.closing || link.ended {
                return Ok(());
            }
            let refused = |stranger: Stranger| stranger.to_string();
            match &link.stage {
                Stage::Hello => {
                    let Some(hello) = link.input.first_chunk::<HELLO_BYTES>() else { return Ok(()) };
                    let (handshake, challenge) =
                        RootHandshake::challenge(&self.key, hello).map_err(refused)?;
                    link.input.drain(..HELLO_BYTES);
                    link.stage = Stage::Proof(handshake);
                    link.output.push_back(Arc::from(challenge.as_slice()));
                }
                Stage::Proof(handshake) => {
                    let Some(proof) = link.input.first_chunk::<PROOF_BYTES>() else { return Ok(()) };
                    handshake.check(&self.key, proof).map_err(refused)?;
                    link.input.drain(..PROOF_BYTES);
                    link.stage = Stage::Proved;
                }
                Stage::Proved | Stage::Joined => {
                    let joined = matches!(link.stage, Stage::Joined);
                    let max_bytes = if joined { MAX_FRAME_BYTES } else { MAX_JOIN_BYTES };
                    let decoded = frame::decode(&link.input, max_bytes);
                    let Some((frame, len)) = decoded.map_err(|e| format!("it broke the protocol: {e}"))?
                    else {
                        return Ok(());
                    };
                    link.input.drain(..len);
                    if link.input.is_empty() {
                        // A part may be a megabyte, and the next one may be long in coming.
                        link.input = Vec::new();
                    }
                    if !joined {
                        link.stage = Stage::Joined;
                        self.unproved.retain(|&(unproved, _)| unproved != connection);
                    }
                    self.give_to_hub(connection, frame, now);
                }
            }
        }
    }

    fn give_to_hub(&mut self, connection: Connection, frame: Frame, now: Instant) {
        let mut actions = Vec::new();
        self.hub.receive(connection, frame, now, &mut actions);
        self.carry_out(actions);
    }

    fn end(&mut self, connection: Connection, why: String) {
        if let Some(link) = self.connections.get_mut(&connection)
            && !link.ended
        {
            link.ended = true;
            self.ended.push((connection, why));
        }
    }

    /// Forgets the connections that ended and tells the hub.
    fn settle(&mut self) {
        while let Some((connection, why)) = self.ended.pop() {
            let Some(link) = self.connections.remove(&connection) else { continue };
            if matches!(link.stage, Stage::Joined) {
                let mut actions = Vec::new();
                self.hub.closed(connection, &why, &mut actions);
                self.carry_out(actions);
            } else {
                self.unproved.retain(|&(unproved, _)| unproved != connection);
                self.strangers.note(link.peer, why);
            }
        }
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut touched = Vec::new();
        for action in actions {
            match action {
                Action::Send(to, bytes) => {
                    if let Some(link) = self.connections.get_mut(&to) {
                        link.output.push_back(bytes);
                        touched.push(to);
                    }
                }
                Action::Close(to) => {
                    if let Some(link) = self.connections.get_mut(&to) {
                        link.closing = true;
                        touched.push(to);
                    }
                }
            }
        }
        for connection in touched {
            self.send(connection);
        }
    }

    /// Sends what the connection takes now; the rest goes when it becomes writable.
    fn send(&mut self, connection: Connection) {
        let Some(link) = self.connections.get_mut(&connection) else { return };
        if link.ended {
            return;
        }
        while let Some(piece) = link.output.front() {
            match link.stream.write(&piece[link.sent..]) {
                Ok(len) => {
                    link.sent += len;
                    if link.sent == piece.len() {
                        link.output.pop_front();
                        link.sent = 0;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let why = format!("its connection failed: {error}");
                    return self.end(connection, why);
                }
            }
        }
        if link.closing {
            self.connections.remove(&connection);
        }
    }

    fn leave(&mut self) {
        let present = self.hub.present();
        if !self.hub.is_idle() {
            tracing::warn!(
                target: "ringsmith::bootstrap",
                "the root leaves while rank {} still runs; from now on no rank's death is noticed",
                Ranks(&present)
            );
        }
        let mut actions = Vec::new();
        self.hub.leave(&mut actions);
        self.carry_out(actions);
        let by = Instant::now() + FLUSH_LIMIT;
        let mut events = Events::with_capacity(1024);
        while self.connections.values().any(|link| !link.output.is_empty() && !link.ended) {
            let left = by.saturating_duration_since(Instant::now());
            let polled = self.poll.poll(&mut events, Some(left));
            if left.is_zero() || polled.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
                return;
            }
            for event in &events {
                self.send(event.token().0);
            }
        }
    }
}
