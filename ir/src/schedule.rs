//! The flat schedule: what a program becomes for one number of ranks.
//!
//! A schedule says what its author means: which chunk moves where, who tells whom. It knows nothing
//! of slots, protocols or bytes. The verifier proves it; lowering takes the proof.
//!
//! # Chunk numbers
//! A collective's data is cut into `chunks` parts, numbered over the whole result (the larger side).
//! For all_gather, gather, reduce_scatter, scatter and all_to_all the chunks are grouped by rank:
//! block r is chunks `r * chunks / ranks .. (r + 1) * chunks / ranks`.
//! An `input` or `output` buffer that holds one block is numbered from 0 within that block in the
//! text; [`Schedule::place`] turns it into the number over the whole.

use crate::diagnostic::Span;
use crate::entity::{Buffer, Lane, LaneName, Link, OpAddress, Rank};
use crate::types::{Collective, ReduceOp};
use cranelift_entity::PrimaryMap;
use std::fmt;
use std::ops::Range;

/// What a buffer is to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferKind {
    /// The caller's send buffer; never written.
    Input,
    /// The caller's receive buffer.
    Output,
    /// Both under one name: a chunk is the input until it is first written, the output after.
    Inout,
    /// Memory of the schedule's own; undefined at the start of every launch.
    Scratch,
}

impl BufferKind {
    /// The keyword.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Inout => "inout",
            Self::Scratch => "scratch",
        }
    }
}

/// A buffer's declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferDecl {
    /// Its name in the text.
    pub name: String,
    /// What it is.
    pub kind: BufferKind,
    /// How many chunks it holds.
    pub chunks: u32,
    /// Where it was declared.
    pub span: Span,
}

/// A link's declaration. Which lanes it joins follows from its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkDecl {
    /// The rank that puts and signals.
    pub from: Rank,
    /// The rank that waits.
    pub to: Rank,
    /// Where it was declared.
    pub span: Span,
}

/// One chunk of one buffer of the rank at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// The buffer.
    pub buffer: Buffer,
    /// The chunk, in the buffer's own numbering.
    pub chunk: u32,
}

/// What an op does.
///
/// | op | reads | writes | signals | waits |
/// | --- | --- | --- | --- | --- |
/// | `put` | own `src` | peer's `dst`, complete at the wait for the link's next signal | | |
/// | `get` | peer's `src`, as of the signal last waited for on the link | own `dst` | | |
/// | `signal` | | | the link | |
/// | `wait` | | | | the link |
/// | `reduce` | own `src` and `dst` | own `dst` | | |
/// | `copy` | own `src` | own `dst` | | |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpKind {
    /// Write a local chunk into a peer's memory. The peer may read it only after it has waited for
    /// the next signal on `link`.
    Put {
        /// Local source.
        src: Slice,
        /// Whose memory is written.
        peer: Rank,
        /// Destination there.
        dst: Slice,
        /// The link whose next signal publishes it; joins this rank to `peer`.
        link: Link,
    },
    /// Read a chunk of a peer's memory, as it was at the signal this lane last waited for on `link`.
    Get {
        /// Whose memory is read.
        peer: Rank,
        /// Source there.
        src: Slice,
        /// Local destination.
        dst: Slice,
        /// A link from `peer` to this lane.
        link: Link,
    },
    /// Tell the receiving lane of `link` that everything before this op has happened.
    Signal {
        /// The link.
        link: Link,
    },
    /// Wait for the next signal on `link`.
    Wait {
        /// The link.
        link: Link,
    },
    /// Combine one local chunk into another: `dst = dst (op) src`.
    Reduce {
        /// Accumulator.
        dst: Slice,
        /// The other operand.
        src: Slice,
    },
    /// Copy one local chunk to another.
    Copy {
        /// Source.
        src: Slice,
        /// Destination.
        dst: Slice,
    },
}

/// How a link's messages travel. It changes the cost, never the meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// 16-byte lines of 8 data bytes and two flags.
    Ll,
    /// 128-byte lines of 120 data bytes and a flag.
    Ll128,
    /// Bulk stores, then one signal.
    Simple,
}

impl Protocol {
    /// The spelling in text forms and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ll => "ll",
            Self::Ll128 => "ll128",
            Self::Simple => "simple",
        }
    }

    /// Bytes on a link for each byte of payload: what flags add to the lines described above.
    pub const fn wire_bytes_per_byte(self) -> f64 {
        match self {
            Self::Ll => 2.0,
            Self::Ll128 => 16.0 / 15.0,
            Self::Simple => 1.0,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One op and where it stands in the text it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// What it does.
    pub kind: OpKind,
    /// The text that says so.
    pub span: Span,
}

/// The ops of one lane, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneDecl {
    /// Its name.
    pub name: LaneName,
    /// Its ops.
    pub ops: Vec<Op>,
    /// Where the lane was declared.
    pub span: Span,
}

/// Whether every rank must reduce in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// One reduction tree per element, the same on every rank: all ranks get the same bits.
    #[default]
    Same,
    /// Any tree: ranks may differ in the last bits.
    Any,
}

/// A flat schedule for a known number of ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
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
    /// How many chunks the larger side is cut into; 0 for a barrier.
    pub chunks: u32,
    /// Over how many slices of every chunk each lane is replicated, each with links of its own.
    pub lanes_per_lane: u32,
    /// How messages travel.
    pub protocol: Protocol,
    /// Buffers.
    pub buffers: PrimaryMap<Buffer, BufferDecl>,
    /// Links.
    pub links: PrimaryMap<Link, LinkDecl>,
    /// Lanes, ordered by rank and index.
    pub lanes: PrimaryMap<Lane, LaneDecl>,
}

/// A chunk of a rank's memory, with user buffers numbered over the whole collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// The caller's input.
    Input(u32),
    /// The caller's output.
    Output(u32),
    /// Input until first written, output after.
    Inout(u32),
    /// Scratch.
    Scratch(Buffer, u32),
}

impl Schedule {
    /// The address of an op.
    pub fn address(&self, lane: Lane, op: usize) -> OpAddress {
        OpAddress { lane: self.lanes[lane].name, op: op as u32 }
    }

    /// Chunks in one rank's block. Equals `chunks` where the collective has no blocks.
    pub fn chunks_per_block(&self) -> u32 {
        if self.collective.has_blocks() { self.chunks / self.ranks } else { self.chunks }
    }

    /// Which chunks, numbered over the whole, are part of `rank`'s input.
    pub fn input_chunks(&self, rank: Rank) -> Range<u32> {
        input_chunks(self.collective, self.root, self.chunks, self.chunks_per_block(), rank)
    }

    /// Which chunks, numbered over the whole, are part of `rank`'s output.
    pub fn output_chunks(&self, rank: Rank) -> Range<u32> {
        output_chunks(self.collective, self.root, self.chunks, self.chunks_per_block(), rank)
    }

    /// How many chunks a buffer of this kind must declare; `None` where any number will do.
    pub fn buffer_chunks(&self, kind: BufferKind) -> Option<u32> {
        let whole = self.chunks;
        let block = self.chunks_per_block();
        match (kind, self.collective) {
            (BufferKind::Scratch, _) => None,
            (BufferKind::Inout, _) => Some(whole),
            (BufferKind::Input, Collective::AllGather | Collective::Gather) => Some(block),
            (BufferKind::Output, Collective::ReduceScatter | Collective::Scatter) => Some(block),
            (BufferKind::Input | BufferKind::Output, _) => Some(whole),
        }
    }

    /// The chunk that `slice` names in `rank`'s memory, numbered over the whole.
    pub fn place(&self, rank: Rank, slice: Slice) -> Place {
        let block = self.chunks_per_block();
        let first = rank.as_u32() * block;
        let chunk = slice.chunk;
        match (self.buffers[slice.buffer].kind, self.collective) {
            (BufferKind::Input, Collective::AllGather | Collective::Gather) => Place::Input(first + chunk),
            (BufferKind::Output, Collective::ReduceScatter | Collective::Scatter) => {
                Place::Output(first + chunk)
            }
            (BufferKind::Input, _) => Place::Input(chunk),
            (BufferKind::Output, _) => Place::Output(chunk),
            (BufferKind::Inout, _) => Place::Inout(chunk),
            (BufferKind::Scratch, _) => Place::Scratch(slice.buffer, chunk),
        }
    }
}

/// Which of `chunks` chunks in blocks of `block` are part of `rank`'s input. The postcondition and
/// the lifetime of `inout` chunks follow from it.
pub fn input_chunks(
    collective: Collective,
    root: Option<Rank>,
    chunks: u32,
    block: u32,
    rank: Rank,
) -> Range<u32> {
    match collective {
        Collective::AllGather | Collective::Gather => own_block(block, rank),
        Collective::AllReduce
        | Collective::ReduceScatter
        | Collective::Reduce
        | Collective::AllToAll
        | Collective::AllToAllV
        | Collective::SendRecv => 0..chunks,
        Collective::Broadcast | Collective::Scatter if Some(rank) == root => 0..chunks,
        Collective::Broadcast | Collective::Scatter | Collective::Barrier => 0..0,
    }
}

/// Which of `chunks` chunks in blocks of `block` are part of `rank`'s output.
pub fn output_chunks(
    collective: Collective,
    root: Option<Rank>,
    chunks: u32,
    block: u32,
    rank: Rank,
) -> Range<u32> {
    match collective {
        Collective::AllReduce
        | Collective::AllGather
        | Collective::Broadcast
        | Collective::AllToAll
        | Collective::AllToAllV
        | Collective::SendRecv => 0..chunks,
        Collective::ReduceScatter | Collective::Scatter => own_block(block, rank),
        Collective::Reduce | Collective::Gather if Some(rank) == root => 0..chunks,
        Collective::Reduce | Collective::Gather | Collective::Barrier => 0..0,
    }
}

fn own_block(block: u32, rank: Rank) -> Range<u32> {
    rank.as_u32() * block..(rank.as_u32() + 1) * block
}
