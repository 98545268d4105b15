//! What an algorithm sends, as the cost model sees it: who talks to whom, in which order, in parts of
//! the data. No bytes, no protocols, no machine.
//!
//! Each algorithm's file describes its program's traffic in these words; a test compares the two put by
//! put, so that a program and its price cannot drift apart.

/// For whom a program is expanded, or priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many ranks there are.
    pub ranks: u32,
    /// How many of them each host has, side by side; 1 where hosts differ.
    pub per_node: u32,
    /// The position of the root; 0 where there is none.
    pub root: u32,
}

/// Ranks of which nothing more is known: each is a host, and the first is the root.
impl From<u32> for Shape {
    fn from(ranks: u32) -> Self {
        Self { ranks, per_node: 1, root: 0 }
    }
}

/// What the receiver does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Landing {
    /// Stores it, or passes it on.
    Copy,
    /// Adds it to something.
    Reduce,
    /// Nothing: the message is a signal without payload.
    Signal,
}

/// Messages from one rank to another within a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// How many chunks; each is a message of its own.
    pub chunks: u32,
    /// What becomes of them.
    pub landing: Landing,
}

/// Messages that travel at the same time. A round starts when the one before has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    /// How many times in a row.
    pub repeat: u32,
    /// The messages of one time.
    pub messages: Vec<Message>,
}

impl Round {
    /// A round that happens once.
    pub fn once(messages: impl IntoIterator<Item = Message>) -> Self {
        Self::times(1, messages)
    }

    /// A round that happens `repeat` times.
    pub fn times(repeat: u32, messages: impl IntoIterator<Item = Message>) -> Self {
        Self { repeat, messages: messages.into_iter().collect() }
    }
}

/// How the tiles of a large chunk follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// A lane waits for what comes back before it starts the next tile: each tile takes all rounds.
    Stepwise,
    /// Data flows one way: tiles fill the rounds like a pipe, and only the busiest rank limits them.
    Pipelined,
}

/// What an algorithm sends for some number of ranks, with one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// How many chunks the larger side is cut into.
    pub chunks: u32,
    /// Rounds, in order.
    pub rounds: Vec<Round>,
    /// How tiles follow each other.
    pub flow: Flow,
}

impl Traffic {
    /// How many messages there are, and the most from one rank to another.
    pub fn count(&self) -> (u64, u64) {
        let mut pairs: Vec<(u32, u32, u64)> = Vec::new();
        for round in &self.rounds {
            let times = u64::from(round.repeat);
            pairs.extend(round.messages.iter().map(|m| (m.from, m.to, u64::from(m.chunks) * times)));
        }
        pairs.sort_unstable();
        let per_pair = pairs.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1));
        let most = per_pair.map(|pair| pair.iter().map(|m| m.2).sum()).max().unwrap_or(0);
        (pairs.iter().map(|m| m.2).sum(), most)
    }
}

/// One chunk from `from` to `to`.
pub(super) fn message(from: u32, to: u32, landing: Landing) -> Message {
    Message { from, to, chunks: 1, landing }
}

/// Every rank sends one chunk to the next.
pub(super) fn ring(ranks: u32, landing: Landing) -> Vec<Message> {
    (0..ranks).map(|r| message(r, (r + 1) % ranks, landing)).collect()
}

/// Every rank sends one chunk to every other.
pub(super) fn mesh(ranks: u32, landing: Landing) -> Vec<Message> {
    let pairs = (0..ranks).flat_map(|from| (1..ranks).map(move |k| (from, (from + k) % ranks)));
    pairs.map(|(from, to)| message(from, to, landing)).collect()
}

/// The rank at a position that counts from the root.
pub(super) fn from_root(root: u32, position: u32, ranks: u32) -> u32 {
    ((u64::from(root) + u64::from(position)) % u64::from(ranks)) as u32
}

/// The logarithm, rounded up; of 1 and 0 it is 0.
pub(super) fn ceil_log2(x: u32) -> u32 {
    x.max(1).next_power_of_two().ilog2()
}

/// The edges of the binomial tree over `ranks` positions by level: (parent, child) pairs whose child
/// has its lowest one bit at `level`.
pub(super) fn binomial_level(ranks: u32, level: u32) -> impl Iterator<Item = (u32, u32)> {
    let bit = 1 << level;
    (bit..ranks).step_by(2 * bit as usize).map(move |child| (child - bit, child))
}

/// How many positions the family of `v` in a binomial tree over `ranks` positions has, itself included.
pub(super) fn family(ranks: u32, v: u32) -> u32 {
    if v == 0 { ranks } else { (ranks - v).min(1 << v.trailing_zeros()) }
}

/// The ranks of recursive doubling where their number is no power of two: the first `pairs` pairs
/// act as one node each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folded {
    /// Number of nodes, a power of two.
    pub(super) nodes: u32,
    /// Number of pairs.
    pub(super) pairs: u32,
}

impl Folded {
    pub(super) fn new(ranks: u32) -> Self {
        let nodes = 1 << ranks.ilog2();
        Self { nodes, pairs: ranks - nodes }
    }

    pub(super) fn levels(self) -> u32 {
        self.nodes.ilog2()
    }

    /// The rank that acts for a node.
    pub(super) fn rank(self, node: u32) -> u32 {
        node + node.min(self.pairs)
    }

    /// Every node exchanges `chunks` chunks with the one that differs in bit `level`.
    pub(super) fn swap(self, level: u32, chunks: u32, landing: Landing) -> Round {
        Round::once((0..self.nodes).map(|v| Message {
            from: self.rank(v),
            to: self.rank(v ^ 1 << level),
            chunks,
            landing,
        }))
    }

    /// The second of each pair hands `chunks` chunks to the first; nothing if there are no pairs.
    pub(super) fn fold(self, chunks: u32) -> Option<Round> {
        (self.pairs > 0).then(|| {
            Round::once((0..self.pairs).map(|i| Message {
                from: 2 * i + 1,
                to: 2 * i,
                chunks,
                landing: Landing::Reduce,
            }))
        })
    }

    /// The first of each pair hands `chunks` chunks to the second; nothing if there are no pairs.
    pub(super) fn unfold(self, chunks: u32) -> Option<Round> {
        (self.pairs > 0).then(|| {
            Round::once((0..self.pairs).map(|i| Message {
                from: 2 * i,
                to: 2 * i + 1,
                chunks,
                landing: Landing::Copy,
            }))
        })
    }
}
