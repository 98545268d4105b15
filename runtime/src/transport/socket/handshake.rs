//! Connecting the socket pairs of a rank: dialing some peers, being dialed by the others.
//!
//! One nonblocking loop does both, so that no rank waits for another in a circle. At most
//! `connect_concurrency` dials are under way at once. A dial that fails is repeated, at the peer's next
//! address, until the deadline. Whoever connects and does not prove the secret in time is dropped and
//! disturbs nobody. What is said is in [`talk`](super::talk).

use super::super::Alarm;
use super::super::error::LinkError;
use super::super::offer::{Offer, random};
use super::super::options::Options;
use super::listener::{self, Listener};
use super::talk::{
    HELLO_BYTES, Hello, PROOF_BYTES, REPLY_BYTES, Refusal, Secret, WELCOME, check_proof, frame_key, prove,
    reply,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, connect, getpeername, recv, send, sockopt};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longest that one attempt, or a stranger at the door, may take. Ours.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for reaching an address when the peer has others: some lead nowhere, in silence.
const REACH_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause before an address is tried again; doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Connections at the door that have not proved themselves. Ours; the oldest gives way.
const MOST_AT_THE_DOOR: usize = 512;

/// A connection between two ranks that know each other.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) peer: u32,
    /// Which of the pair's connections.
    pub(crate) index: u32,
    pub(crate) socket: OwnedFd,
    /// Where the peer is.
    pub(crate) address: String,
    /// Key of the frames' checksums.
    pub(crate) key: u64,
}

/// What connecting needs to know.
pub(crate) struct Task<'a> {
    pub(crate) rank: u32,
    pub(crate) offers: &'a [Offer],
    /// The peers to connect by sockets.
    pub(crate) peers: &'a [u32],
    pub(crate) options: &'a Options,
    pub(crate) listener: Option<&'a Listener>,
    pub(crate) alarm: &'a dyn Alarm,
}

/// Which of two ranks dials: such that every rank dials about half of its peers.
pub(crate) fn dialer(a: u32, b: u32) -> u32 {
    if (a ^ b) & 1 == 1 { a.min(b) } else { a.max(b) }
}

/// Connects all peers of the task.
pub(crate) fn connect_all(task: &Task<'_>) -> Result<Vec<Made>, LinkError> {
    let mut round = Round::new(task)?;
    while !round.is_done() {
        round.step()?;
    }
    Ok(round.made.into_values().collect())
}

/// A dial to one connection of one peer.
struct Dial {
    peer: u32,
    index: u32,
    addresses: Vec<SocketAddr>,
    attempts: usize,
    not_before: Instant,
    last: String,
}

impl Dial {
    fn address(&self) -> SocketAddr {
        self.addresses[self.attempts % self.addresses.len()]
    }
}

struct Round<'a> {
    task: &'a Task<'a>,
    secret: Secret,
    deadline: Instant,
    waiting: VecDeque<Dial>,
    dialing: Vec<(Dial, Talk)>,
    door: VecDeque<Talk>,
    made: BTreeMap<(u32, u32), Made>,
}

impl<'a> Round<'a> {
    fn new(task: &'a Task<'a>) -> Result<Self, LinkError> {
        let now = Instant::now();
        let own_host = &task.offers[task.rank as usize].host;
        let mut waiting = VecDeque::new();
        for index in 0..task.options.sockets_per_pair {
            for peer in task.peers.iter().copied().filter(|peer| dialer(task.rank, *peer) == task.rank) {
                let offer = &task.offers[peer as usize];
                let mut addresses = offer.addresses.clone();
                // Another host's loopback address leads to this host.
                if offer.host != *own_host {
                    addresses.sort_by_key(|address| address.ip().is_loopback());
                }
                let last = "not tried yet".to_owned();
                waiting.push_back(Dial { peer, index, addresses, attempts: 0, not_before: now, last });
            }
        }
        Ok(Self {
            task,
            secret: Secret::new(task.offers),
            deadline: now + task.options.connect_timeout,
            waiting,
            dialing: Vec::new(),
            door: VecDeque::new(),
            made: BTreeMap::new(),
        })
    }

    fn is_done(&self) -> bool {
        self.made.len() == self.task.peers.len() * self.task.options.sockets_per_pair as usize
    }

    fn step(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        let rank = self.task.rank;
        if self.task.alarm.raised() {
            return Err(LinkError::Aborted { rank });
        }
        if now >= self.deadline {
            return Err(self.late());
        }
        self.start_dials(now);
        self.wait(now);
        self.accept(now)?;
        self.advance_door(now);
        self.advance_dials(now);
        Ok(())
    }

    fn start_dials(&mut self, now: Instant) {
        for _ in 0..self.waiting.len() {
            if self.dialing.len() >= self.task.options.connect_concurrency as usize {
                return;
            }
            let Some(mut dial) = self.waiting.pop_front() else { return };
            if dial.not_before > now {
                self.waiting.push_back(dial);
                continue;
            }
            match Talk::dial(&dial, self.task, now) {
                Ok(talk) => self.dialing.push((dial, talk)),
                Err(why) => {
                    postpone(&mut dial, why, now);
                    self.waiting.push_back(dial);
                }
            }
        }
    }

    /// Sleeps until a socket is ready, a pause is over, or for a tenth of a second.
    fn wait(&self, now: Instant) {
        let mut fds: Vec<PollFd<'_>> = Vec::new();
        for socket in self.task.listener.iter().flat_map(|listener| listener.sockets()) {
            fds.push(PollFd::from_borrowed_fd(socket, PollFlags::IN));
        }
        let talks = self.dialing.iter().map(|(_, talk)| talk).chain(&self.door);
        fds.extend(talks.map(|talk| PollFd::from_borrowed_fd(talk.fd(), talk.interest())));
        let next = self.waiting.iter().map(|dial| dial.not_before).min();
        let pause = next.map_or(Duration::MAX, |next| next.saturating_duration_since(now));
        let pause = pause.clamp(Duration::from_millis(1), Duration::from_millis(100));
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() };
        // Whatever poll says, every talk is looked at again.
        let _ = poll(&mut fds, Some(&timeout));
    }

    fn accept(&mut self, now: Instant) -> Result<(), LinkError> {
        let Some(listener) = self.task.listener else { return Ok(()) };
        while let Some(socket) = listener.accept() {
            let nonce = random(self.task.rank)?;
            if self.door.len() == MOST_AT_THE_DOOR {
                self.door.pop_front();
            }
            self.door.push_back(Talk::answer(socket, nonce, now));
        }
        Ok(())
    }

    fn advance_door(&mut self, now: Instant) {
        for _ in 0..self.door.len() {
            let Some(mut talk) = self.door.pop_front() else { return };
            match talk.advance(&self.secret, |hello| self.is_expected(hello), now) {
                Ok(None) => self.door.push_back(talk),
                Ok(Some(key)) => {
                    let hello = Hello::decode(&talk.hello).expect("decoded before");
                    self.keep(hello.from, hello.index, talk, key);
                }
                Err(why) => {
                    let (rank, address) = (self.task.rank, &talk.address);
                    tracing::debug!(target: "ringsmith::net", rank, %address, %why, "dropped a connection that proved nothing");
                }
            }
        }
    }

    fn is_expected(&self, hello: &Hello) -> bool {
        hello.to == self.task.rank
            && self.task.peers.contains(&hello.from)
            && dialer(hello.from, hello.to) == hello.from
            && hello.index < self.task.options.sockets_per_pair
    }

    fn advance_dials(&mut self, now: Instant) {
        for (mut dial, mut talk) in std::mem::take(&mut self.dialing) {
            match talk.advance(&self.secret, |_| true, now) {
                Ok(None) => self.dialing.push((dial, talk)),
                Ok(Some(key)) => self.keep(dial.peer, dial.index, talk, key),
                Err(why) => {
                    postpone(&mut dial, why, now);
                    self.waiting.push_back(dial);
                }
            }
        }
    }

    /// A peer that dials again has given up the connection it had: the last one counts.
    fn keep(&mut self, peer: u32, index: u32, talk: Talk, key: u64) {
        let made = Made { peer, index, socket: talk.socket, address: talk.address, key };
        self.made.insert((peer, index), made);
    }

    /// The error at the deadline: the first connection that is missing.
    fn late(&self) -> LinkError {
        let rank = self.task.rank;
        let after = self.task.options.connect_timeout;
        let pairs = self.task.peers.iter();
        let missing = pairs
            .flat_map(|peer| (0..self.task.options.sockets_per_pair).map(|index| (*peer, index)))
            .filter(|pair| !self.made.contains_key(pair))
            .collect::<Vec<_>>();
        let Some(&(peer, index)) = missing.first() else { return LinkError::Aborted { rank } };
        let tried = |dial: &Dial| dial.addresses[dial.attempts.saturating_sub(1) % dial.addresses.len()];
        let is_it = |dial: &Dial| (dial.peer, dial.index) == (peer, index);
        let dialing = self.dialing.iter().find(|(dial, _)| is_it(dial));
        let (address, state) = if let Some((dial, talk)) = dialing {
            let attempt = dial.attempts + 1;
            (talk.address.clone(), format!("attempt {attempt}, {}; before: {}", talk.stage, dial.last))
        } else if let Some(dial) = self.waiting.iter().find(|dial| is_it(dial)) {
            (tried(dial).to_string(), format!("{} attempts, last: {}", dial.attempts, dial.last))
        } else {
            let here = &self.task.offers[rank as usize].addresses;
            let here = here.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
            (here, "it never dialed this rank's address and proved itself".to_owned())
        };
        let others = missing.len() - 1;
        let state = if others == 0 { state } else { format!("{state}; {others} more are missing") };
        LinkError::Deadline { rank, peer, address, state, after }
    }
}

fn postpone(dial: &mut Dial, why: String, now: Instant) {
    dial.attempts += 1;
    // The first round over all addresses costs no pause.
    let rounds = (dial.attempts / dial.addresses.len()).min(16) as u32;
    let pause = if rounds == 0 { Duration::ZERO } else { FIRST_PAUSE * (1 << (rounds - 1)) };
    dial.not_before = now + pause.min(LONGEST_PAUSE);
    dial.last = why;
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    Hello,
    Reply,
    Proof,
    Welcome,
    /// Only the rest of what is to be sent.
    Sent,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connecting => "waiting for the network",
            Self::Hello | Self::Reply | Self::Proof | Self::Welcome => "connected, waiting for its words",
            Self::Sent => "connected, sending the last word",
        })
    }
}

/// A connection before it is made, on either side.
struct Talk {
    socket: OwnedFd,
    address: String,
    stage: Stage,
    nonce: [u8; 32],
    hello: [u8; HELLO_BYTES],
    reply: [u8; REPLY_BYTES],
    output: Vec<u8>,
    input: Vec<u8>,
    since: Instant,
    /// Whether the peer has other addresses to try.
    has_others: bool,
}

impl Talk {
    fn dial(dial: &Dial, task: &Task<'_>, now: Instant) -> Result<Self, String> {
        let address = dial.address();
        let failed = |what: &str, errno: Errno| format!("{what} {address}: {errno}");
        let socket = listener::open(address, task.options).map_err(|errno| failed("no socket for", errno))?;
        match connect(&socket, &address) {
            // A signal does not stop a nonblocking connect.
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(errno) => return Err(failed("cannot reach", errno)),
        }
        let nonce = random(task.rank).map_err(|error| error.to_string())?;
        let hello = Hello { from: task.rank, to: dial.peer, index: dial.index, nonce }.encode();
        let talk = Self::new(socket, address.to_string(), Stage::Connecting, nonce, hello, now);
        Ok(Self { has_others: dial.addresses.len() > 1, ..talk })
    }

    fn answer(socket: OwnedFd, nonce: [u8; 32], now: Instant) -> Self {
        let address = getpeername(&socket).ok().flatten();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        let address = address.map_or_else(|| "a closed socket".to_owned(), |address| address.to_string());
        Self::new(socket, address, Stage::Hello, nonce, [0; HELLO_BYTES], now)
    }

    fn new(
        socket: OwnedFd,
        address: String,
        stage: Stage,
        nonce: [u8; 32],
        hello: [u8; HELLO_BYTES],
        since: Instant,
    ) -> Self {
        let (output, input) = (Vec::new(), Vec::with_capacity(REPLY_BYTES));
        Self {
            socket,
            address,
            stage,
            nonce,
            hello,
            reply: [0; REPLY_BYTES],
            output,
            input,
            since,
            has_others: false,
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn interest(&self) -> PollFlags {
        match self.stage {
            Stage::Connecting | Stage::Sent => PollFlags::OUT,
            _ if self.output.is_empty() => PollFlags::IN,
            _ => PollFlags::IN | PollFlags::OUT,
        }
    }

    /// Goes as far as it can without waiting. Returns the frames' key once the connection is made.
    fn advance(
        &mut self,
        secret: &Secret,
        is_expected: impl Fn(&Hello) -> bool,
        now: Instant,
    ) -> Result<Option<u64>, String> {
        loop {
            let hurry = self.stage == Stage::Connecting && self.has_others;
            let limit = if hurry { REACH_TIMEOUT } else { ATTEMPT_TIMEOUT };
            if now.saturating_duration_since(self.since) > limit {
                return Err(format!("no answer from {} within {} s", self.address, limit.as_secs()));
            }
            if self.stage == Stage::Connecting {
                match self.connected() {
                    Ok(true) => {
                        self.output.extend_from_slice(&self.hello);
                        self.stage = Stage::Reply;
                    }
                    Ok(false) => return Ok(None),
                    Err(errno) => return Err(format!("cannot reach {}: {errno}", self.address)),
                }
            }
            let sent = match self.send() {
                Ok(sent) => sent,
                Err(errno) => return Err(format!("{} hung up during the handshake: {errno}", self.address)),
            };
            if self.stage == Stage::Sent {
                return Ok(sent.then(|| frame_key(secret, &self.hello, &self.reply)));
            }
            if !self.receive()? {
                return Ok(None);
            }
            match self.understand(secret, &is_expected) {
                Ok(false) => {}
                Ok(true) => return Ok(Some(frame_key(secret, &self.hello, &self.reply))),
                Err(refusal) => return Err(format!("{} was refused: {refusal}", self.address)),
            }
        }
    }

    fn connected(&self) -> Result<bool, Errno> {
        match sockopt::socket_error(&self.socket)? {
            Err(errno) => Err(errno),
            // No error yet, and no peer yet: still under way.
            Ok(()) => match getpeername(&self.socket) {
                Ok(Some(_)) => Ok(true),
                Ok(None) | Err(Errno::NOTCONN) => Ok(false),
                Err(errno) => Err(errno),
            },
        }
    }

    /// Sends what it can; true if nothing is left.
    fn send(&mut self) -> Result<bool, Errno> {
        while !self.output.is_empty() {
            match send(&self.socket, &self.output, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(bytes) => drop(self.output.drain(..bytes)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }

    /// Receives no more than the word it waits for; true if that is complete.
    fn receive(&mut self) -> Result<bool, String> {
        let wanted = match self.stage {
            Stage::Hello => HELLO_BYTES,
            Stage::Reply => REPLY_BYTES,
            Stage::Proof => PROOF_BYTES,
            Stage::Welcome => WELCOME.len(),
            Stage::Connecting | Stage::Sent => return Ok(false),
        };
        while self.input.len() < wanted {
            let mut bytes = [0; REPLY_BYTES];
            let rest = wanted - self.input.len();
            match recv(&self.socket, &mut bytes[..rest], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(format!("{} hung up during the handshake", self.address)),
                Ok((count, _)) => self.input.extend_from_slice(&bytes[..count.min(rest)]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(format!("{} hung up during the handshake: {errno}", self.address)),
            }
        }
        Ok(true)
    }

    /// Takes the complete word and prepares the answer; true if the connection is made.
    fn understand(&mut self, secret: &Secret, is_expected: impl Fn(&Hello) -> bool) -> Result<bool, Refusal> {
        let input = std::mem::take(&mut self.input);
        match self.stage {
            Stage::Hello => {
                self.hello = input.try_into().expect("a whole hello");
                if !is_expected(&Hello::decode(&self.hello)?) {
                    return Err(Refusal::Secret);
                }
                self.reply = reply(secret, &self.hello, self.nonce);
                self.output.extend_from_slice(&self.reply);
                self.stage = Stage::Proof;
            }
            Stage::Reply => {
                self.reply = input.try_into().expect("a whole reply");
                self.output.extend_from_slice(&prove(secret, &self.hello, &self.reply)?);
                self.stage = Stage::Welcome;
            }
            Stage::Proof => {
                let proof: [u8; PROOF_BYTES] = input.try_into().expect("a whole proof");
                check_proof(secret, &self.hello, &self.reply, &proof)?;
                self.output.extend_from_slice(&WELCOME);
                self.stage = Stage::Sent;
            }
            Stage::Welcome if input == WELCOME => return Ok(true),
            Stage::Welcome => return Err(Refusal::Magic),
            Stage::Connecting | Stage::Sent => unreachable!("nothing is read in these stages"),
        }
        Ok(false)
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;
