//! Which kernels a collective asks for: requests to plans, plans to sources.
//!
//! Pure: it knows a communicator's [`Terms`], and leaves compiling and loading to whoever calls it. Ranks
//! with a GPU and `compile`, which has none, go the same way here, so that the kernels of a bundle are those
//! that a run asks for.

use super::GpuError;
use super::argument::{Argument, Memory};
use super::layout::{Geometry, Layout, Placement};
use super::ranks::Shape;
use crate::config::selection::Selection;
use ringsmith_compiler::emit::{self, Access, Kernel, emit};
use ringsmith_compiler::lower;
use ringsmith_compiler::plan::gpu::{self, Plan};
use ringsmith_compiler::plan::{Algorithm, Filter, candidates};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::expand;
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_ir::verify::Verified;
use ringsmith_ir::{text, verify};

/// One collective of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Whether every rank's input and output are apart, at every launch.
    pub is_apart: bool,
}

/// What a kernel is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) collective: Collective,
    pub(super) dtype: DataType,
    pub(super) op: Option<ReduceOp>,
    pub(super) root: Option<u32>,
    pub(super) algorithm: &'static str,
    pub(super) protocol: Protocol,
    pub(super) threads: u32,
    pub(super) access: Access,
}

impl Key {
    fn new(request: &GpuRequest, plan: &Plan, access: Access) -> Self {
        Self {
            collective: request.collective,
            dtype: request.dtype,
            op: request.op,
            root: request.root,
            algorithm: plan.algorithm,
            protocol: plan.protocol,
            threads: plan.threads,
            access,
        }
    }
}

/// A collective that is ready to be launched any number of times.
#[derive(Clone, Copy, Debug)]
pub struct Prepared {
    pub(super) key: Key,
    pub(super) count: u64,
    pub(super) blocks: u32,
    pub(super) scalar_bits: u64,
    /// Whether blocks are copied from where they are to where they belong, as messages of an exchange.
    pub(super) copies: bool,
}

impl Prepared {
    /// What is computed.
    pub fn collective(&self) -> Collective {
        self.key.collective
    }

    /// Algorithm, protocol and thread blocks, in words.
    pub fn name(&self) -> String {
        if self.copies {
            return "copies".to_owned();
        }
        format!("{} {} {}x{}", self.key.algorithm, self.key.protocol, self.blocks, self.key.threads)
    }
}

/// What the kernels of a communicator depend on beside the calls.
#[derive(Clone, Debug)]
pub struct Terms {
    pub(super) layout: Layout,
    /// Ranks that share a launch: all, or one.
    pub(super) local_ranks: u32,
}

/// A kernel as text, with what it was made from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The proved plan.
    pub plan: Verified<KernelPlan>,
    /// Its canonical text.
    pub canonical: String,
    /// The kernel.
    pub kernel: Kernel,
    /// What it was generated with.
    pub options: emit::Options,
    pub(super) sizes: Sizes,
}

/// The exchange kernel as text, with what it was made from.
pub(super) struct ExchangeSource {
    pub(super) canonical: String,
    pub(super) kernel: emit::Exchange,
}

/// How the data of a call is cut for a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    collective: Collective,
    chunks_per_block: u32,
    tile_bytes: u64,
    /// The largest chunk, in bytes, that a message can carry.
    largest_chunk: u64,
}

impl Sizes {
    /// Bytes of the largest chunk of a request.
    ///
    /// Errors: there is no room for it.
    pub(super) fn chunk_bytes(&self, request: &GpuRequest) -> Result<u64, GpuError> {
        let cut = Chunks::new(self.collective, request.dtype, request.count, self.chunks_per_block);
        let chunk = cut.largest() * request.dtype.size_bytes() as u64;
        if chunk > self.largest_chunk {
            let most = self.largest_chunk;
            return Err(GpuError::Plan(format!("messages of {chunk} bytes; it has room for {most}")));
        }
        Ok(chunk)
    }
}

/// Kernels that are ready, and the way to more of them.
pub(super) trait Kernels {
    /// How a kernel cuts data, if it is ready.
    fn sizes(&self, key: &Key) -> Option<Sizes>;

    /// Makes a kernel ready. A multiprocessor is taken to hold `resident` of its blocks, or as many as it can.
    fn load(&mut self, key: Key, source: Source, resident: Option<u32>) -> Result<(), GpuError>;

    /// Blocks of a ready kernel that a multiprocessor is taken to hold.
    fn resident(&self, key: &Key) -> u32;

    /// Blocks of a lane for a launch of a ready kernel of which `wanted` would have work.
    ///
    /// Errors: not every lane can have one.
    fn lane_blocks(&self, key: &Key, wanted: u64) -> Result<u32, GpuError>;
}

/// Threads and accesses of the exchange kernel: as copies between FIFOs run fastest.
const EXCHANGE_SHAPE: Shape = Shape { threads: 512, unroll: 4, resident: 1 };

/// The messages that an exchange kernel's launches carry: few, since all of an argument is copied at every
/// launch; and as many as an argument of 32,764 bytes (the limit of CUDA 12.1 on) has room for beside ranks.
pub(super) const CAPACITIES: [u32; 3] = [8, 64, 384];

impl Terms {
    /// Of a communicator whose ranks are each alone in their process, of which `ranks_on_gpu` share a GPU; or of
    /// one whose ranks are all in one process and on one GPU.
    pub fn new(ranks: u32, ranks_on_gpu: u32, is_one_process: bool, multiprocessors: u32) -> Self {
        let layout = Layout::new(Geometry::for_ranks(ranks, ranks_on_gpu, multiprocessors));
        Self { layout, local_ranks: if is_one_process { ranks } else { 1 } }
    }

    /// Ranks of the communicator.
    pub fn ranks(&self) -> u32 {
        self.layout.geometry().ranks
    }

    /// Whether every rank's buffers are one process's, so that ranks may read each other's input and write into
    /// each other's output.
    pub fn has_all(&self) -> bool {
        self.local_ranks == self.ranks()
    }

    /// What a kernel for such a communicator is generated with.
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
            local_ranks: self.local_ranks,
            max_blocks: g.max_blocks,
            parity_bytes: g.parity_bytes(plan.protocol),
            slot_bytes: g.slot_bytes,
        }
    }

    /// The plans that are tried for a request as [`in_bytes`] gives it, in order, of what filters permit.
    ///
    /// Errors: more bytes than 64 bits count; there is none.
    pub(super) fn plans(
        &self,
        request: &GpuRequest,
        (algorithms, protocols): &(Filter, Filter),
    ) -> Result<Vec<Plan>, GpuError> {
        let size = request.dtype.size_bytes() as u64;
        let whole = if request.collective.blocked() { u64::from(self.ranks()) } else { 1 };
        let bytes = request.count.checked_mul(size * whole).ok_or_else(|| {
            GpuError::Argument(format!("{} elements: more bytes than 64 bits count", request.count))
        })?;
        let asked = gpu::Request {
            collective: request.collective,
            op: request.op,
            root: request.root,
            ranks: self.ranks(),
            bytes,
            maps_buffers: self.has_all(),
        };
        let plans = gpu::plans(&asked, algorithms, protocols);
        if plans.is_empty() {
            return Err(GpuError::Plan(nothing_left(&asked, algorithms, protocols)));
        }
        Ok(plans)
    }

    /// Proves a plan and generates its kernel.
    ///
    /// Errors: the plan needs more than the communicator has; what proves or generates refuses it.
    pub(super) fn generate(
        &self,
        request: &GpuRequest,
        plan: &Plan,
        access: Access,
        resident: Option<u32>,
    ) -> Result<Source, GpuError> {
        let schedule = expand(&plan.program, &plan.arguments).map_err(refuted)?;
        let schedule = verify::schedule(schedule).map_err(refuted)?;
        let geometry = self.layout.geometry();
        let (threads, unroll) = (plan.threads, plan.unroll);
        let shape = Shape { threads, unroll, resident: resident.unwrap_or(1) };
        let tile_bytes = u64::from(plan.threads) * u64::from(plan.unroll) * 16;
        let options =
            lower::Options { protocol: plan.protocol, slots: geometry.slots, slot_bytes: tile_bytes };
        let lowered = if self.has_all() {
            lower::lower_direct(&schedule, options)
        } else {
            lower::lower(&schedule, options)
        };
        let plan = lowered.map_err(refuted)?;
        // Whether the communicator has the channels is asked before a text is made that may be long.
        Placement::new(&plan, &self.layout)?;
        let options = self.options(&plan, request.dtype, request.op, access, shape);
        let kernel = emit(&plan, &options)?;
        let canonical = text::print_kernel_plan(&plan);
        let nowhere = vec![0; geometry.ranks as usize];
        let memory = Memory { scratch: &nowhere, abort: 0, reports: 0 };
        let argument = Argument::new(&plan, &kernel, &self.layout, &memory, 0..self.local_ranks)?;
        let sizes = Sizes {
            collective: plan.collective,
            chunks_per_block: plan.chunks_per_block(),
            tile_bytes: kernel.tile_bytes,
            largest_chunk: argument.largest_chunk(),
        };
        Ok(Source { plan, canonical, kernel, options, sizes })
    }

    /// Generates the exchange kernel for launches of at most `messages` messages, whose memory allows `access`.
    ///
    /// Errors: what proves or generates it refuses; slots unlike the communicator's.
    pub(super) fn exchange(&self, access: Access, messages: u32) -> Result<ExchangeSource, GpuError> {
        let g = self.layout.geometry();
        let tile_bytes = u64::from(EXCHANGE_SHAPE.threads * EXCHANGE_SHAPE.unroll) * 16;
        let plan = ringsmith_compiler::exchange::exchange(2, g.slots, tile_bytes);
        let plan = verify::kernel_plan(plan).map_err(refuted)?;
        // Elements only say how memory is accessed: those of four bytes are the most usual.
        let dtype = if access == Access::Element { DataType::Uint32 } else { DataType::Uint8 };
        let options = self.options(&plan, dtype, None, access, EXCHANGE_SHAPE);
        let kernel = emit::exchange(&plan, &options, emit::Capacity { fifos: g.fifo_blocks, messages })?;
        if plan.slots != g.slots || kernel.tile_bytes > g.slot_bytes {
            return Err(GpuError::Plan("the exchange plan has other slots than the communicator".to_owned()));
        }
        Ok(ExchangeSource { canonical: text::print_kernel_plan(&plan), kernel })
    }

    /// Makes a collective ready: the best plan that the communicator has room for. `alignment` is that of the
    /// buffers, in bytes.
    ///
    /// Errors: no plan fits, with the reason of each; those of `kernels`.
    pub(super) fn prepare(
        &self,
        request: &GpuRequest,
        alignment: u64,
        filters: &(Filter, Filter),
        kernels: &mut impl Kernels,
    ) -> Result<Prepared, GpuError> {
        let usual = in_bytes(request)?;
        let plans = self.plans(&usual, filters)?;
        let (own, access) = in_elements(&usual, alignment);
        let mut reasons = Vec::new();
        for plan in plans {
            match self.prepare_plan(&usual, (&own, access), &plan, kernels) {
                Ok(prepared) => return Ok(prepared),
                Err(GpuError::Plan(reason) | GpuError::Argument(reason)) => {
                    reasons.push(format!("{} {}: {reason}", plan.algorithm, plan.protocol));
                }
                Err(other) => return Err(other),
            }
        }
        let filters = asked_for(&filters.0, &filters.1);
        let reasons = reasons.join("; ");
        Err(GpuError::Plan(format!("no plan of {}{filters} fits: {reasons}", request.collective)))
    }

    fn prepare_plan(
        &self,
        usual: &GpuRequest,
        (own, access): (&GpuRequest, Access),
        plan: &Plan,
        kernels: &mut impl Kernels,
    ) -> Result<Prepared, GpuError> {
        // How many blocks there are is decided by one kernel of all that a plan has: a rank whose memory allows
        // wide accesses meets one whose memory does not.
        let usual_key = Key::new(usual, plan, Access::Vector);
        let chunk = match kernels.sizes(&usual_key) {
            Some(sizes) => sizes.chunk_bytes(usual)?,
            None => {
                let source = self.generate(usual, plan, Access::Vector, None)?;
                // What it has no room for is passed over before it is compiled.
                let chunk = source.sizes.chunk_bytes(usual)?;
                kernels.load(usual_key, source, None)?;
                chunk
            }
        };
        let key = Key::new(own, plan, access);
        if kernels.sizes(&key).is_none() {
            let resident = Some(kernels.resident(&usual_key));
            kernels.load(key, self.generate(own, plan, access, resident)?, resident)?;
        }
        let tile_bytes = kernels.sizes(&key).map_or(0, |sizes| sizes.tile_bytes);
        let a_block = match plan.protocol {
            Protocol::Ll => 8 * u64::from(plan.threads),
            Protocol::Ll128 => 15 * u64::from(plan.threads),
            Protocol::Simple => tile_bytes.max(1),
        };
        let blocks = kernels.lane_blocks(&key, chunk.div_ceil(a_block))?;
        // Ranks of one process may take each other's blocks where they lie, if nothing is written over them: that
        // needs no slots, which large blocks would pass through.
        let copies = own.collective == Collective::AllToAll
            && plan.protocol == Protocol::Simple
            && own.is_apart
            && self.has_all();
        Ok(Prepared { key, count: own.count, blocks, scalar_bits: own.scalar_bits, copies })
    }
}

pub(super) fn refuted(found: Vec<Diagnostic>) -> GpuError {
    GpuError::Plan(found.first().map_or_else(String::new, |d| d.message.clone()))
}

/// What settings leave of a collective's algorithms and protocols on GPUs.
pub(super) fn left(selection: &Selection, collective: Collective) -> (Filter, Filter) {
    let (general, special) = (candidates(collective).iter(), gpu::special_names(collective));
    let aliases = |a: &'static Algorithm| [a.name].into_iter().chain(a.aliases.iter().copied()).collect();
    let names: Vec<Vec<&'static str>> =
        special.map(|(name, _)| vec![name]).chain(general.clone().map(aliases)).collect();
    let special = gpu::special_names(collective).flat_map(|(_, protocols)| protocols);
    let protocols = special.chain(general.flat_map(|a| a.protocols())).copied();
    (selection.algorithms(collective, &names).told(), selection.protocols(collective, protocols).told())
}

/// What was asked for, as the end of a sentence; nothing where all may be chosen.
fn asked_for(algorithms: &Filter, protocols: &Filter) -> String {
    let kinds = [("algorithms", algorithms), ("protocols", protocols)];
    let limits = kinds.iter().filter(|(_, filter)| **filter != Filter::Any);
    limits.map(|(kind, filter)| format!(" with {kind} {filter}")).collect()
}

/// Why there is no plan at all.
fn nothing_left(request: &gpu::Request, algorithms: &Filter, protocols: &Filter) -> String {
    let gpu::Request { collective, ranks, bytes, .. } = request;
    format!(
        "nothing can do {collective} of {bytes} bytes on GPUs{}; for {ranks} ranks there are {} (RINGSMITH_ALGO, \
         RINGSMITH_PROTO)",
        asked_for(algorithms, protocols),
        gpu::choices(request)
    )
}

/// What moves without being added up is moved as bytes: one kernel serves all types. Chunks are cut by
/// 16-byte units, so they are the same.
pub(super) fn in_bytes(request: &GpuRequest) -> Result<GpuRequest, GpuError> {
    if request.collective.reduces() {
        return Ok(*request);
    }
    let count = request.count.checked_mul(request.dtype.size_bytes() as u64).ok_or_else(|| {
        GpuError::Argument(format!("{} elements: more bytes than 64 bits count", request.count))
    })?;
    Ok(GpuRequest { dtype: DataType::Uint8, count, ..*request })
}

/// What is moved as bytes, as elements as long as memory and length allow, where they do not allow vectors; and
/// the widest access to it. Of lengths, the lowest four bits count.
pub(super) fn in_elements(request: &GpuRequest, alignment: u64) -> (GpuRequest, Access) {
    let size = request.dtype.size_bytes() as u64;
    let block = if request.collective.blocked() { request.count * size } else { 0 };
    let bytes = request.count;
    let is_split = request.collective.blocked() && !bytes.is_multiple_of(16);
    let request = if request.collective.reduces() || (alignment.is_multiple_of(16) && !is_split) {
        *request
    } else {
        let elements = [DataType::Uint64, DataType::Uint32, DataType::Float16];
        let fits = |dtype: &DataType| (alignment | bytes).is_multiple_of(dtype.size_bytes() as u64);
        let dtype = elements.into_iter().find(fits).unwrap_or(DataType::Uint8);
        GpuRequest { dtype, count: bytes / dtype.size_bytes() as u64, ..*request }
    };
    (request, Access::widest(alignment | block, request.dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn bytes_are_moved_as_the_longest_elements_that_memory_allows() {
        let request = |collective, bytes| GpuRequest {
            collective,
            dtype: DataType::Uint8,
            op: None,
            scalar_bits: 0,
            root: None,
            count: bytes,
            is_apart: true,
        };
        for (collective, bytes, alignment, dtype, count) in [
            (Collective::AllGather, 64, 16, DataType::Uint8, 64),
            (Collective::AllGather, 72, 256, DataType::Uint64, 9),
            (Collective::AllGather, 12, 16, DataType::Uint32, 3),
            (Collective::Broadcast, 13, 0, DataType::Uint8, 13),
            (Collective::Broadcast, 32, 4, DataType::Uint32, 8),
            (Collective::Broadcast, 32, 2, DataType::Float16, 16),
            (Collective::Broadcast, 31, 8, DataType::Uint8, 31),
        ] {
            let (found, _) = in_elements(&request(collective, bytes), alignment);
            assert_eq!((found.dtype, found.count), (dtype, count), "{collective} {bytes} {alignment}");
        }
    }

    #[test]
    fn settings_choose_among_what_gpus_have() {
        let selection = |name: &str, value: &str| {
            let (config, _) = Config::from_vars([(name.to_owned(), value.to_owned())]).expect("it is right");
            Selection::of(&config)
        };
        let only = |names: &[&str]| Filter::Only(names.iter().map(|n| (*n).to_owned()).collect());
        let all_reduce = Collective::AllReduce;
        assert_eq!(left(&selection("NCCL_ALGO", "ring"), all_reduce), (only(&["ring"]), Filter::Any));
        assert_eq!(
            left(&selection("RINGSMITH_ALGO", "zero_copy"), all_reduce),
            (only(&["zero_copy"]), Filter::Any)
        );
        // Broadcasts have the line protocols on GPUs, if not on CPUs.
        assert_eq!(left(&selection("NCCL_PROTO", "LL"), Collective::Broadcast), (Filter::Any, only(&["ll"])));
        let (algorithms, protocols) = left(&selection("NCCL_ALGO", "broadcast:nvls"), Collective::Broadcast);
        assert_eq!(
            (protocols, left(&Selection::default(), all_reduce)),
            (Filter::Any, (Filter::Any, Filter::Any))
        );
        let request = gpu::Request {
            collective: Collective::Broadcast,
            op: None,
            root: Some(0),
            ranks: 2,
            bytes: 8,
            maps_buffers: false,
        };
        assert!(gpu::plans(&request, &algorithms, &Filter::Any).is_empty());
        let text = nothing_left(&request, &algorithms, &Filter::Any);
        for part in ["broadcast of 8 bytes", "with algorithms ^", "mesh (ll, ll128)", "RINGSMITH_ALGO"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
