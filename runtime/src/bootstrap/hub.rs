//! The hub: what the root decides. Pure: frames and times in, frames and closings out.
//!
//! It sits between [`super::root`], which moves bytes and knows no ranks, and nothing: no sockets, no
//! threads, no clock of its own, so every refusal can be tested by calling it. A job is `Joining`
//! until the last rank came, then `Running`; it is `Failed` once something went wrong that concerns
//! everybody, and then tells latecomers the same.

use super::frame::{Frame, Join, MAX_RANKS, encode};
use super::refusal::{Process, Refusal};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most bytes of one gathering, all parts together. The root keeps them until the last part came.
pub(crate) const MAX_GATHER_BYTES: u64 = 1 << 30;

/// A connection that passed the handshake, as the root numbers them.
pub(crate) type Connection = usize;

/// What the root has to do.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send these bytes.
    Send(Connection, Arc<[u8]>),
    /// Close, once everything before is sent.
    Close(Connection),
}

#[derive(Debug, PartialEq)]
enum State {
    Joining,
    Running,
    Failed(Refusal),
}

#[derive(Debug)]
enum Life {
    Here(Connection),
    Left,
    Lost,
}

#[derive(Debug)]
struct Member {
    life: Life,
    process: Process,
    host_key: [u8; 16],
}

#[derive(Debug)]
struct Gathering {
    tag: String,
    first_rank: u32,
    parts: Vec<Option<Vec<u8>>>,
    parts_here: usize,
    bytes: u64,
    deadline: Option<Deadline>,
}

/// A moment, and how long had been waited when it came.
#[derive(Clone, Copy, Debug)]
struct Deadline {
    at: Instant,
    waited_ms: u64,
}

impl Deadline {
    fn new(now: Instant, timeout_ms: u64) -> Option<Self> {
        // A peer may say anything. Beyond a year nobody waits, and clocks may overflow.
        const MAX_MS: u64 = 365 * 86_400_000;
        let at = now.checked_add(Duration::from_millis(timeout_ms))?;
        (timeout_ms <= MAX_MS).then_some(Self { at, waited_ms: timeout_ms })
    }

    fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// The root's memory of one job.
#[derive(Debug)]
pub(crate) struct Hub {
    root: Process,
    version: String,
    state: State,
    /// Set by the first rank: itself and the number of ranks it gave.
    first: Option<(u32, u32)>,
    /// By rank; as long as the number of ranks.
    members: Vec<Option<Member>>,
    joined: usize,
    /// How many have left in good order.
    left: usize,
    ranks: HashMap<Connection, u32>,
    join_deadline: Option<Deadline>,
    gathering: Option<Gathering>,
    /// Number of the gathering that is open or will be next.
    sequence: u64,
    /// The last gathering that failed, for ranks that come to it late.
    failed_gathering: Option<(u64, Refusal)>,
    /// A rank was lost or aborted while the job ran.
    broken: bool,
}

impl Hub {
    pub(crate) fn new(root: Process, version: String) -> Self {
        Self {
            root,
            version,
            state: State::Joining,
            first: None,
            members: Vec::new(),
            joined: 0,
            left: 0,
            ranks: HashMap::new(),
            join_deadline: None,
            gathering: None,
            sequence: 0,
            failed_gathering: None,
            broken: false,
        }
    }

    /// Takes in a frame of a connection. The first must be a `Join`.
    pub(crate) fn receive(&mut self, from: Connection, frame: Frame, now: Instant, out: &mut Vec<Action>) {
        let rank = self.ranks.get(&from).copied();
        match (rank, frame) {
            (None, Frame::Join(join)) => self.join(from, join, now, out),
            (Some(rank), Frame::Part { sequence, timeout_ms, tag, bytes }) => {
                let deadline = Deadline::new(now, timeout_ms);
                self.part(rank, from, sequence, deadline, tag, bytes, out);
            }
            (Some(rank), Frame::Goodbye) => self.goodbye(rank, from, out),
            (Some(rank), Frame::Abort { reason }) => self.abort(rank, reason, out),
            (None, _) => out.push(Action::Close(from)),
            (Some(_), _) => self.violation(from, out),
        }
    }

    fn join(&mut self, from: Connection, join: Join, now: Instant, out: &mut Vec<Action>) {
        let Join { rank, world, timeout_ms, process, host_key, version } = join;
        match &self.state {
            State::Joining => {}
            State::Running => {
                let world = self.members.len() as u32;
                return refuse(from, Refusal::Finished { rank, world }, out);
            }
            State::Failed(refusal) => return refuse(from, refusal.clone(), out),
        }
        let fatal = self.why_not(rank, world, &process, version);
        if let Some(refusal) = fatal {
            refuse(from, refusal.clone(), out);
            return self.fail(refusal, out);
        }
        if self.first.is_none() {
            self.first = Some((rank, world));
            self.members.resize_with(world as usize, || None);
        }
        self.join_deadline = Deadline::earlier(self.join_deadline, Deadline::new(now, timeout_ms));
        self.members[rank as usize] = Some(Member { life: Life::Here(from), process, host_key });
        self.ranks.insert(from, rank);
        self.joined += 1;
        if self.joined == self.members.len() {
            self.welcome(out);
        }
    }

    /// What is wrong with a rank that wants to join, if anything is.
    fn why_not(&self, rank: u32, world: u32, process: &Process, version: String) -> Option<Refusal> {
        if version != self.version {
            return Some(Refusal::Version { rank, theirs: version, ours: self.version.clone() });
        }
        if rank >= world || world > MAX_RANKS {
            return Some(Refusal::RankOutOfRange { rank, world, process: process.clone() });
        }
        let (first_rank, first_world) = self.first?;
        if world != first_world {
            let process = process.clone();
            return Some(Refusal::WorldMismatch { rank, world, process, first_world, first_rank });
        }
        let first = self.members[rank as usize].as_ref()?;
        Some(Refusal::DuplicateRank { rank, first: first.process.clone(), second: process.clone() })
    }

    fn welcome(&mut self, out: &mut Vec<Action>) {
        self.state = State::Running;
        self.join_deadline = None;
        let mut bytes = Vec::new();
        for (rank, member) in (0..).zip(&self.members) {
            let member = member.as_ref().expect("every rank has joined");
            encode(
                &Frame::Member { rank, process: member.process.clone(), host_key: member.host_key },
                &mut bytes,
            );
        }
        encode(&Frame::Welcome { world: self.members.len() as u32, root: self.root.clone() }, &mut bytes);
        self.send_all(bytes.into(), None, out);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one frame, taken apart by `receive`")]
    fn part(
        &mut self,
        rank: u32,
        from: Connection,
        sequence: u64,
        deadline: Option<Deadline>,
        tag: String,
        bytes: Vec<u8>,
        out: &mut Vec<Action>,
    ) {
        if self.state != State::Running || self.broken {
            // The failure is on its way to this rank.
            return;
        }
        if let Some((failed, refusal)) = &self.failed_gathering
            && *failed == sequence
        {
            let frame = Frame::GatherFailed { sequence, refusal: refusal.clone() };
            return out.push(Action::Send(from, bytes_of(&frame)));
        }
        if sequence != self.sequence {
            return self.violation(from, out);
        }
        let world = self.members.len();
        let gathering = self.gathering.get_or_insert_with(|| Gathering {
            tag: tag.clone(),
            first_rank: rank,
            parts: vec![None; world],
            parts_here: 0,
            bytes: 0,
            deadline: None,
        });
        if gathering.parts[rank as usize].is_some() {
            return self.violation(from, out);
        }
        gathering.bytes += bytes.len() as u64;
        gathering.parts[rank as usize] = Some(bytes);
        gathering.parts_here += 1;
        gathering.deadline = Deadline::earlier(gathering.deadline, deadline);
        if gathering.tag != tag {
            let first_tag = gathering.tag.clone();
            let refusal = Refusal::TagMismatch { rank, tag, first_rank: gathering.first_rank, first_tag };
            self.fail_gathering(refusal, out);
        } else if gathering.bytes > MAX_GATHER_BYTES {
            self.fail_gathering(Refusal::TooLarge { rank, max_bytes: MAX_GATHER_BYTES }, out);
        } else if let Some(refusal) = self.first_gone() {
            self.fail_gathering(refusal, out);
        } else {
            self.finish_gathering(out);
        }
    }

    /// The first rank that has not given its part and cannot any more.
    fn first_gone(&self) -> Option<Refusal> {
        // Looking through all ranks at each part would be quadratic, and mostly for nothing.
        if self.left == 0 {
            return None;
        }
        let parts = &self.gathering.as_ref()?.parts;
        (0..).zip(self.members.iter().zip(parts)).find_map(|(rank, pair)| match pair {
            (Some(Member { life: Life::Left, process, .. }), None) => {
                Some(Refusal::Left { rank, process: process.clone() })
            }
            _ => None,
        })
    }

    fn finish_gathering(&mut self, out: &mut Vec<Action>) {
        let Some(gathering) = self.gathering.take_if(|g| g.parts_here == g.parts.len()) else { return };
        let sequence = self.sequence;
        self.sequence += 1;
        let mut bytes = Vec::with_capacity(gathering.bytes as usize + 32 * gathering.parts.len());
        for (rank, part) in (0..).zip(gathering.parts) {
            let part = part.expect("every part is here");
            encode(&Frame::Gathered { sequence, rank, bytes: part }, &mut bytes);
        }
        encode(&Frame::GatherDone { sequence }, &mut bytes);
        self.send_all(bytes.into(), None, out);
    }

    /// Tells the ranks that gave a part; the others learn it when they give theirs.
    fn fail_gathering(&mut self, refusal: Refusal, out: &mut Vec<Action>) {
        let Some(gathering) = self.gathering.take() else { return };
        let frame = Frame::GatherFailed { sequence: self.sequence, refusal: refusal.clone() };
        let bytes = bytes_of(&frame);
        for (member, part) in self.members.iter().zip(&gathering.parts) {
            if let (Some(Member { life: Life::Here(to), .. }), Some(_)) = (member, part) {
                out.push(Action::Send(*to, bytes.clone()));
            }
        }
        self.failed_gathering = Some((self.sequence, refusal));
        self.sequence += 1;
    }

    fn goodbye(&mut self, rank: u32, from: Connection, out: &mut Vec<Action>) {
        self.ranks.remove(&from);
        out.push(Action::Close(from));
        self.left += 1;
        let Some(process) = self.end(rank, Life::Left) else { return };
        match self.state {
            State::Joining => self.fail(Refusal::Left { rank, process }, out),
            State::Running => {
                let missing_its_part =
                    self.gathering.as_ref().is_some_and(|gathering| gathering.parts[rank as usize].is_none());
                if missing_its_part {
                    self.fail_gathering(Refusal::Left { rank, process }, out);
                }
            }
            State::Failed(_) => {}
        }
    }

    /// A connection ended without a goodbye.
    pub(crate) fn closed(&mut self, from: Connection, detail: &str, out: &mut Vec<Action>) {
        let Some(rank) = self.ranks.remove(&from) else { return };
        let Some(process) = self.end(rank, Life::Lost) else { return };
        let detail = detail.to_owned();
        match self.state {
            State::Joining => self.fail(Refusal::Lost { rank, process, detail }, out),
            State::Running => {
                self.break_with(&Frame::Lost { rank, process, detail }, None, out);
            }
            State::Failed(_) => {}
        }
    }

    fn abort(&mut self, rank: u32, reason: String, out: &mut Vec<Action>) {
        self.break_with(&Frame::Aborted { rank, reason }, Some(rank), out);
    }

    /// The communicator is broken for good, and every gathering with it. Only the first reason is told:
    /// when a network goes down, telling each loss would be quadratic, and nobody could use it.
    fn break_with(&mut self, frame: &Frame, except: Option<u32>, out: &mut Vec<Action>) {
        self.gathering = None;
        if !std::mem::replace(&mut self.broken, true) {
            self.broadcast(frame, except, out);
        }
    }

    fn violation(&mut self, from: Connection, out: &mut Vec<Action>) {
        self.closed(from, "it sent what the protocol does not allow", out);
        out.push(Action::Close(from));
    }

    fn end(&mut self, rank: u32, life: Life) -> Option<Process> {
        let member = self.members.get_mut(rank as usize)?.as_mut()?;
        member.life = life;
        Some(member.process.clone())
    }

    /// Gives up on the job while it comes together.
    fn fail(&mut self, refusal: Refusal, out: &mut Vec<Action>) {
        self.broadcast(&Frame::Refused(refusal.clone()), None, out);
        out.extend(self.ranks.drain().map(|(connection, _)| Action::Close(connection)));
        self.join_deadline = None;
        self.state = State::Failed(refusal);
    }

    /// When [`Hub::tick`] has to be called, if at all.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let gathering = self.gathering.as_ref().and_then(|gathering| gathering.deadline);
        Deadline::earlier(self.join_deadline, gathering).map(|deadline| deadline.at)
    }

    /// Gives up on what is overdue. `strangers` says who failed the handshake meanwhile.
    pub(crate) fn tick(
        &mut self,
        now: Instant,
        strangers: impl Fn() -> Option<String>,
        out: &mut Vec<Action>,
    ) {
        let due = |deadline: Option<Deadline>| deadline.filter(|deadline| deadline.at <= now);
        if let Some(deadline) = due(self.join_deadline) {
            let missing = missing(self.members.iter().map(Option::is_some));
            self.fail(
                Refusal::Missing { missing, waited_ms: deadline.waited_ms, strangers: strangers() },
                out,
            );
        }
        let overdue = self.gathering.as_ref().and_then(|g| due(g.deadline).map(|d| (d, &g.parts)));
        if let Some((deadline, parts)) = overdue {
            let missing = missing(parts.iter().map(Option::is_some));
            self.fail_gathering(
                Refusal::Missing { missing, waited_ms: deadline.waited_ms, strangers: None },
                out,
            );
        }
    }

    /// Whether nobody needs the root for a job that runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.ranks.is_empty() || self.broken || self.state != State::Running
    }

    /// The ranks that are still there.
    pub(crate) fn present(&self) -> Vec<u32> {
        let mut ranks: Vec<u32> = self.ranks.values().copied().collect();
        ranks.sort_unstable();
        ranks
    }

    /// The root ends in good order.
    pub(crate) fn leave(&mut self, out: &mut Vec<Action>) {
        match self.state {
            State::Joining => self.fail(Refusal::ShuttingDown, out),
            State::Running => self.broadcast(&Frame::RootLeaving, None, out),
            State::Failed(_) => {}
        }
    }

    fn broadcast(&self, frame: &Frame, except: Option<u32>, out: &mut Vec<Action>) {
        self.send_all(bytes_of(frame), except, out);
    }

    fn send_all(&self, bytes: Arc<[u8]>, except: Option<u32>, out: &mut Vec<Action>) {
        for (rank, member) in (0..).zip(&self.members) {
            if let Some(Member { life: Life::Here(to), .. }) = member
                && except != Some(rank)
            {
                out.push(Action::Send(*to, bytes.clone()));
            }
        }
    }
}

fn missing(here: impl Iterator<Item = bool>) -> Vec<u32> {
    (0..).zip(here).filter(|&(_, here)| !here).map(|(rank, _)| rank).collect()
}

fn refuse(to: Connection, refusal: Refusal, out: &mut Vec<Action>) {
    out.push(Action::Send(to, bytes_of(&Frame::Refused(refusal))));
    out.push(Action::Close(to));
}

fn bytes_of(frame: &Frame) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes);
    bytes.into()
}

#[cfg(test)]
mod tests;
