//! Collectives of ranks that share a GPU: planned, proved, generated, compiled and loaded at their first
//! call, launched at every one.

use super::driver::{Function, Grid};
use super::ranks::{GpuRanks, Loaded, Shape, Waiting};
use super::{DeviceMemory, GpuError, Stream};
use crate::jit::{Architecture, Jit};
use ringsmith_compiler::emit::{Access, emit};
use ringsmith_compiler::lower;
use ringsmith_compiler::plan::gpu::{self, Plan};
use ringsmith_ir::expand::expand;
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_ir::{text, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One collective of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuRequest {
    /// What is computed.
    pub collective: Collective,
    /// Element type.
    pub dtype: DataType,
    /// The operation, where something is reduced.
    pub op: Option<ReduceOp>,
    /// The scalar of a pre-multiplied sum, as bits of the accumulation type.
    pub scalar_bits: u64,
    /// The root, where there is one.
    pub root: Option<u32>,
    /// Elements, of the whole or of one rank's share.
    pub count: u64,
}

/// What a kernel is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    collective: Collective,
    dtype: DataType,
    op: Option<ReduceOp>,
    root: Option<u32>,
    algorithm: &'static str,
    protocol: Protocol,
    threads: u32,
    access: u64,
}

/// Collectives on one GPU.
pub struct Collectives {
    gpu: GpuRanks,
    jit: Arc<Jit>,
    architecture: Architecture,
    ranks: u32,
    loaded: BTreeMap<Key, Loaded>,
}

/// GPU memory from an offset on.
#[derive(Clone, Copy)]
pub struct DeviceSlice<'a> {
    /// The allocation.
    pub memory: &'a DeviceMemory,
    /// Bytes from its start.
    pub offset: u64,
}

impl DeviceSlice<'_> {
    fn address(&self) -> u64 {
        self.memory.address() + self.offset
    }
}

/// A collective that is ready to be launched any number of times.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    key: Key,
    count: u64,
    blocks: u32,
    scalar_bits: u64,
}

impl Prepared {
    /// What is computed.
    pub fn collective(&self) -> Collective {
        self.key.collective
    }

    /// Algorithm, protocol and thread blocks, in words.
    pub fn name(&self) -> String {
        format!("{} {} {}x{}", self.key.algorithm, self.key.protocol, self.blocks, self.key.threads)
    }
}

impl Collectives {
    /// Collectives of a communicator's ranks.
    ///
    /// Errors: the driver's; a GPU older than generated code is for.
    pub fn new(gpu: GpuRanks, jit: Arc<Jit>) -> Result<Self, GpuError> {
        let capability = gpu.device().capability()?;
        let architecture = Architecture::of_capability(capability / 10, capability % 10)
            .map_err(|error| GpuError::Plan(error.to_string()))?;
        let ranks = gpu.layout().geometry().ranks;
        Ok(Self { gpu, jit, architecture, ranks, loaded: BTreeMap::new() })
    }

    /// The ranks' memory and launches.
    pub fn gpu(&self) -> &GpuRanks {
        &self.gpu
    }

    /// Makes a collective ready: the best plan that the communicator has room for. `alignment` is what every
    /// rank's buffers have, in bytes.
    ///
    /// Errors: no plan fits, with the reason of each; what the driver or the compiler says.
    pub fn prepare(&mut self, request: &GpuRequest, alignment: u64) -> Result<Prepared, GpuError> {
        let request = &in_bytes(request)?;
        let size = request.dtype.size_bytes() as u64;
        let whole = if request.collective.blocked() { u64::from(self.ranks) } else { 1 };
        let bytes = request.count.checked_mul(size * whole).ok_or_else(|| {
            GpuError::Argument(format!("{} elements: more bytes than 64 bits count", request.count))
        })?;
        let asked = gpu::Request {
            collective: request.collective,
            op: request.op,
            root: request.root,
            ranks: self.ranks,
            bytes,
            maps_buffers: self.gpu.has_all(),
        };
        let block = if request.collective.blocked() { request.count * size } else { 0 };
        let access = Access::widest(alignment | block, request.dtype);
        let mut reasons = Vec::new();
        for plan in gpu::plans(&asked) {
            match self.prepare_plan(request, &plan, access) {
                Ok(prepared) => return Ok(prepared),
                Err(GpuError::Plan(reason) | GpuError::Argument(reason)) => {
                    reasons.push(format!("{} {}: {reason}", plan.algorithm, plan.protocol));
                }
                Err(other) => return Err(other),
            }
        }
        let reasons = if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") };
        Err(GpuError::Plan(format!("no plan of {} fits: {reasons}", request.collective)))
    }

    fn prepare_plan(
        &mut self,
        request: &GpuRequest,
        plan: &Plan,
        access: Access,
    ) -> Result<Prepared, GpuError> {
        let key = Key {
            collective: request.collective,
            dtype: request.dtype,
            op: request.op,
            root: request.root,
            algorithm: plan.algorithm,
            protocol: plan.protocol,
            threads: plan.threads,
            access: access as u64,
        };
        if !self.loaded.contains_key(&key) {
            let loaded = self.load(request, plan, access)?;
            self.loaded.insert(key, loaded);
        }
        let loaded = &self.loaded[&key];
        let chunk = loaded.chunk_bytes(request.count);
        if chunk > loaded.largest_chunk() {
            let most = loaded.largest_chunk();
            return Err(GpuError::Plan(format!("messages of {chunk} bytes; it has room for {most}")));
        }
        let a_block = match plan.protocol {
            Protocol::Ll => 8 * u64::from(plan.threads),
            Protocol::Ll128 => 15 * u64::from(plan.threads),
            Protocol::Simple => loaded.kernel().tile_bytes,
        };
        let most = self.gpu.most_blocks(loaded);
        if most == 0 {
            return Err(GpuError::Plan("its blocks do not run side by side".to_owned()));
        }
        let blocks = u32::try_from(chunk.div_ceil(a_block)).unwrap_or(u32::MAX).clamp(1, most);
        Ok(Prepared { key, count: request.count, blocks, scalar_bits: request.scalar_bits })
    }

    fn load(&self, request: &GpuRequest, plan: &Plan, access: Access) -> Result<Loaded, GpuError> {
        let refuted = |found: Vec<ringsmith_ir::diagnostic::Diagnostic>| {
            GpuError::Plan(found.first().map_or_else(String::new, |d| d.message.clone()))
        };
        let schedule = expand(&plan.program, &plan.arguments).map_err(refuted)?;
        let schedule = verify::schedule(schedule).map_err(refuted)?;
        let geometry = self.gpu.layout().geometry();
        let shape = Shape { threads: plan.threads, unroll: plan.unroll, resident: 1 };
        let tile_bytes = u64::from(plan.threads) * u64::from(plan.unroll) * 16;
        let options =
            lower::Options { protocol: plan.protocol, slots: geometry.slots, slot_bytes: tile_bytes };
        let lowered = if self.gpu.has_all() {
            lower::lower_direct(&schedule, options)
        } else {
            lower::lower(&schedule, options)
        };
        let kernel_plan = lowered.map_err(refuted)?;
        let options = self.gpu.options(&kernel_plan, request.dtype, request.op, access, shape);
        let kernel = emit(&kernel_plan, &options)?;
        let canonical = text::print_kernel_plan(&kernel_plan);
        let cubin = self
            .jit
            .kernel(&canonical, &kernel.name, &kernel.source, self.architecture)
            .map_err(|error| GpuError::Compile(error.to_string()))?;
        self.gpu.load(&kernel_plan, kernel, &options, cubin.bytes())
    }

    /// Puts a prepared collective on a stream, with each own rank's input and output.
    ///
    /// Errors: as [`GpuRanks::launch`].
    ///
    /// # Safety
    /// As [`GpuRanks::launch`], for the request that was prepared.
    pub unsafe fn launch(
        &mut self,
        prepared: &Prepared,
        buffers: &[(u64, u64)],
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let Some(loaded) = self.loaded.get_mut(&prepared.key) else {
            return Err(GpuError::Argument("prepared by another communicator".to_owned()));
        };
        self.gpu.set_scalar(loaded, prepared.scalar_bits);
        // SAFETY: the caller's promise.
        unsafe { self.gpu.launch(loaded, prepared.count, buffers, prepared.blocks, stream) }
    }

    /// The same, with buffers that are known to be GPU memory and checked to be long enough: each own rank's
    /// input and output. A side that a rank does not have is not looked at. Memory that is freed while a
    /// launch uses it is freed after it.
    ///
    /// Errors: as [`GpuRanks::launch`]; a buffer too short.
    pub fn run(
        &mut self,
        prepared: &Prepared,
        buffers: &[(DeviceSlice<'_>, DeviceSlice<'_>)],
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let key = prepared.key;
        let part = prepared.count.saturating_mul(key.dtype.size_bytes() as u64);
        let whole = if key.collective.blocked() { part.saturating_mul(u64::from(self.ranks)) } else { part };
        let side = |is_block: bool| if is_block { part } else { whole };
        let (input, output) = (side(key.collective.input_is_block()), side(key.collective.output_is_block()));
        for (rank, (send, receive)) in self.gpu.own().zip(buffers) {
            for (side, slice, need) in [("input", send, input), ("output", receive, output)] {
                let have = slice.memory.bytes().saturating_sub(slice.offset);
                if have < need {
                    return Err(GpuError::Argument(format!(
                        "rank {rank}'s {side} has {have} bytes of {need}"
                    )));
                }
            }
        }
        let addresses: Vec<(u64, u64)> = buffers.iter().map(|(i, o)| (i.address(), o.address())).collect();
        // SAFETY: every buffer was just checked; `DeviceMemory` is freed only after launches that use it.
        unsafe { self.launch(prepared, &addresses, stream) }
    }

    /// Where blocks of a collective have waited for long: see [`GpuRanks::waits`].
    pub fn waits(&self, prepared: &Prepared) -> Vec<Waiting> {
        self.loaded.get(&prepared.key).map_or_else(Vec::new, |loaded| self.gpu.waits(loaded))
    }
}

/// A kernel of one thread that does nothing: what any launch costs, for measurements.
pub struct Empty(Function);

impl Empty {
    /// Compiles and loads it.
    ///
    /// Errors: the compiler's and the driver's.
    pub fn new(collectives: &Collectives) -> Result<Self, GpuError> {
        const SOURCE: &str = "extern \"C\" __global__ void empty() {}\n";
        let cubin = collectives
            .jit
            .kernel("empty", "empty", SOURCE, collectives.architecture)
            .map_err(|error| GpuError::Compile(error.to_string()))?;
        Ok(Self(Function::load(collectives.gpu.device(), cubin.bytes(), "empty")?))
    }

    /// Puts it on a stream.
    ///
    /// Errors: the driver's.
    pub fn launch(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: the kernel takes no argument and touches nothing.
        Ok(unsafe { self.0.launch(Grid { x: 1, y: 1, threads: 32 }, &[], false, stream) }?)
    }
}

/// What moves without being added up is moved as bytes: one kernel serves all types. Chunks are cut by
/// 16-byte units, so they are the same.
fn in_bytes(request: &GpuRequest) -> Result<GpuRequest, GpuError> {
    if request.collective.reduces() {
        return Ok(*request);
    }
    let count = request.count.checked_mul(request.dtype.size_bytes() as u64).ok_or_else(|| {
        GpuError::Argument(format!("{} elements: more bytes than 64 bits count", request.count))
    })?;
    Ok(GpuRequest { dtype: DataType::Uint8, count, ..*request })
}

impl Loaded {
    /// Bytes of the largest chunk of a count.
    fn chunk_bytes(&self, count: u64) -> u64 {
        let (plan, dtype) = self.plan_and_type();
        let cut = Chunks::new(plan.collective, dtype, count, plan.chunks_per_block());
        cut.largest() * dtype.size_bytes() as u64
    }
}
