//! Ids. Each is a newtype over a dense index and prints as it is written in the text forms.

use cranelift_entity::entity_impl;
use std::fmt;

/// One participant of a communicator. Written `r3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rank(u32);
entity_impl!(Rank, "r");

/// A directed connection from one lane to another. Written `l3`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(u32);
entity_impl!(Link, "l");

/// A named buffer that every rank has. Written `b3` in dumps; by its name in text forms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Buffer(u32);
entity_impl!(Buffer, "b");

/// A sequence of ops that one thread (or thread block) of one rank runs, by dense index over the
/// whole schedule. People see [`LaneName`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane(u32);
entity_impl!(Lane, "lane");

/// A lane as people write it: `r0.1` is lane 1 of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneName {
    /// The rank that runs it.
    pub rank: Rank,
    /// Its number within the rank.
    pub index: u32,
}

impl fmt::Display for LaneName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rank, self.index)
    }
}

/// The place of an op, which is its name in diagnostics, time lines and generated code: `r0.1#4`
/// is op 4 of lane 1 of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpAddress {
    /// The lane.
    pub lane: LaneName,
    /// Index within the lane, from 0.
    pub op: u32,
}

impl fmt::Display for OpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.lane, self.op)
    }
}
