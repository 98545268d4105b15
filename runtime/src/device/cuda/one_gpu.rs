//! All ranks on one GPU, in one process.

use super::GpuError;
use super::argument::{Argument, Memory};
use super::driver::{CudaError, Device, DeviceMemory, Function, Grid, HostMemory, Stream};
use super::layout::{Geometry, Layout};
use ringsmith_compiler::emit::{self, Access, Kernel};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{DataType, ReduceOp};
use ringsmith_ir::verify::Verified;
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

/// Ranks that share a GPU and a process.
///
/// A launch has no more blocks than run side by side, so a communicator alone on its GPU starts them like
/// any kernel, which is a fifth of a microsecond faster. Where this process has several communicators on the
/// GPU, launches are cooperative: the driver starts all blocks of one or none, and they cannot hold each
/// other up.
pub struct OneGpu {
    device: Arc<Device>,
    layout: Layout,
    scratch: Vec<DeviceMemory>,
    /// Word 0: the abort flag. Then each rank's blocks: what each last waited for.
    mirror: HostMemory,
    multiprocessors: u32,
}

impl Drop for OneGpu {
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
    resident: u32,
}

impl OneGpu {
    /// Makes a communicator of `ranks` ranks on a GPU.
    ///
    /// Errors: no driver or GPU, or too little memory.
    pub fn new(device: &Arc<Device>, ranks: u32) -> Result<Self, GpuError> {
        let multiprocessors = device.multiprocessors()?;
        let layout = Layout::new(Geometry::for_ranks(ranks, ranks, multiprocessors));
        let scratch = (0..ranks)
            .map(|_| DeviceMemory::new(device, layout.bytes()))
            .collect::<Result<_, CudaError>>()?;
        let words = 1 + ranks as usize * layout.geometry().max_blocks as usize;
        let mirror = HostMemory::new(device, words)?;
        device.enroll();
        Ok(Self { device: Arc::clone(device), layout, scratch, mirror, multiprocessors })
    }

    /// The GPU.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// How its memory is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What a kernel for this communicator is generated with.
    pub fn options(
        &self,
        plan: &KernelPlan,
        dtype: DataType,
        op: Option<ReduceOp>,
        access: Access,
        shape: Shape,
    ) -> emit::Options {
        let g = self.layout.geometry();
        emit::Options {
            dtype,
            op: if plan.collective.reduces() { op } else { None },
            access,
            threads: shape.threads,
            unroll: shape.unroll,
            resident: shape.resident,
            local_ranks: g.ranks,
            max_blocks: g.max_blocks,
            parity_bytes: g.parity_bytes(plan.protocol),
            slot_bytes: g.slot_bytes,
        }
    }

    /// Loads a kernel that was generated with [`Self::options`] and compiled for this GPU.
    ///
    /// Errors: the plan needs more than the communicator has; the driver's.
    pub fn load(
        &self,
        plan: &Verified<KernelPlan>,
        kernel: Kernel,
        options: &emit::Options,
        cubin: &[u8],
    ) -> Result<Loaded, GpuError> {
        let function = Function::load(&self.device, cubin, &kernel.name)?;
        let resident = function.resident(kernel.threads)?;
        let scratch: Vec<u64> = self.scratch.iter().map(DeviceMemory::address).collect();
        let abort = self.mirror.address();
        let memory = Memory { scratch: &scratch, abort, reports: abort + 8 };
        let ranks = 0..self.layout.geometry().ranks;
        let argument = Argument::new(plan, &kernel, &self.layout, &memory, ranks)?;
        Ok(Loaded {
            function,
            plan: plan.clone(),
            dtype: options.dtype,
            access: options.access,
            argument,
            resident,
            kernel,
        })
    }

    /// The most blocks of a lane that a launch of the kernel can have.
    pub fn most_blocks(&self, loaded: &Loaded) -> u32 {
        let g = self.layout.geometry();
        let lanes = g.ranks * loaded.kernel.lanes;
        let most = (loaded.resident * self.multiprocessors / lanes).min(g.max_blocks / loaded.kernel.lanes);
        if loaded.plan.protocol == Protocol::Simple { most.min(g.fifo_blocks) } else { most }
    }

    /// Puts one collective of all ranks on a stream: `count` elements (a rank, where the collective has
    /// blocks), each rank's input and output, `blocks` thread blocks a lane.
    ///
    /// Errors: buffers that the kernel's accesses do not fit, a count beyond its zone, more blocks than run
    /// side by side; a communicator that was aborted.
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
        let g = self.layout.geometry();
        let refuse = |text: String| Err(GpuError::Argument(text));
        if self.mirror.load(0) != 0 {
            return Err(GpuError::Aborted);
        }
        let plan = &loaded.plan;
        if buffers.len() != g.ranks as usize {
            return refuse(format!("buffers of {} ranks; there are {}", buffers.len(), g.ranks));
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
        loaded.argument.set_call(loaded.dtype, count, blocks, buffers);
        let grid = Grid { x: loaded.kernel.lanes * blocks, y: g.ranks, threads: loaded.kernel.threads };
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
        self.mirror.store(0, 1);
    }

    /// After an abort: which op each rank's blocks waited for, by role and address.
    pub fn waited_for(&self, loaded: &Loaded) -> Vec<(u32, u32, String)> {
        let g = self.layout.geometry();
        let mut found = Vec::new();
        for rank in 0..g.ranks {
            for block in 0..g.max_blocks {
                let word = self.mirror.load(1 + (rank * g.max_blocks + block) as usize);
                if word == 0 {
                    continue;
                }
                let lane = (block % loaded.kernel.lanes) as usize;
                let role = loaded.kernel.tables[rank as usize][lane].role.unwrap_or(0) as usize;
                let address = loaded.kernel.addresses.get(role).and_then(|a| a.get(word as usize - 1));
                found.push((rank, block, address.cloned().unwrap_or_default()));
            }
        }
        found
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

    pub(super) fn plan_and_type(&self) -> (&KernelPlan, DataType) {
        (&self.plan, self.dtype)
    }
}
