//! The argument of a generated kernel: `struct Launch` of the templates, as words.
//!
//! Pure: it gets addresses and touches none of them.

use super::GpuError;
use super::layout::{Layout, Placement};
use ringsmith_compiler::emit::Kernel;
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::partition::UNIT_BYTES;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::DataType;
use std::ops::Range;

/// Words in front of the peers and ranks.
const HEAD: usize = 5;
/// Words of a rank in front of its lanes' roles.
const RANK_HEAD: usize = 4;

/// Where a communicator's memory is.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    /// The start of each rank's scratch.
    pub scratch: &'a [u64],
    /// The abort word.
    pub abort: u64,
    /// The launched ranks' words for what their blocks wait for, one rank after the other.
    pub reports: u64,
}

/// The argument of a kernel's launches.
#[derive(Clone, Debug)]
pub struct Argument {
    words: Vec<u64>,
    peers: usize,
    stride: usize,
    parts: u64,
    largest_chunk: u64,
}

impl Argument {
    /// For the ranks that share a launch: the kernel's tables with addresses.
    ///
    /// Errors: the plan needs more than the communicator has.
    pub fn new(
        plan: &KernelPlan,
        kernel: &Kernel,
        layout: &Layout,
        memory: &Memory<'_>,
        ranks: Range<u32>,
    ) -> Result<Self, GpuError> {
        let g = layout.geometry();
        if plan.protocol == Protocol::Simple && (plan.slots != g.slots || kernel.tile_bytes > g.slot_bytes) {
            return Err(GpuError::Plan(format!(
                "plan @{} has {} slots of {} bytes; the communicator has {} of {}",
                plan.name, plan.slots, kernel.tile_bytes, g.slots, g.slot_bytes
            )));
        }
        let placement = Placement::new(plan, layout)?;
        let base = memory.scratch;
        let peers = if kernel.uses_peers { g.ranks as usize } else { 0 };
        let mut words = vec![0; HEAD + 2 * peers];
        words[4] = memory.abort;
        for (place, rank) in (0u64..).zip(ranks.clone()) {
            let lanes = &kernel.tables[rank as usize];
            let report = memory.reports + 8 * place * u64::from(g.max_blocks);
            words.extend([0, 0, base[rank as usize], report]);
            words.extend(lanes.iter().map(|lane| lane.role.map_or(u64::MAX, u64::from)));
            for lane in lanes {
                let first = words.len();
                lane.ends.iter().for_each(|end| words.extend(placement.end(base, *end)));
                words.extend(lane.columns.iter().map(|c| placement.column(base, rank, *c)));
                words.resize(first + kernel.columns as usize, 0);
            }
        }
        let lanes = kernel.lanes as usize;
        Ok(Self {
            words,
            peers,
            stride: RANK_HEAD + lanes + lanes * kernel.columns as usize,
            parts: u64::from(plan.chunks_per_block().max(1)),
            largest_chunk: largest_chunk(plan, kernel, &placement)?,
        })
    }

    /// The largest chunk, in bytes, that a message can carry.
    pub fn largest_chunk(&self) -> u64 {
        self.largest_chunk
    }

    /// What a call brings: elements (of a rank, where the collective has blocks), thread blocks of a lane,
    /// each launched rank's input and output, and every rank's, of which a kernel takes notice only if it uses
    /// peers' buffers.
    pub fn set_call(
        &mut self,
        dtype: DataType,
        count: u64,
        blocks: u32,
        own: &[(u64, u64)],
        all: &[(u64, u64)],
    ) {
        let size = dtype.size_bytes() as u64;
        let units = count / (UNIT_BYTES / size);
        self.words[0] = count * size;
        self.words[1] = units / self.parts;
        self.words[2] = (units % self.parts) | (u64::from(blocks) << 32);
        for (place, buffers) in all.iter().take(self.peers).enumerate() {
            let at = HEAD + 2 * place;
            (self.words[at], self.words[at + 1]) = *buffers;
        }
        for (place, buffers) in own.iter().enumerate() {
            let at = HEAD + 2 * self.peers + place * self.stride;
            (self.words[at], self.words[at + 1]) = *buffers;
        }
    }

    /// The scalar of a pre-multiplied sum, as bits of the accumulation type.
    pub fn set_scalar(&mut self, bits: u64) {
        self.words[3] = bits;
    }

    /// What a launch passes.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

fn largest_chunk(plan: &KernelPlan, kernel: &Kernel, placement: &Placement<'_>) -> Result<u64, GpuError> {
    let cell_bytes = placement.cell_bytes();
    let payload = match plan.protocol {
        Protocol::Ll => cell_bytes / 2,
        Protocol::Ll128 => cell_bytes / 128 * 120,
        Protocol::Simple => u64::MAX,
    };
    // Tiles of FIFO plans are as long whatever the chunk; chunks of zone plans are scratch's as they are.
    let scratch = match plan.protocol {
        _ if plan.scratch.is_empty() => u64::MAX,
        Protocol::Simple if placement.scratch_bytes() >= kernel.tile_bytes => u64::MAX,
        Protocol::Simple => {
            let (need, have) = (kernel.tile_bytes, placement.scratch_bytes());
            return Err(GpuError::Plan(format!("its tiles need {need} bytes of scratch; there are {have}")));
        }
        Protocol::Ll | Protocol::Ll128 => placement.scratch_bytes(),
    };
    Ok(payload.min(scratch))
}
