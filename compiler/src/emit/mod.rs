//! Emission: a proved kernel plan becomes CUDA C++ for one collective, element type and operation.
//!
//! The text speaks for all ranks at once. Lanes whose ops have the same shape are one *role*, which is one
//! function; what differs between its lanes (which peer, which chunk) stands in a table that the device
//! runtime fills in for each rank. So one cubin serves every rank of an architecture.
//!
//! A lane is run by several thread blocks, each on its share of every chunk and with links of its own:
//! FIFO plans give block `b` of `B` the tiles b, b + B, ...; zone plans give each thread its lines. A value
//! passes through the same thread of the same block on every rank, so nothing but a message orders threads.

mod exchange;
mod roles;
mod text;

pub use exchange::{Capacity, Exchange, exchange};
pub use roles::{Column, End, LaneTable};

use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{DataType, ReduceOp};
use ringsmith_ir::verify::Verified;
use std::fmt;

/// How the caller's buffers may be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Every block of the caller's buffers starts at a multiple of 16 bytes.
    Vector,
    /// At a multiple of the element's size.
    Element,
    /// Anywhere.
    Byte,
}

impl Access {
    /// Bytes of an access, and the alignment that it needs.
    pub fn bytes(self, dtype: DataType) -> usize {
        match self {
            Self::Vector => 16,
            Self::Element => dtype.size_bytes(),
            Self::Byte => 1,
        }
    }

    /// The widest that addresses allow; `bits` is theirs and every block's length, or-ed.
    pub fn widest(bits: u64, dtype: DataType) -> Self {
        let all = [Self::Vector, Self::Element, Self::Byte];
        all.into_iter().find(|a| bits.is_multiple_of(a.bytes(dtype) as u64)).unwrap_or(Self::Byte)
    }
}

/// What a kernel is made for beside its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// Element type.
    pub dtype: DataType,
    /// Operation, where the collective reduces.
    pub op: Option<ReduceOp>,
    /// How the caller's buffers lie.
    pub access: Access,
    /// Threads of a block: a multiple of 32, at most 1024.
    pub threads: u32,
    /// Accesses that a thread has under way at once.
    pub unroll: u32,
    /// Blocks that one multiprocessor holds: limits registers.
    pub resident: u32,
    /// Ranks that share a launch.
    pub local_ranks: u32,
    /// The most thread blocks that any launch of the communicator has on one rank.
    pub max_blocks: u32,
    /// Bytes from one parity of a zone to the other.
    pub parity_bytes: u64,
    /// Bytes from one slot of a FIFO to the next: the largest tile of any kernel of the communicator.
    pub slot_bytes: u64,
}

/// A kernel: its text, and what a launch has to bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The entry function.
    pub name: String,
    /// CUDA C++, complete.
    pub source: String,
    /// Threads of a block.
    pub threads: u32,
    /// Lanes of a rank; the grid has a multiple of it.
    pub lanes: u32,
    /// How messages travel.
    pub protocol: Protocol,
    /// Bytes of a tile; 0 for zone plans, whose messages are whole chunks.
    pub tile_bytes: u64,
    /// Whether ranks read each other's input or write into each other's output.
    pub uses_peers: bool,
    /// Columns of a lane's table.
    pub columns: u32,
    /// For each rank, each lane's role and table.
    pub tables: Vec<Vec<LaneTable>>,
    /// For each role, each op's address in the schedule, for reports.
    pub addresses: Vec<Vec<String>>,
}

/// Why a plan has no kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// An option is out of its range; its name and what it has to be.
    Option(&'static str, &'static str),
    /// The plan needs what generated kernels do not have.
    Plan(String),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option(name, range) => write!(f, "`{name}` must be {range}"),
            Self::Plan(reason) => write!(f, "no kernel can be generated for this plan: {reason}"),
        }
    }
}

impl std::error::Error for EmitError {}

/// The names and texts that every source is made from: what tells two generators apart.
pub fn templates() -> impl Iterator<Item = (&'static str, &'static str)> {
    ringsmith_templates::TEMPLATES.iter().map(|file| (file.name, file.text))
}

/// Generates the kernel of a plan.
///
/// Errors: options out of range; a plan for another operation, or with more lanes or links than a kernel
/// has room for.
pub fn emit(plan: &Verified<KernelPlan>, options: &Options) -> Result<Kernel, EmitError> {
    check(plan, options)?;
    in_range("local_ranks", "from 1 to the plan's ranks", (1..=plan.ranks).contains(&options.local_ranks))?;
    let program = roles::extract(plan)?;
    let ends = program.tables.iter().flatten().map(|lane| lane.ends.len()).max().unwrap_or(0);
    if ends > options.threads as usize {
        return Err(EmitError::Plan(format!(
            "a lane has {ends} ends of links, more than the block's {} threads",
            options.threads
        )));
    }
    Ok(text::kernel(plan, options, program))
}

fn in_range(name: &'static str, range: &'static str, holds: bool) -> Result<(), EmitError> {
    if holds { Ok(()) } else { Err(EmitError::Option(name, range)) }
}

fn check(plan: &KernelPlan, options: &Options) -> Result<(), EmitError> {
    in_range(
        "threads",
        "a multiple of 32 from 32 to 1024",
        (32..=1024).contains(&options.threads) && options.threads.is_multiple_of(32),
    )?;
    in_range("unroll", "from 1 to 16", (1..=16).contains(&options.unroll))?;
    in_range("resident", "from 1 to 32", (1..=32).contains(&options.resident))?;
    in_range("max_blocks", "from 1 to 65535", (1..=65_535).contains(&options.max_blocks))?;
    in_range(
        "slot_bytes",
        "a multiple of 16, and no smaller than a tile",
        plan.protocol != Protocol::Simple
            || (options.slot_bytes.is_multiple_of(16) && options.slot_bytes >= text::tile_bytes(options)),
    )?;
    in_range(
        "op",
        "given exactly where the collective reduces",
        plan.collective.reduces() == options.op.is_some(),
    )?;
    if plan.op.is_some() && plan.op != options.op {
        return Err(EmitError::Plan("it is written for another operation".to_owned()));
    }
    if plan.lanes_per_lane != 1 {
        return Err(EmitError::Plan(format!("lanes are replicated {} times", plan.lanes_per_lane)));
    }
    if plan.protocol == Protocol::Simple && !plan.slots.is_power_of_two() {
        return Err(EmitError::Plan(format!("{} slots, which is no power of two", plan.slots)));
    }
    Ok(())
}
