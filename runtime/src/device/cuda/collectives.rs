//! Collectives of ranks that share a GPU: planned, proved, generated, compiled and loaded at their first
//! call, launched at every one.

use super::driver::{Function, Grid};
use super::exchange::{self, Lists, Message, Parts};
use super::order::Order;
use super::ranks::{self, GpuRanks, Loaded, LoadedExchange, Shape, Waiting};
use super::{DeviceMemory, GpuError, Stream};
use crate::config::selection::Selection;
use crate::jit::{Architecture, Jit};
use ringsmith_compiler::emit::{Access, emit};
use ringsmith_compiler::lower;
use ringsmith_compiler::plan::gpu::{self, Plan};
use ringsmith_compiler::plan::{Algorithm, Filter, candidates};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::expand;
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_ir::{text, verify};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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
    selection: Selection,
    /// What that leaves of each collective, once it was asked for.
    filters: HashMap<Collective, (Filter, Filter)>,
    loaded: BTreeMap<Key, Loaded>,
    /// Requests with the alignment of their buffers, of which the lowest bit counts, up to 8; 0 is more.
    ready: HashMap<(GpuRequest, u64), Prepared>,
    /// Exchange kernels: by access, and by the messages that a launch carries.
    exchanges: BTreeMap<(Access, u32), LoadedExchange>,
    last: Last,
    order: Order,
}

/// What was put on a stream last.
enum Last {
    Nothing,
    Collective(Prepared),
    /// With each own rank's messages.
    Exchange(Vec<Lists>),
}

/// A message that did not have the size that its receiver means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongSize {
    /// The receiver.
    pub rank: u32,
    /// The sender.
    pub peer: u32,
    /// Bytes that are received, of the first message in question; 0 if that is no longer known.
    pub expected: u64,
    /// Bytes that were sent.
    pub found: u64,
}

/// The most requests whose preparation is kept. Ours: more than a training step has.
const MOST_READY: usize = 4096;

/// The messages that an exchange kernel's launches carry: few, since all of an argument is copied at every
/// launch; and as many as an argument of 32,764 bytes (the limit of CUDA 12.1 on) has room for beside ranks.
const CAPACITIES: [u32; 3] = [8, 64, 384];

/// GPU memory from an offset on.
#[derive(Clone, Copy)]
pub struct DeviceSlice<'a> {
    /// The allocation.
    pub memory: &'a DeviceMemory,
    /// Bytes from its start.
    pub offset: u64,
}

/// A message in GPU memory.
#[derive(Clone, Copy)]
pub struct DeviceMessage<'a> {
    /// The rank at the other end.
    pub peer: u32,
    /// Where it starts.
    pub at: DeviceSlice<'a>,
    /// Its length.
    pub bytes: u64,
}

impl DeviceMessage<'_> {
    fn checked(&self) -> Result<Message, GpuError> {
        let have = self.at.memory.bytes().saturating_sub(self.at.offset);
        if have < self.bytes {
            let (peer, need) = (self.peer, self.bytes);
            return Err(GpuError::Argument(format!(
                "the memory of a message with rank {peer} has {have} bytes of {need}"
            )));
        }
        Ok(Message { peer: self.peer, address: self.at.address(), bytes: self.bytes })
    }
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
    /// Whether blocks are copied from where they are to where they belong, as messages of an exchange.
    copies: bool,
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

impl Collectives {
    /// Collectives of a communicator's ranks, planned from what `selection` leaves.
    ///
    /// Errors: a bundle that is refused; the driver's; a GPU older than generated code is for.
    pub fn new(gpu: GpuRanks, jit: Arc<Jit>, selection: Selection) -> Result<Self, GpuError> {
        jit.bundle().map_err(|error| GpuError::Compile(error.to_string()))?;
        let capability = gpu.device().capability()?;
        let architecture = Architecture::of_capability(capability / 10, capability % 10)
            .map_err(|error| GpuError::Plan(error.to_string()))?;
        let ranks = gpu.layout().geometry().ranks;
        let (loaded, ready, exchanges) = (BTreeMap::new(), HashMap::new(), BTreeMap::new());
        Ok(Self {
            gpu,
            jit,
            architecture,
            ranks,
            selection,
            filters: HashMap::new(),
            loaded,
            ready,
            exchanges,
            last: Last::Nothing,
            order: Order::default(),
        })
    }

    /// What compiles and keeps their kernels.
    pub fn jit(&self) -> &Arc<Jit> {
        &self.jit
    }

    /// The ranks' memory and launches.
    pub fn gpu(&self) -> &GpuRanks {
        &self.gpu
    }

    /// Makes a collective ready: the best plan that the communicator has room for. `alignment` is what this
    /// process's buffers have, in bytes; those of other ranks may have another.
    ///
    /// Errors: no plan fits, with the reason of each; what the driver or the compiler says.
    pub fn prepare(&mut self, request: &GpuRequest, alignment: u64) -> Result<Prepared, GpuError> {
        let asked = (*request, alignment & alignment.wrapping_neg() & 15);
        if let Some(prepared) = self.ready.get(&asked) {
            return Ok(*prepared);
        }
        let prepared = self.choose(request, alignment)?;
        if self.ready.len() >= MOST_READY {
            self.ready.clear();
        }
        self.ready.insert(asked, prepared);
        Ok(prepared)
    }

    fn choose(&mut self, request: &GpuRequest, alignment: u64) -> Result<Prepared, GpuError> {
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
        let request = &in_elements(request, alignment);
        let access = Access::widest(alignment | block, request.dtype);
        let mut reasons = Vec::new();
        let selection = &self.selection;
        let filters =
            self.filters.entry(asked.collective).or_insert_with(|| left(selection, asked.collective));
        let (algorithms, protocols) = filters.clone();
        let plans = gpu::plans(&asked, &algorithms, &protocols);
        if plans.is_empty() {
            return Err(GpuError::Plan(nothing_left(&asked, &algorithms, &protocols)));
        }
        for plan in plans {
            match self.prepare_plan(request, &plan, access) {
                Ok(prepared) => return Ok(prepared),
                Err(GpuError::Plan(reason) | GpuError::Argument(reason)) => {
                    reasons.push(format!("{} {}: {reason}", plan.algorithm, plan.protocol));
                }
                Err(other) => return Err(other),
            }
        }
        let filters = asked_for(&algorithms, &protocols);
        let reasons = reasons.join("; ");
        Err(GpuError::Plan(format!("no plan of {}{filters} fits: {reasons}", request.collective)))
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
        // How many blocks there are is decided by one kernel of all that a plan has: a rank whose memory allows
        // wide accesses meets one whose memory does not.
        let usual_request = in_bytes(request)?;
        let usual = Key { access: Access::Vector as u64, dtype: usual_request.dtype, ..key };
        if !self.loaded.contains_key(&usual) {
            let loaded = self.load(&usual_request, plan, Access::Vector, None)?;
            self.loaded.insert(usual, loaded);
        }
        if !self.loaded.contains_key(&key) {
            let resident = self.loaded[&usual].resident();
            let loaded = self.load(request, plan, access, Some(resident))?;
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
        let blocks = self.gpu.lane_blocks(loaded, chunk.div_ceil(a_block))?;
        // Ranks of one process may take each other's blocks where they lie, if nothing is written over them: that
        // needs no slots, which large blocks would pass through.
        let copies = request.collective == Collective::AllToAll
            && plan.protocol == Protocol::Simple
            && request.is_apart
            && self.gpu.has_all();
        Ok(Prepared { key, count: request.count, blocks, scalar_bits: request.scalar_bits, copies })
    }

    fn load(
        &self,
        request: &GpuRequest,
        plan: &Plan,
        access: Access,
        resident: Option<u32>,
    ) -> Result<Loaded, GpuError> {
        let schedule = expand(&plan.program, &plan.arguments).map_err(refuted)?;
        let schedule = verify::schedule(schedule).map_err(refuted)?;
        let geometry = self.gpu.layout().geometry();
        let (threads, unroll) = (plan.threads, plan.unroll);
        let shape = Shape { threads, unroll, resident: resident.unwrap_or(1) };
        let tile_bytes = u64::from(plan.threads) * u64::from(plan.unroll) * 16;
        let options =
            lower::Options { protocol: plan.protocol, slots: geometry.slots, slot_bytes: tile_bytes };
        let lowered = if self.gpu.has_all() {
            lower::lower_direct(&schedule, options)
        } else {
            lower::lower(&schedule, options)
        };
        let kernel_plan = lowered.map_err(refuted)?;
        self.gpu.has_room(&kernel_plan)?;
        let options = self.gpu.options(&kernel_plan, request.dtype, request.op, access, shape);
        let kernel = emit(&kernel_plan, &options)?;
        let canonical = text::print_kernel_plan(&kernel_plan);
        let cubin = self
            .jit
            .kernel(&canonical, &kernel.name, &kernel.source, self.architecture)
            .map_err(|error| GpuError::Compile(error.to_string()))?;
        self.gpu.load(&kernel_plan, kernel, &options, cubin.bytes(), resident)
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
        if prepared.copies {
            let block = prepared.count * prepared.key.dtype.size_bytes() as u64;
            let lists = blocks_as_messages(buffers, block)?;
            // SAFETY: the caller's promise; buffers are apart.
            return unsafe { self.exchange(lists, stream) };
        }
        self.last = Last::Collective(*prepared);
        self.gpu.set_scalar(loaded, prepared.scalar_bits);
        self.order.before(self.gpu.device(), stream)?;
        // SAFETY: the caller's promise.
        unsafe { self.gpu.launch(loaded, prepared.count, buffers, prepared.blocks, stream) }?;
        Ok(self.order.after(stream)?)
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
        for (rank, (send, receive)) in self.gpu.own().zip(buffers) {
            let (input, output) = self.sides(prepared, rank);
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

    /// Bytes of a rank's input and output; 0 for a side that the rank does not have.
    fn sides(&self, prepared: &Prepared, rank: u32) -> (u64, u64) {
        use Collective::{Broadcast, Gather, Reduce, Scatter};
        let Key { collective, dtype, root, .. } = prepared.key;
        let part = prepared.count.saturating_mul(dtype.size_bytes() as u64);
        let whole = if collective.blocked() { part.saturating_mul(u64::from(self.ranks)) } else { part };
        let side = |is_block: bool| if is_block { part } else { whole };
        let is_root = root == Some(rank);
        let has_input = is_root || !matches!(collective, Broadcast | Scatter);
        let has_output = is_root || !matches!(collective, Reduce | Gather);
        let input = if has_input { side(collective.input_is_block()) } else { 0 };
        (input, if has_output { side(collective.output_is_block()) } else { 0 })
    }

    /// Puts messages on a stream: what each own rank sends and receives, all at once. Messages of a pair match
    /// in the order in which each end lists them; the sizes of both ends must be the same. An empty message
    /// matches, and moves nothing.
    ///
    /// Errors: `Argument` where a peer does not exist, or where both ends are this process's and do not match;
    /// as [`GpuRanks::launch`].
    ///
    /// # Safety
    /// Messages are GPU memory of their lengths, and live until the stream has passed; what is received
    /// overlaps nothing else of the call.
    pub unsafe fn exchange(&mut self, lists: Vec<Lists>, stream: &Stream) -> Result<(), GpuError> {
        let own = self.gpu.own();
        if lists.len() != own.len() {
            let (given, there) = (lists.len(), own.len());
            return Err(GpuError::Argument(format!("messages of {given} ranks; there are {there}")));
        }
        let ranks = self.ranks;
        let mut peers = lists.iter().flat_map(|l| l.sends.iter().chain(&l.receives)).map(|m| m.peer);
        if let Some(peer) = peers.find(|peer| *peer >= ranks) {
            return Err(GpuError::Argument(format!("a message with rank {peer}; there are {ranks}")));
        }
        let messages: usize = lists.iter().map(|l| l.sends.len() + l.receives.len()).sum();
        let fits = |capacity: &u32| *capacity as usize >= messages;
        let capacity = CAPACITIES.into_iter().find(fits).unwrap_or(CAPACITIES[CAPACITIES.len() - 1]);
        let launches = if self.gpu.has_all() {
            exchange::together(&lists, capacity)?
        } else {
            exchange::apart(own.start, ranks, &lists[0], capacity)?
        };
        self.last = Last::Exchange(lists);
        if launches.is_empty() {
            return Ok(());
        }
        self.order.before(self.gpu.device(), stream)?;
        for parts in &launches {
            let key = (access(parts), capacity);
            if self.exchanges.is_empty() {
                self.selection.tell_exchange();
            }
            if !self.exchanges.contains_key(&key) {
                let loaded = self.load_exchange(key.0, capacity)?;
                self.exchanges.insert(key, loaded);
            }
            // SAFETY: the caller's promise.
            unsafe { self.gpu.launch_exchange(&self.exchanges[&key], parts, stream) }?;
        }
        Ok(self.order.after(stream)?)
    }

    fn load_exchange(&self, access: Access, messages: u32) -> Result<LoadedExchange, GpuError> {
        let slots = self.gpu.layout().geometry().slots;
        let plan = ringsmith_compiler::exchange::exchange(2, slots, ranks::exchange_tile_bytes());
        let plan = verify::kernel_plan(plan).map_err(refuted)?;
        let canonical = text::print_kernel_plan(&plan);
        // Elements only say how memory is accessed: those of four bytes are the most usual.
        let dtype = if access == Access::Element { DataType::Uint32 } else { DataType::Uint8 };
        self.gpu.load_exchange(&plan, (dtype, access), messages, |kernel| {
            let cubin = self.jit.kernel(&canonical, &kernel.name, &kernel.source, self.architecture);
            cubin.map(|c| c.bytes().to_vec()).map_err(|error| GpuError::Compile(error.to_string()))
        })
    }

    /// The same, with messages that are known to be GPU memory and checked to be long enough: what each own rank
    /// sends, and what it receives.
    ///
    /// Errors: as [`Self::exchange`]; memory too short.
    pub fn send_receive(
        &mut self,
        messages: &[(Vec<DeviceMessage<'_>>, Vec<DeviceMessage<'_>>)],
        stream: &Stream,
    ) -> Result<(), GpuError> {
        type Checked = Result<Vec<Message>, GpuError>;
        let checked =
            |list: &[DeviceMessage<'_>]| list.iter().map(DeviceMessage::checked).collect::<Checked>();
        let lists = messages
            .iter()
            .map(|(sends, receives)| Ok(Lists { sends: checked(sends)?, receives: checked(receives)? }))
            .collect::<Result<Vec<Lists>, GpuError>>()?;
        // SAFETY: every message was just checked; `DeviceMemory` is freed only after launches that use it, and
        // what overlaps there is bytes.
        unsafe { self.exchange(lists, stream) }
    }

    /// What was put on a stream last, in a word.
    pub fn last_call(&self) -> &'static str {
        match &self.last {
            Last::Nothing => "nothing",
            Last::Collective(prepared) => prepared.collective().name(),
            Last::Exchange(_) => "exchange",
        }
    }

    /// Where blocks of what was launched last have waited for long: see [`GpuRanks::waits`].
    pub fn waits(&self) -> Vec<Waiting> {
        match &self.last {
            Last::Nothing => Vec::new(),
            Last::Collective(prepared) => {
                self.loaded.get(&prepared.key).map_or_else(Vec::new, |loaded| self.gpu.waits(loaded))
            }
            Last::Exchange(_) => self.gpu.exchange_waits(),
        }
    }

    /// A message that came with another size than its receiver means. What was launched after it waits until
    /// it is aborted.
    pub fn wrong_size(&self) -> Option<WrongSize> {
        let (rank, peer, found) = self.gpu.wrong_size()?;
        let own = (rank - self.gpu.own().start) as usize;
        let expected = match &self.last {
            Last::Exchange(lists) => {
                let of_peer = lists.get(own).into_iter().flat_map(|l| &l.receives).filter(|m| m.peer == peer);
                of_peer.map(|m| m.bytes).find(|bytes| *bytes != found)
            }
            Last::Nothing | Last::Collective(_) => None,
        };
        Some(WrongSize { rank, peer, expected: expected.unwrap_or(0), found })
    }
}

/// An all_to_all of blocks of `block` bytes, of ranks with these inputs and outputs.
///
/// Errors: `Argument` where an input and an output overlap.
fn blocks_as_messages(buffers: &[(u64, u64)], block: u64) -> Result<Vec<Lists>, GpuError> {
    let whole = block * buffers.len() as u64;
    let overlap = |input: u64, output: u64| input < output + whole && output < input + whole;
    for (from, (input, _)) in buffers.iter().enumerate() {
        let under = buffers.iter().position(|(_, output)| whole > 0 && overlap(*input, *output));
        if let Some(to) = under {
            return Err(GpuError::Argument(format!(
                "rank {from}'s input overlaps rank {to}'s output; the all_to_all was prepared for buffers apart"
            )));
        }
    }
    let blocks = |start: u64| -> Vec<Message> {
        let block = |peer: u32| Message { peer, address: start + u64::from(peer) * block, bytes: block };
        (0..buffers.len() as u32).map(block).collect()
    };
    Ok(buffers.iter().map(|(i, o)| Lists { sends: blocks(*i), receives: blocks(*o) }).collect())
}

/// The widest access that all messages of a launch allow.
fn access(parts: &Parts) -> Access {
    if parts.alignment(false).is_multiple_of(16) {
        Access::Vector
    } else if parts.alignment(true).is_multiple_of(4) {
        Access::Element
    } else {
        Access::Byte
    }
}

fn refuted(found: Vec<Diagnostic>) -> GpuError {
    GpuError::Plan(found.first().map_or_else(String::new, |d| d.message.clone()))
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

/// What settings leave of a collective's algorithms and protocols on GPUs.
fn left(selection: &Selection, collective: Collective) -> (Filter, Filter) {
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
fn in_bytes(request: &GpuRequest) -> Result<GpuRequest, GpuError> {
    if request.collective.reduces() {
        return Ok(*request);
    }
    let count = request.count.checked_mul(request.dtype.size_bytes() as u64).ok_or_else(|| {
        GpuError::Argument(format!("{} elements: more bytes than 64 bits count", request.count))
    })?;
    Ok(GpuRequest { dtype: DataType::Uint8, count, ..*request })
}

/// What is moved as bytes, as elements as long as memory and length allow, where they do not allow vectors.
fn in_elements(request: &GpuRequest, alignment: u64) -> GpuRequest {
    let bytes = request.count;
    let is_split = request.collective.blocked() && !bytes.is_multiple_of(16);
    if request.collective.reduces() || (alignment.is_multiple_of(16) && !is_split) {
        return *request;
    }
    let elements = [DataType::Uint64, DataType::Uint32, DataType::Float16];
    let fits = |dtype: &DataType| (alignment | bytes).is_multiple_of(dtype.size_bytes() as u64);
    let dtype = elements.into_iter().find(fits).unwrap_or(DataType::Uint8);
    GpuRequest { dtype, count: bytes / dtype.size_bytes() as u64, ..*request }
}

impl Loaded {
    /// Bytes of the largest chunk of a count.
    fn chunk_bytes(&self, count: u64) -> u64 {
        let (plan, dtype) = self.plan_and_type();
        let cut = Chunks::new(plan.collective, dtype, count, plan.chunks_per_block());
        cut.largest() * dtype.size_bytes() as u64
    }
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
            let found = in_elements(&request(collective, bytes), alignment);
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

    #[test]
    fn an_all_to_all_is_a_message_for_every_pair_of_ranks() {
        let lists = blocks_as_messages(&[(1000, 2000), (3000, 4000)], 100).expect("they are apart");
        assert_eq!(lists[1].sends[0], Message { peer: 0, address: 3000, bytes: 100 });
        assert_eq!(lists[0].receives[1], Message { peer: 1, address: 2100, bytes: 100 });
        let error = blocks_as_messages(&[(1000, 2000), (3000, 1199)], 100).unwrap_err().to_string();
        assert!(error.contains("rank 0's input overlaps rank 1's output"), "{error}");
    }
}
