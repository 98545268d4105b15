//! The kernel plan: what will run, in three ops.
//!
//! Lowering turns each message of a schedule into a slot of a link's FIFO (or, for LL and LL128, a
//! cell of an epoch zone) and each chunk into tiles of slot size. A lane runs its ops once per tile;
//! tiles pipeline, and credits bound them.
//!
//! # Links
//! A FIFO link has `slots` slots in the receiver's scratch and two counters that only grow, across
//! tiles, launches and plans:
//!
//! | word | written by | read by | says |
//! | --- | --- | --- | --- |
//! | `full` | sender | receiver | how many messages are in |
//! | `free` | receiver | sender | how many messages have been taken out |
//!
//! Each end knows its own sequence number. `wait l.free` waits for a free slot for the message that
//! is to be sent next; `signal l.full` publishes it and moves on. `wait l.full` waits for the message
//! that is to be taken next; `signal l.free` gives its slot back and moves on. Slot = sequence number
//! modulo `slots`.
//!
//! A zone link has one cell per message of a launch and parity of the launch's epoch. A move into a
//! cell includes its signal, a move out of it the wait; a message without payload is
//! `signal l.cell[j]` and `wait l.cell[j]`.

use crate::entity::{Buffer, Lane, LaneName, Link, OpAddress, Rank};
use crate::schedule::{Order, Protocol};
use crate::types::{Collective, ReduceOp};
use cranelift_entity::PrimaryMap;

/// Something that a lane can wait for and another can signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Counter {
    /// Messages put into a FIFO link. Written `l3.full`.
    Full(Link),
    /// Messages taken out of a FIFO link. Written `l3.free`.
    Free(Link),
    /// A message without payload in a zone link. Written `l3.cell[2]`.
    Cell(Link, u32),
}

/// Where a move reads or writes, in the memory of the lane's own rank unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A chunk of the caller's input, numbered over the whole collective. Written `input[3]`.
    Input(u32),
    /// A chunk of the caller's output. Written `output[3]`.
    Output(u32),
    /// A chunk of a peer's input, where that is mapped; only ever read. Written `r1.input[3]`.
    PeerInput(Rank, u32),
    /// A chunk of a peer's output, where that is mapped; only ever written. Written `r1.output[3]`.
    PeerOutput(Rank, u32),
    /// A chunk of scratch. Written by the buffer's name, `acc[3]`.
    Scratch(Buffer, u32),
    /// The current slot of a link: as a destination the one to be published next, as a source the
    /// one to be given back next. Written `l3.slot`.
    Slot(Link),
    /// A cell of a zone link. Written `l3.cell[2]`.
    Cell(Link, u32),
}

/// A source of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Source {
    /// Where it is read.
    pub place: Place,
    /// Whether this is a raw input that the operation's first step (pre-multiplication) applies to.
    /// Written `pre(input[3])`.
    pub pre: bool,
}

/// What an op of a kernel plan does.
///
/// | op | reads | writes | signals | waits |
/// | --- | --- | --- | --- | --- |
/// | `wait` | | | | a counter |
/// | `signal` | | | a counter | |
/// | `move` | every source | every destination that is not its only source | cells among the destinations | cells among the sources |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KernelOpKind {
    /// Wait for a counter.
    Wait(Counter),
    /// Signal a counter.
    Signal(Counter),
    /// Combine the sources, in order, in the accumulation type; round once; store to every
    /// destination. One source is a copy.
    Move {
        /// Destinations; at least one.
        dst: Vec<Place>,
        /// Sources; at least one.
        src: Vec<Source>,
        /// Whether the result is complete, so that the operation's last step (division for an
        /// average) applies before rounding. Written `post(…)`.
        post: bool,
        /// Whose size the move has: chunks differ by a unit. Written `of 3` at the line's end, left
        /// out where the first user chunk among destinations, then sources, is the one.
        chunk: u32,
    },
}

/// An op and the ops of the schedule that it stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelOp {
    /// What it does.
    pub kind: KernelOpKind,
    /// Addresses in the schedule, printed as a comment at the line's end.
    pub origin: Vec<OpAddress>,
}

/// A lane: ops that run once per tile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelLane {
    /// Its name.
    pub name: LaneName,
    /// Its ops.
    pub ops: Vec<KernelOp>,
}

/// A scratch buffer of a kernel plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScratchDecl {
    /// Its name.
    pub name: String,
    /// How many chunks it holds on every rank.
    pub chunks: u32,
}

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelLink {
    /// The lane that sends.
    pub from: LaneName,
    /// The lane that receives.
    pub to: LaneName,
    /// Messages per tile.
    pub messages: u32,
}

/// A kernel plan for a known number of ranks. Bytes, counts, pointers and element type are not part
/// of it: chunk sizes come with each launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KernelPlan {
    /// Its name, without the `@`.
    pub name: String,
    /// How many ranks take part.
    pub ranks: u32,
    /// What it computes.
    pub collective: Collective,
    /// The operation it is written for; none means any.
    pub op: Option<ReduceOp>,
    /// Whether ranks may reduce in different orders.
    pub order: Order,
    /// The root of a rooted collective.
    pub root: Option<Rank>,
    /// How many chunks the larger side is cut into.
    pub chunks: u32,
    /// Over how many slices of every chunk each lane is replicated.
    pub lanes_per_lane: u32,
    /// How messages travel: `Simple` uses FIFOs, the others zones.
    pub protocol: Protocol,
    /// Slots per FIFO link. Fixed per communicator.
    pub slots: u32,
    /// Bytes per slot: the largest tile. Fixed per communicator.
    pub slot_bytes: u64,
    /// Scratch buffers; one tile per chunk.
    pub scratch: PrimaryMap<Buffer, ScratchDecl>,
    /// Links.
    pub links: PrimaryMap<Link, KernelLink>,
    /// Lanes, ordered by rank and index.
    pub lanes: PrimaryMap<Lane, KernelLane>,
}

impl KernelPlan {
    /// The address of an op.
    pub fn address(&self, lane: Lane, op: usize) -> OpAddress {
        OpAddress { lane: self.lanes[lane].name, op: op as u32 }
    }

    /// Chunks in one rank's block. Equals `chunks` where the collective has no blocks.
    pub fn chunks_per_block(&self) -> u32 {
        if self.collective.has_blocks() { self.chunks / self.ranks } else { self.chunks }
    }
}
