//! Collectives of ranks that share a GPU: planned, proved, generated, compiled and loaded at their first
//! call, launched at every one.

use super::choice::{CAPACITIES, ExchangeSource, GpuRequest, Kernels, Key, Prepared, Sizes, Source, left};
use super::driver::{Function, Grid};
use super::exchange::{self, Lists, Message, Parts};
use super::order::Order;
use super::ranks::{GpuRanks, Loaded, LoadedExchange, Waiting};
use super::{DeviceMemory, GpuError, Stream};
use crate::config::selection::Selection;
use crate::jit::{Architecture, Jit};
use ringsmith_compiler::emit::Access;
use ringsmith_compiler::plan::Filter;
use ringsmith_ir::types::Collective;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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

/// Kernels on the GPU, and how more of them come there.
struct Shelf<'a> {
    gpu: &'a GpuRanks,
    jit: &'a Jit,
    architecture: Architecture,
    loaded: &'a mut BTreeMap<Key, Loaded>,
}

impl Kernels for Shelf<'_> {
    fn sizes(&self, key: &Key) -> Option<Sizes> {
        self.loaded.get(key).map(Loaded::sizes)
    }

    fn load(&mut self, key: Key, source: Source, resident: Option<u32>) -> Result<(), GpuError> {
        let cubin = self
            .jit
            .kernel(&source.canonical, &source.kernel.name, &source.kernel.source, self.architecture)
            .map_err(|error| GpuError::Compile(error.to_string()))?;
        let loaded = self.gpu.load(source, cubin.bytes(), resident)?;
        self.loaded.insert(key, loaded);
        Ok(())
    }

    fn resident(&self, key: &Key) -> u32 {
        self.loaded[key].resident()
    }

    fn lane_blocks(&self, key: &Key, wanted: u64) -> Result<u32, GpuError> {
        self.gpu.lane_blocks(&self.loaded[key], wanted)
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
        let Self { gpu, jit, architecture, loaded, selection, filters, .. } = self;
        let filters =
            filters.entry(request.collective).or_insert_with(|| left(selection, request.collective));
        let mut shelf = Shelf { gpu, jit, architecture: *architecture, loaded };
        let prepared = gpu.terms().prepare(request, alignment, filters, &mut shelf)?;
        if self.ready.len() >= MOST_READY {
            self.ready.clear();
        }
        self.ready.insert(asked, prepared);
        Ok(prepared)
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
        let ExchangeSource { canonical, kernel } = self.gpu.terms().exchange(access, messages)?;
        let cubin = self
            .jit
            .kernel(&canonical, &kernel.name, &kernel.source, self.architecture)
            .map_err(|error| GpuError::Compile(error.to_string()))?;
        self.gpu.load_exchange(kernel, cubin.bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_all_to_all_is_a_message_for_every_pair_of_ranks() {
        let lists = blocks_as_messages(&[(1000, 2000), (3000, 4000)], 100).expect("they are apart");
        assert_eq!(lists[1].sends[0], Message { peer: 0, address: 3000, bytes: 100 });
        assert_eq!(lists[0].receives[1], Message { peer: 1, address: 2100, bytes: 100 });
        let error = blocks_as_messages(&[(1000, 2000), (3000, 1199)], 100).unwrap_err().to_string();
        assert!(error.contains("rank 0's input overlaps rank 1's output"), "{error}");
    }
}
