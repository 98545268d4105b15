//! The ranks of a communicator that this process launches on one GPU: all of them, or one among processes.

use super::GpuError;
use super::argument::{Argument, Memory};
use super::budget::Budget;
use super::choice::{Sizes, Source, Terms};
use super::driver::{CudaError, Device, DeviceMemory, Function, Grid, HostMemory, PeerMemory};
use super::exchange::{Ends, Parts, Report};
use super::layout::{Geometry, Layout};
use super::stream::Stream;
use ringsmith_compiler::emit::{self, Access, Kernel};
use ringsmith_ir::kernel_plan::{Counter, KernelOpKind, KernelPlan, Place};
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::DataType;
use ringsmith_ir::verify::Verified;
use std::ops::Range;
use std::sync::Arc;

/// How a kernel is shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Threads of a block.
    pub threads: u32,
    /// Accesses of a thread under way at once.
    pub unroll: u32,
    /// Blocks that one multiprocessor must hold.
    pub resident: u32,
}

/// What the ranks of a communicator have to divide among them: the same on every rank, so that all choose
/// alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Multiprocessors of the smallest GPU.
    pub multiprocessors: u32,
    /// The most ranks that any GPU has.
    pub ranks_on_gpu: u32,
    /// What a launch of a rank may take.
    pub budget: Budget,
}

impl Share {
    /// Blocks of a rank that run beside those of all ranks of its GPU, where a multiprocessor holds `resident`.
    fn side_by_side(&self, resident: u32) -> u32 {
        resident * self.multiprocessors / self.ranks_on_gpu
    }
}

/// Ranks that share a GPU and a process.
///
/// A launch has no more blocks than run side by side, so a communicator alone on its GPU starts them like
/// any kernel, which is a fifth of a microsecond faster. Where this process has several communicators on the
/// GPU, launches are cooperative: the driver starts all blocks of one or none, and they cannot hold each
/// other up.
pub struct GpuRanks {
    device: Arc<Device>,
    terms: Terms,
    share: Share,
    own: Range<u32>,
    /// Every rank's scratch, as this GPU sees it.
    base: Vec<u64>,
    /// The abort flag, and what blocks wait for.
    mirror: Arc<HostMemory>,
    /// Mappings of peers' scratch, and the own ranks' after them.
    _peers: Vec<PeerMemory>,
    _scratch: Vec<DeviceMemory>,
}

impl Drop for GpuRanks {
    fn drop(&mut self) {
        self.device.leave();
    }
}

/// A kernel on the device, with the tables of its ranks.
pub struct Loaded {
    kernel: Kernel,
    function: Function,
    plan: Verified<KernelPlan>,
    dtype: DataType,
    access: Access,
    /// The argument of a launch, but for what the call brings.
    argument: Argument,
    sizes: Sizes,
    resident: u32,
}

/// Where a thread block waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The rank that waits.
    pub rank: u32,
    /// Its block.
    pub block: u32,
    /// Ranks that it waits for; one of them has not sent.
    pub peers: Vec<u32>,
    /// What it is at: `op` and its address in the schedule, or the end of a message.
    pub op: String,
}

impl GpuRanks {
    /// A communicator of `ranks` ranks, all of this process, on one GPU.
    ///
    /// Errors: no driver or GPU, or too little memory.
    pub fn one_gpu(device: &Arc<Device>, ranks: u32, budget: Budget) -> Result<Self, GpuError> {
        let multiprocessors = device.multiprocessors()?;
        let share = Share { multiprocessors, ranks_on_gpu: ranks, budget };
        let layout = Layout::new(Geometry::for_ranks(ranks, ranks, share.multiprocessors));
        let scratch = (0..ranks)
            .map(|_| DeviceMemory::new(device, layout.bytes()))
            .collect::<Result<Vec<_>, CudaError>>()?;
        let base = scratch.iter().map(DeviceMemory::address).collect();
        Self::new(device, layout, share, 0..ranks, base, (Vec::new(), scratch))
    }

    pub(super) fn new(
        device: &Arc<Device>,
        layout: Layout,
        share: Share,
        own: Range<u32>,
        base: Vec<u64>,
        (peers, scratch): (Vec<PeerMemory>, Vec<DeviceMemory>),
    ) -> Result<Self, GpuError> {
        let words = 1 + own.len() * layout.geometry().max_blocks as usize;
        let mirror = Arc::new(HostMemory::new(device, words)?);
        device.enroll();
        let device = Arc::clone(device);
        let terms = Terms { layout, local_ranks: own.len() as u32 };
        Ok(Self { device, terms, share, own, base, mirror, _peers: peers, _scratch: scratch })
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// How each rank's memory is laid out.
    pub fn layout(&self) -> &Layout {
        &self.terms.layout
    }

    /// The ranks of this process.
    pub fn own(&self) -> Range<u32> {
        self.own.clone()
    }

    /// Whether every rank's buffers are this process's, so that ranks may read each other's input and write into
    /// each other's output.
    pub fn has_all(&self) -> bool {
        self.terms.has_all()
    }

    /// What kernels for this communicator depend on.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Loads a kernel that was generated for these terms and compiled for this GPU. A multiprocessor is taken to
    /// hold as many of its blocks as it can, or `resident`, which ranks with unlike kernels agree on.
    ///
    /// Errors: the plan needs more than the communicator has; the driver's.
    pub fn load(&self, source: Source, cubin: &[u8], resident: Option<u32>) -> Result<Loaded, GpuError> {
        let Source { plan, kernel, options, sizes, .. } = source;
        if kernel.uses_peers && !self.has_all() {
            return Err(GpuError::Plan(format!(
                "plan @{} uses peers' buffers, which other processes have",
                plan.name
            )));
        }
        let function = Function::load(&self.device, cubin, &kernel.name)?;
        let most = function.resident(kernel.threads)?;
        let resident = resident.unwrap_or(most);
        if resident > most {
            return Err(GpuError::Plan(format!(
                "a multiprocessor holds {most} of its blocks, not {resident}"
            )));
        }
        let abort = self.mirror.address();
        let memory = Memory { scratch: &self.base, abort, reports: abort + 8 };
        let argument = Argument::new(&plan, &kernel, &self.terms.layout, &memory, self.own())?;
        let (dtype, access) = (options.dtype, options.access);
        Ok(Loaded { function, plan, dtype, access, argument, sizes, resident, kernel })
    }

    /// The most blocks of a lane that a launch of the kernel can have: the same on every rank.
    pub fn most_blocks(&self, loaded: &Loaded) -> u32 {
        let g = self.terms.layout.geometry();
        let most = self.launch_blocks(loaded) / loaded.kernel.lanes;
        if loaded.plan.protocol == Protocol::Simple { most.min(g.fifo_blocks) } else { most }
    }

    /// The most blocks of a launch, for all lanes.
    fn launch_blocks(&self, loaded: &Loaded) -> u32 {
        let Share { budget, .. } = self.share;
        budget.blocks(self.share.side_by_side(loaded.resident)).min(self.terms.layout.geometry().max_blocks)
    }

    /// Blocks of a lane for a launch of which `wanted` would have work: within the budget.
    ///
    /// Errors: not every lane can have one.
    pub(super) fn lane_blocks(&self, loaded: &Loaded, wanted: u64) -> Result<u32, GpuError> {
        let (most, lanes) = (self.most_blocks(loaded), loaded.kernel.lanes);
        if most == 0 {
            let room = self.launch_blocks(loaded);
            return Err(GpuError::Plan(format!(
                "its {lanes} lanes take a thread block each, and a launch may have {room} side by side"
            )));
        }
        Ok(self.share.budget.lane_blocks(wanted, lanes, most))
    }

    /// Puts one collective on a stream: `count` elements (a rank, where the collective has blocks), each own
    /// rank's input and output, `blocks` thread blocks a lane.
    ///
    /// Errors: buffers that the kernel's accesses do not fit, a count beyond its zone, more blocks than run
    /// side by side, an aborted communicator.
    ///
    /// # Safety
    /// Buffers are GPU memory of the lengths that the collective prescribes, equal or apart (or in place as
    /// it prescribes), and live until the stream has passed.
    pub unsafe fn launch(
        &self,
        loaded: &mut Loaded,
        count: u64,
        buffers: &[(u64, u64)],
        blocks: u32,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        if self.mirror.load(ABORT) != 0 {
            return Err(GpuError::Aborted);
        }
        let refuse = |text: String| Err(GpuError::Argument(text));
        let plan = &loaded.plan;
        if buffers.len() != self.own.len() {
            return refuse(format!("buffers of {} ranks; there are {}", buffers.len(), self.own.len()));
        }
        let most = self.most_blocks(loaded);
        if blocks == 0 || blocks > most {
            return refuse(format!("{blocks} blocks a lane; from 1 to {most} run side by side"));
        }
        let size = loaded.dtype.size_bytes() as u64;
        let cut = Chunks::new(plan.collective, loaded.dtype, count, plan.chunks_per_block());
        let largest = cut.largest() * size;
        if largest > loaded.largest_chunk() {
            return refuse(format!(
                "a chunk of {largest} bytes; there is room for {}",
                loaded.largest_chunk()
            ));
        }
        let bytes = count * size;
        let alignment = loaded.access.bytes(loaded.dtype) as u64;
        let blocked = if plan.collective.blocked() { bytes } else { 0 };
        let fits = |address: u64| (address | blocked).is_multiple_of(alignment);
        if let Some((input, output)) = buffers.iter().find(|(i, o)| !fits(*i) || !fits(*o)) {
            return refuse(format!(
                "buffers at {input:#x} and {output:#x}: the kernel needs {alignment}-byte alignment"
            ));
        }
        // Kernels that use peers' buffers are launched where all ranks are.
        loaded.argument.set_call(loaded.dtype, count, blocks, buffers, buffers);
        let grid = Grid {
            x: loaded.kernel.lanes * blocks,
            y: self.own.len() as u32,
            threads: loaded.kernel.threads,
        };
        // SAFETY: the argument is what the kernel was generated to take; buffers are the caller's promise,
        // scratch lives as long as the communicator.
        unsafe {
            loaded.function.launch(grid, loaded.argument.words(), self.device.communicators() > 1, stream)
        }?;
        Ok(())
    }

    /// Sets the scalar of a pre-multiplied sum, as bits of the accumulation type.
    pub fn set_scalar(&self, loaded: &mut Loaded, bits: u64) {
        loaded.argument.set_scalar(bits);
    }

    /// Ends every wait of every launch, and the communicator with them: counters are left as they are.
    pub fn abort(&self) {
        self.mirror.store(ABORT, 1);
    }

    /// What aborts this communicator from elsewhere, as long as it lives.
    pub fn aborter(&self) -> impl Fn() + Send + 'static {
        let mirror = Arc::downgrade(&self.mirror);
        move || {
            if let Some(mirror) = mirror.upgrade() {
                mirror.store(ABORT, 1);
            }
        }
    }

    /// Forgets where blocks have waited. Those that still do say so again within some milliseconds.
    pub fn forget_waits(&self) {
        (ABORT + 1..self.mirror.words()).for_each(|word| self.mirror.store(word, 0));
    }

    /// The words that blocks have left since the last [`Self::forget_waits`], with their ranks and numbers.
    fn said(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let max_blocks = self.terms.layout.geometry().max_blocks;
        let places = (0u32..).zip(self.own());
        let words = places.flat_map(move |(place, rank)| {
            (0..max_blocks).map(move |block| (rank, block, 1 + (place * max_blocks + block) as usize))
        });
        let found = words.map(|(rank, block, word)| (rank, block, self.mirror.load(word)));
        found.filter(|(_, _, word)| *word != 0)
    }

    /// Where blocks of a kernel's launch have waited for long, since the last [`Self::forget_waits`].
    pub fn waits(&self, loaded: &Loaded) -> Vec<Waiting> {
        let waiting = |(rank, block, word): (u32, u32, u64)| {
            let index = block % loaded.kernel.lanes;
            let role = loaded.kernel.tables[rank as usize][index as usize].role.unwrap_or(0) as usize;
            let op = word as usize - 1;
            let address = loaded.kernel.addresses.get(role).and_then(|a| a.get(op));
            let peers = awaited(&loaded.plan, rank, index as usize, op);
            Waiting { rank, block, peers, op: format!("op {}", address.map_or("", String::as_str)) }
        };
        self.said().map(waiting).collect()
    }

    /// The same for a launch of the exchange kernel.
    pub fn exchange_waits(&self) -> Vec<Waiting> {
        let waiting = |(rank, block, word)| match Report::of(word)? {
            Report::Waits { peer, receives } => {
                let op = if receives { "a receive" } else { "a send" }.to_owned();
                Some(Waiting { rank, block, peers: vec![peer], op })
            }
            Report::Size { .. } => None,
        };
        self.said().filter_map(waiting).collect()
    }

    /// A message that was found to have another size than its receiver means: the receiver, the sender, and
    /// the bytes sent.
    pub fn wrong_size(&self) -> Option<(u32, u32, u64)> {
        self.said().find_map(|(rank, _, word)| match Report::of(word)? {
            Report::Size { peer, found } => Some((rank, peer, found)),
            Report::Waits { .. } => None,
        })
    }

    /// Loads the exchange kernel, which was generated for these terms and compiled for this GPU.
    ///
    /// Errors: the driver's.
    pub(super) fn load_exchange(
        &self,
        kernel: emit::Exchange,
        cubin: &[u8],
    ) -> Result<LoadedExchange, GpuError> {
        let function = Function::load(&self.device, cubin, &kernel.name)?;
        let resident = function.resident(kernel.threads)?;
        Ok(LoadedExchange { kernel, function, resident })
    }

    /// Puts one launch of an exchange on a stream.
    ///
    /// Errors: no room for the blocks that it needs; an aborted communicator; the driver's.
    ///
    /// # Safety
    /// Messages are GPU memory of their lengths, and live until the stream has passed.
    pub(super) unsafe fn launch_exchange(
        &self,
        loaded: &LoadedExchange,
        parts: &Parts,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        if self.mirror.load(ABORT) != 0 {
            return Err(GpuError::Aborted);
        }
        let abort = self.mirror.address();
        let (budget, side_by_side) = (self.share.budget, self.share.side_by_side(loaded.resident));
        let ends = Ends {
            layout: &self.terms.layout,
            scratch: &self.base,
            abort,
            reports: abort + 8,
            most_blocks: budget.exchange_blocks(side_by_side).min(self.terms.layout.geometry().max_blocks),
        };
        let launch = parts.launch(&loaded.kernel, &ends, self.own.start)?;
        let grid = Grid { x: launch.blocks, y: self.own.len() as u32, threads: loaded.kernel.threads };
        // SAFETY: the argument is what the kernel was generated to take; messages are the caller's promise,
        // scratch lives as long as the communicator.
        unsafe { loaded.function.launch(grid, &launch.words, self.device.communicators() > 1, stream) }?;
        Ok(())
    }
}

/// The exchange kernel on the device.
pub(super) struct LoadedExchange {
    kernel: emit::Exchange,
    function: Function,
    resident: u32,
}

/// The abort flag's word in the mirror.
const ABORT: usize = 0;

/// The ranks that an op of a rank's lane waits for.
fn awaited(plan: &KernelPlan, rank: u32, lane: usize, op: usize) -> Vec<u32> {
    let mut lanes = plan.lanes.values().filter(|l| l.name.rank.as_u32() == rank);
    let Some(found) = lanes.nth(lane).and_then(|l| l.ops.get(op)) else { return Vec::new() };
    let sender = |link| plan.links[link].from.rank.as_u32();
    match &found.kind {
        KernelOpKind::Wait(Counter::Full(link) | Counter::Cell(link, _)) => vec![sender(*link)],
        KernelOpKind::Wait(Counter::Free(link)) => vec![plan.links[*link].to.rank.as_u32()],
        KernelOpKind::Signal(_) => Vec::new(),
        KernelOpKind::Move { src, .. } => {
            let cells = src.iter().filter_map(|source| match source.place {
                Place::Cell(link, _) => Some(sender(link)),
                Place::Input(_)
                | Place::Output(_)
                | Place::PeerInput(..)
                | Place::PeerOutput(..)
                | Place::Scratch(..)
                | Place::Slot(_) => None,
            });
            cells.collect()
        }
    }
}

impl Loaded {
    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The largest chunk, in bytes, that a message can carry.
    pub fn largest_chunk(&self) -> u64 {
        self.argument.largest_chunk()
    }

    /// Blocks that a multiprocessor is taken to hold.
    pub(super) fn resident(&self) -> u32 {
        self.resident
    }

    /// How it cuts data.
    pub(super) fn sizes(&self) -> Sizes {
        self.sizes
    }
}
