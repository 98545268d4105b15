//! The CPU executor: runs one rank's lanes of a proved kernel plan.
//!
//! The calling thread runs all lanes in turn, each until it blocks. What each op means is defined
//! here; other devices must do the same. Sizes never travel: both ends compute them, and a message
//! whose size differs from what its receiver expects is an error that names both ranks.

use super::arith::{Kernel, Operand};
use super::local::{LocalMove, LocalOp, LocalPlace, LocalPlan, Port, ZoneCell, describe_port};
use super::wait::{Awaited, Pending, Wait, Watch};
use crate::error::Error;
use crate::memory::scratch::Scratch;
use crate::transport::{Connections, Fifo, Geometry, Zone};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::DataType;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

/// Bits of a cell's flag that hold the message's size; the epoch is above them.
const FLAG_SIZE_BITS: u32 = 24;

/// Where this rank stands on each of its FIFO ends, for the communicator's life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortState {
    /// Number of the message that is sent or taken next.
    pub(crate) sequence: u64,
    /// Bytes written into the slot that is published next.
    pending_bytes: u64,
}

/// Links of a communicator, ready for the inner loop.
pub(crate) struct Links {
    pub(crate) geometry: Geometry,
    fifos: Vec<Fifo>,
    pub(crate) ports: Vec<PortState>,
    zones_out: Vec<Option<Zone>>,
    zones_in: Vec<Option<Zone>>,
    epoch: u64,
}

impl Links {
    /// Looks every link up once.
    pub(crate) fn new(connections: &Connections, geometry: Geometry) -> Self {
        let peers = || 0..geometry.ranks;
        let channels = || 0..geometry.channels;
        let out = peers().flat_map(|p| channels().map(move |c| (p, c)));
        let mut fifos: Vec<Fifo> = out.clone().map(|(p, c)| connections.outbound(p, c).clone()).collect();
        fifos.extend(out.map(|(p, c)| connections.inbound(p, c).clone()));
        Self {
            geometry,
            ports: vec![PortState::default(); fifos.len()],
            fifos,
            zones_out: peers().map(|p| connections.zone_out(p).cloned()).collect(),
            zones_in: peers().map(|p| connections.zone_in(p).cloned()).collect(),
            epoch: 0,
        }
    }

    /// The FIFO of a port.
    pub(crate) fn fifo(&self, port: Port) -> &Fifo {
        &self.fifos[port.0 as usize]
    }

    /// The largest message that fits into every zone; 0 where some pair has none.
    pub(crate) fn zone_bytes(&self) -> u64 {
        let zones = self.zones_out.iter().chain(&self.zones_in);
        zones
            .map(|z| z.as_ref().map_or(0, Zone::largest_bytes))
            .min()
            .unwrap_or(0)
            .min((1 << FLAG_SIZE_BITS) - 1)
    }
}

/// Where a chunk lies in the caller's buffers.
#[derive(Clone, Copy, Debug)]
struct ChunkAt {
    input_bytes: u64,
    output_bytes: u64,
    elements: u64,
}

/// The sizes of one launch: made once per plan and count.
#[derive(Debug)]
pub(crate) struct Sizes {
    chunks: Box<[ChunkAt]>,
    tiles: u64,
    tile_elements: u64,
    element_bytes: u64,
}

impl Sizes {
    /// Cuts `count` elements for a plan.
    pub(crate) fn new(plan: &KernelPlan, dtype: DataType, count: u64, slot_bytes: u64) -> Self {
        let element_bytes = dtype.size_bytes() as u64;
        let cut = Chunks::new(plan.collective, dtype, count, plan.chunks_per_block());
        let chunks = (0..plan.chunks)
            .map(|chunk| {
                let (whole, inside) = (cut.whole(chunk), cut.inside(chunk));
                let start = |block: bool| if block { inside.start } else { whole.start } * element_bytes;
                ChunkAt {
                    input_bytes: start(plan.collective.input_is_block()),
                    output_bytes: start(plan.collective.output_is_block()),
                    elements: whole.len,
                }
            })
            .collect();
        let zone = plan.protocol != Protocol::Simple;
        let tile_elements = if zone { cut.largest() } else { slot_bytes / element_bytes }.max(1);
        let tiles = cut.largest().div_ceil(tile_elements).max(1);
        Self { chunks, tiles, tile_elements, element_bytes }
    }

    /// Bytes of the largest tile.
    pub(crate) fn tile_bytes(&self) -> u64 {
        let largest = self.chunks.iter().map(|c| c.elements).max().unwrap_or(0);
        largest.min(self.tile_elements) * self.element_bytes
    }
}

/// What one launch works on.
pub(crate) struct Launch<'a> {
    pub(crate) rank: u32,
    pub(crate) plan: &'a LocalPlan,
    pub(crate) sizes: &'a Sizes,
    pub(crate) kernel: &'a Kernel,
    pub(crate) input: *const u8,
    pub(crate) output: *mut u8,
    /// Sequence number of the collective, for reports.
    pub(crate) number: u64,
}

/// Where a lane stands.
#[derive(Clone, Copy, Default)]
struct LaneState {
    op: u32,
    /// Sources of the current move whose cells have arrived.
    arrived: u32,
    tile: u64,
    done: bool,
}

/// What came of running a lane.
enum Ran {
    Done,
    Blocked { moved: bool },
}

/// Runs a launch to its end. The communicator is the only caller: it has checked the lengths of the
/// caller's buffers against the plan's collective and count, and made the plan for these links.
///
/// Errors: as [`execute`].
pub(crate) fn run(
    launch: &Launch<'_>,
    links: &mut Links,
    scratch: &mut Scratch,
    watch: &Watch<'_>,
) -> Result<(), Error> {
    // SAFETY: slices of the checked lengths back both pointers for the whole call; Rust's borrows keep
    // `Apart` buffers disjoint, and `InPlace` ones are at the offsets that the verifier has proved.
    unsafe { execute(launch, links, scratch, watch) }
}

/// Runs a launch to its end.
///
/// # Safety
/// `input` and `output` are valid for the chunks that the plan reads and writes at this count: both
/// whole, or one block where the collective says so; they are equal, or the plan's in-place offsets
/// apart, or do not overlap. The plan was made for this communicator.
///
/// Errors: as in [`Wait::pause`], and `MessageSize` when a peer's message has another size. After an error the communicator is of no further use.
unsafe fn execute(
    launch: &Launch<'_>,
    links: &mut Links,
    scratch: &mut Scratch,
    watch: &Watch<'_>,
) -> Result<(), Error> {
    if launch.plan.plan().protocol != Protocol::Simple {
        links.epoch += 1;
    }
    let stride = launch.sizes.tile_bytes().next_multiple_of(64);
    let scratch = scratch.at_least(u64::from(launch.plan.scratch_chunks) * stride)?;
    let mut run = Run { launch, links, scratch, scratch_stride: stride as usize };
    let mut lanes: SmallVec<[LaneState; 8]> =
        smallvec::smallvec![LaneState::default(); launch.plan.lanes.len()];
    let mut wait = Wait::new();
    loop {
        let (mut all_done, mut any_moved) = (true, false);
        for index in 0..lanes.len() {
            if lanes[index].done {
                continue;
            }
            // SAFETY: the caller's promise.
            match unsafe { run.lane(index, &mut lanes[index])? } {
                Ran::Done => any_moved = true,
                Ran::Blocked { moved } => {
                    all_done = false;
                    any_moved |= moved;
                }
            }
        }
        if all_done {
            return Ok(());
        }
        if any_moved {
            wait.reset();
        } else {
            wait.pause(watch, &Blocked { run: &run, lanes: &lanes })?;
        }
    }
}

struct Run<'a> {
    launch: &'a Launch<'a>,
    links: &'a mut Links,
    scratch: *mut u8,
    scratch_stride: usize,
}

impl Run<'_> {
    /// Runs a lane until it blocks or ends.
    ///
    /// # Safety
    /// As for [`execute`].
    unsafe fn lane(&mut self, index: usize, state: &mut LaneState) -> Result<Ran, Error> {
        let launch = self.launch;
        let ops = &launch.plan.lanes[index].ops;
        let mut moved = false;
        while state.tile < launch.sizes.tiles && !ops.is_empty() {
            while let Some(op) = ops.get(state.op as usize) {
                // SAFETY: the caller's promise.
                if !unsafe { self.op(op, state)? } {
                    return Ok(Ran::Blocked { moved });
                }
                moved = true;
                state.op += 1;
                state.arrived = 0;
            }
            state.tile += 1;
            state.op = 0;
        }
        state.done = true;
        Ok(Ran::Done)
    }

    /// Runs an op; false when it must wait.
    ///
    /// # Safety
    /// As for [`execute`].
    #[inline]
    unsafe fn op(&mut self, op: &LocalOp, state: &mut LaneState) -> Result<bool, Error> {
        match op {
            LocalOp::WaitFull(port) => Ok(self.links.fifo(*port).has(self.sequence(*port))),
            LocalOp::WaitFree(port) => Ok(self.links.fifo(*port).has_room(self.sequence(*port))),
            LocalOp::SignalFull(port) => {
                let at = &mut self.links.ports[port.0 as usize];
                let (sequence, bytes) = (at.sequence, at.pending_bytes);
                *at = PortState { sequence: sequence.wrapping_add(1), pending_bytes: 0 };
                self.links.fifo(*port).publish(sequence, bytes);
                Ok(true)
            }
            LocalOp::SignalFree(port) => {
                let at = &mut self.links.ports[port.0 as usize];
                let sequence = at.sequence;
                at.sequence = sequence.wrapping_add(1);
                self.links.fifo(*port).release(sequence);
                Ok(true)
            }
            LocalOp::WaitCell(cell) => self.has_arrived(*cell, 0),
            LocalOp::SignalCell(cell) => {
                self.raise_flag(*cell, 0);
                Ok(true)
            }
            // SAFETY: the caller's promise.
            LocalOp::Move(moves) => unsafe { self.run_move(moves, state) },
        }
    }

    fn sequence(&self, port: Port) -> u64 {
        self.links.ports[port.0 as usize].sequence
    }

    /// # Safety
    /// As for [`execute`].
    #[inline]
    unsafe fn run_move(&mut self, moves: &LocalMove, state: &mut LaneState) -> Result<bool, Error> {
        let sizes = self.launch.sizes;
        let at = sizes.chunks[moves.chunk as usize];
        let start = (state.tile * sizes.tile_elements).min(at.elements);
        let elements = (at.elements - start).min(sizes.tile_elements);
        let bytes = elements * sizes.element_bytes;
        for source in &moves.src[state.arrived as usize..] {
            if let LocalPlace::Cell(cell) = source.place
                && !self.has_arrived(cell, bytes)?
            {
                return Ok(false);
            }
            state.arrived += 1;
        }
        let offset = (start * sizes.element_bytes) as usize;
        let mut src: SmallVec<[Operand; 8]> = SmallVec::new();
        for source in &moves.src {
            // SAFETY: the caller's promise; proved plans name chunks within the buffers.
            let ptr = unsafe { self.source(source.place, offset, bytes)? };
            src.push(Operand { ptr, pre: source.pre });
        }
        let mut dst: SmallVec<[*mut u8; 8]> = SmallVec::new();
        for place in &moves.dst {
            // SAFETY: as above.
            dst.push(unsafe { self.destination(*place, offset, bytes) });
        }
        // SAFETY: every pointer is valid for `elements` elements: user chunks by the caller's promise,
        // slots, cells and scratch by their sizes. The verifier has shown that nobody else touches them
        // now; sources and destinations are equal or apart, as tiles of one cut are.
        unsafe { self.launch.kernel.run(&dst, &src, moves.post, elements as usize) };
        for place in &moves.dst {
            if let LocalPlace::Cell(cell) = place {
                self.raise_flag(*cell, bytes);
            }
        }
        Ok(true)
    }

    /// # Safety
    /// As for [`execute`].
    #[inline]
    unsafe fn source(&self, place: LocalPlace, offset: usize, bytes: u64) -> Result<*const u8, Error> {
        Ok(match place {
            LocalPlace::Input(chunk) => {
                let at = self.launch.sizes.chunks[chunk as usize].input_bytes as usize;
                self.launch.input.wrapping_add(at + offset)
            }
            LocalPlace::Output(chunk) => {
                let at = self.launch.sizes.chunks[chunk as usize].output_bytes as usize;
                self.launch.output.wrapping_add(at + offset).cast_const()
            }
            LocalPlace::Scratch(chunk) => {
                self.scratch.wrapping_add(chunk as usize * self.scratch_stride).cast_const()
            }
            LocalPlace::Slot(port) => {
                let (fifo, sequence) = (self.links.fifo(port), self.sequence(port));
                let found = fifo.bytes(sequence);
                if found != bytes {
                    return Err(self.wrong_size(describe_port(&self.links.geometry, port).1, bytes, found));
                }
                fifo.payload(sequence).cast_const()
            }
            LocalPlace::Cell(cell) => {
                self.zone_in(cell).cell(self.links.epoch, cell.index).payload(bytes).cast_const()
            }
        })
    }

    /// # Safety
    /// As for [`execute`].
    #[inline]
    unsafe fn destination(&mut self, place: LocalPlace, offset: usize, bytes: u64) -> *mut u8 {
        match place {
            LocalPlace::Input(_) => unreachable!("the verifier refuses writes of the input"),
            LocalPlace::Output(chunk) => {
                let at = self.launch.sizes.chunks[chunk as usize].output_bytes as usize;
                self.launch.output.wrapping_add(at + offset)
            }
            LocalPlace::Scratch(chunk) => self.scratch.wrapping_add(chunk as usize * self.scratch_stride),
            LocalPlace::Slot(port) => {
                self.links.ports[port.0 as usize].pending_bytes = bytes;
                self.links.fifo(port).payload(self.sequence(port))
            }
            LocalPlace::Cell(cell) => self.zone_out(cell).cell(self.links.epoch, cell.index).payload(bytes),
        }
    }

    fn zone_in(&self, cell: ZoneCell) -> &Zone {
        self.links.zones_in[cell.peer as usize]
            .as_ref()
            .expect("zone plans are chosen only where every pair has a zone")
    }

    fn zone_out(&self, cell: ZoneCell) -> &Zone {
        self.links.zones_out[cell.peer as usize]
            .as_ref()
            .expect("zone plans are chosen only where every pair has a zone")
    }

    /// Whether a cell holds this launch's message of `bytes`.
    #[inline]
    fn has_arrived(&self, cell: ZoneCell, bytes: u64) -> Result<bool, Error> {
        let flag = self.zone_in(cell).cell(self.links.epoch, cell.index).flag().load(Ordering::Acquire);
        if flag >> FLAG_SIZE_BITS != self.links.epoch {
            return Ok(false);
        }
        let found = flag & ((1 << FLAG_SIZE_BITS) - 1);
        if found != bytes {
            return Err(self.wrong_size(cell.peer, bytes, found));
        }
        Ok(true)
    }

    #[inline]
    fn raise_flag(&self, cell: ZoneCell, bytes: u64) {
        let flag = self.links.epoch << FLAG_SIZE_BITS | bytes;
        self.zone_out(cell).cell(self.links.epoch, cell.index).flag().store(flag, Ordering::Release);
    }

    fn operation(&self) -> String {
        format!("{} number {}", self.launch.plan.plan().collective, self.launch.number)
    }

    #[cold]
    fn wrong_size(&self, peer: u32, expected: u64, found: u64) -> Error {
        Error::MessageSize {
            rank: self.launch.rank,
            peer,
            operation: self.operation(),
            expected_bytes: expected,
            found_bytes: found,
        }
    }

    /// What a blocked lane waits for: of whom, and in words.
    fn blocked_on(&self, index: usize, state: &LaneState) -> (u32, Waited) {
        let port = |p: Port| describe_port(&self.links.geometry, p).1;
        match &self.launch.plan.lanes[index].ops[state.op as usize] {
            LocalOp::WaitFull(p) => (port(*p), Waited::Message(self.sequence(*p))),
            LocalOp::WaitFree(p) => (port(*p), Waited::Room(self.sequence(*p))),
            LocalOp::WaitCell(cell) => (cell.peer, Waited::Cell(cell.index)),
            LocalOp::Move(moves) => match moves.src.get(state.arrived as usize).map(|s| s.place) {
                Some(LocalPlace::Cell(cell)) => (cell.peer, Waited::Cell(cell.index)),
                _ => unreachable!("a move waits for nothing but cells"),
            },
            LocalOp::SignalFull(_) | LocalOp::SignalFree(_) | LocalOp::SignalCell(_) => {
                unreachable!("a signal waits for nothing")
            }
        }
    }
}

/// What an op waits for.
#[derive(Clone, Copy)]
enum Waited {
    Message(u64),
    Room(u64),
    Cell(u32),
}

/// A launch of which no lane can go on.
struct Blocked<'a> {
    run: &'a Run<'a>,
    lanes: &'a [LaneState],
}

impl Blocked<'_> {
    fn lanes(&self) -> impl Iterator<Item = (usize, &LaneState)> {
        self.lanes.iter().enumerate().filter(|(_, state)| !state.done)
    }
}

impl Pending for Blocked<'_> {
    fn peers(&self) -> SmallVec<[u32; 8]> {
        self.lanes().map(|(index, state)| self.run.blocked_on(index, state).0).collect()
    }

    fn awaited(&self, peer: u32) -> Awaited {
        let Run { launch, .. } = self.run;
        let lanes = self.lanes().map(|(index, state)| (index, state, self.run.blocked_on(index, state)));
        let (index, state, (_, waited)) =
            lanes.into_iter().find(|(_, _, (of, _))| *of == peer).expect("a lane waits for this rank");
        let what = match waited {
            Waited::Message(number) => format!("message {number} of rank {peer}"),
            Waited::Room(number) => format!("rank {peer} to make room for message {number}"),
            Waited::Cell(cell) => format!("cell {cell} of rank {peer}"),
        };
        let address = launch.plan.address(index, state.op as usize);
        let detail =
            format!("op {address} waits for {what} (tile {} of {})", state.tile + 1, launch.sizes.tiles);
        Awaited { rank: launch.rank, operation: self.run.operation(), detail }
    }
}
