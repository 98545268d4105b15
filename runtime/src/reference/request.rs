//! One call of a collective: who sends how much to whom.

use super::number::is_integer;
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use std::fmt;

/// How many elements each rank sends each other, for all_to_all_v and send_recv.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// `count` for every pair.
    Equal,
    /// `count` from each rank to the next, and nothing else: what nccl-tests' sendrecv does.
    NextRank,
    /// Row by row: element `from * ranks + to`.
    Table(Vec<u64>),
}

/// One call of a collective, as every rank makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What is computed.
    pub collective: Collective,
    /// The element type.
    pub dtype: DataType,
    /// The operation; looked at only if the collective reduces.
    pub op: ReduceOp,
    /// How many ranks take part.
    pub ranks: u32,
    /// The root; looked at only if the collective has one.
    pub root: Rank,
    /// Elements, as NCCL counts them: of one rank's block for collectives with blocks (and
    /// [`Sizes::Equal`] or [`Sizes::NextRank`]), of the whole for the others.
    pub count: u64,
    /// Sizes of all_to_all_v and send_recv; not looked at otherwise.
    pub sizes: Sizes,
    /// The scalar of a pre-multiplied sum, the same on every rank: an element's bits.
    pub scalar: u64,
}

/// A request that no communicator could make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// There are no ranks.
    NoRanks,
    /// The root is none of the ranks.
    Root {
        /// The root asked for.
        root: Rank,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A table whose length is not the square of the number of ranks.
    Table {
        /// Its length.
        found: usize,
        /// How many ranks there are.
        ranks: u32,
    },
    /// A buffer would have more bytes than can be addressed.
    TooLarge,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRanks => write!(f, "a collective needs at least one rank"),
            Self::Root { root, ranks } => write!(f, "root {root} is none of the {ranks} ranks"),
            Self::Table { found, ranks } => {
                write!(f, "a table of sizes for {ranks} ranks has {ranks} x {ranks} entries, not {found}")
            }
            Self::TooLarge => write!(f, "a buffer would have more bytes than can be addressed"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Whose elements a part of an output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    /// One rank's input, unchanged.
    Rank(Rank),
    /// The reduction of every rank's input.
    Reduced,
}

/// A run of elements of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Whose.
    pub of: Source,
    /// From which element of the inputs on.
    pub first: u64,
    /// How many.
    pub elements: u64,
}

impl Request {
    /// A request with root 0, equal sizes (for send_recv: to the next rank) and a scalar of 2.
    ///
    /// Errors: no ranks, or buffers that cannot be addressed.
    pub fn new(
        collective: Collective,
        dtype: DataType,
        op: ReduceOp,
        ranks: u32,
        count: u64,
    ) -> Result<Self, RequestError> {
        let sizes = if collective == Collective::SendRecv { Sizes::NextRank } else { Sizes::Equal };
        let scalar = if is_integer(dtype) { 2 } else { super::number::bits_of(dtype, 2.0) };
        let root = Rank::from_u32(0);
        let request = Self { collective, dtype, op, ranks, root, count, sizes, scalar };
        request.checked()
    }

    /// The same with another root.
    ///
    /// Errors: a root that is none of the ranks.
    pub fn with_root(self, root: Rank) -> Result<Self, RequestError> {
        Self { root, ..self }.checked()
    }

    /// The same with other sizes.
    ///
    /// Errors: a table of the wrong length, or buffers that cannot be addressed.
    pub fn with_sizes(self, sizes: Sizes) -> Result<Self, RequestError> {
        Self { sizes, ..self }.checked()
    }

    /// The same with another scalar: an element's bits.
    pub fn with_scalar(self, scalar: u64) -> Self {
        Self { scalar, ..self }
    }

    fn checked(self) -> Result<Self, RequestError> {
        if self.ranks == 0 {
            return Err(RequestError::NoRanks);
        }
        if self.root.as_u32() >= self.ranks {
            return Err(RequestError::Root { root: self.root, ranks: self.ranks });
        }
        let limit = isize::MAX as u64 / self.dtype.size_bytes() as u64;
        let per_rank = match &self.sizes {
            Sizes::Equal | Sizes::NextRank => self.count.checked_mul(u64::from(self.ranks)),
            Sizes::Table(table) => {
                let ranks = self.ranks as usize;
                if Some(table.len()) != ranks.checked_mul(ranks) {
                    return Err(RequestError::Table { found: table.len(), ranks: self.ranks });
                }
                table.iter().try_fold(0u64, |sum, size| sum.checked_add(*size))
            }
        };
        match per_rank {
            Some(elements) if elements <= limit => Ok(self),
            _ => Err(RequestError::TooLarge),
        }
    }

    /// How many elements `from` sends `to`.
    pub fn size(&self, from: Rank, to: Rank) -> u64 {
        match &self.sizes {
            Sizes::Equal => self.count,
            Sizes::NextRank if (from.as_u32() + 1) % self.ranks == to.as_u32() => self.count,
            Sizes::NextRank => 0,
            Sizes::Table(table) => table[from.as_u32() as usize * self.ranks as usize + to.as_u32() as usize],
        }
    }

    /// Elements that `rank` hands in.
    pub fn input_elements(&self, rank: Rank) -> u64 {
        let all = u64::from(self.ranks) * self.count;
        let is_root = rank == self.root;
        match self.collective {
            Collective::AllReduce | Collective::Reduce | Collective::AllGather | Collective::Gather => {
                self.count
            }
            Collective::ReduceScatter | Collective::AllToAll => all,
            Collective::Broadcast => {
                if is_root {
                    self.count
                } else {
                    0
                }
            }
            Collective::Scatter => {
                if is_root {
                    all
                } else {
                    0
                }
            }
            Collective::AllToAllV | Collective::SendRecv => {
                self.every_rank().map(|to| self.size(rank, to)).sum()
            }
            Collective::Barrier => 0,
        }
    }

    /// Elements that `rank` gets.
    pub fn output_elements(&self, rank: Rank) -> u64 {
        self.segments(rank).iter().map(|segment| segment.elements).sum()
    }

    /// What `rank`'s output holds, from its start to its end.
    pub fn segments(&self, rank: Rank) -> Vec<Segment> {
        let count = self.count;
        let block = u64::from(rank.as_u32()) * count;
        let is_root = rank == self.root;
        let one = |of, first| vec![Segment { of, first, elements: count }];
        let blocks = |first| {
            let of_rank = |from| Segment { of: Source::Rank(from), first, elements: count };
            self.every_rank().map(of_rank).collect()
        };
        match self.collective {
            Collective::AllReduce => one(Source::Reduced, 0),
            Collective::Reduce if is_root => one(Source::Reduced, 0),
            Collective::ReduceScatter => one(Source::Reduced, block),
            Collective::Broadcast => one(Source::Rank(self.root), 0),
            Collective::Scatter => one(Source::Rank(self.root), block),
            Collective::AllGather => blocks(0),
            Collective::Gather if is_root => blocks(0),
            Collective::AllToAll => blocks(block),
            Collective::AllToAllV | Collective::SendRecv => self
                .every_rank()
                .map(|from| Segment {
                    of: Source::Rank(from),
                    first: self.every_rank().take(rank.as_u32() as usize).map(|to| self.size(from, to)).sum(),
                    elements: self.size(from, rank),
                })
                .collect(),
            Collective::Reduce | Collective::Gather | Collective::Barrier => Vec::new(),
        }
    }

    pub(super) fn every_rank(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.ranks).map(Rank::from_u32)
    }
}
