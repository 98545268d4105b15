//! What a kernel plan computes: every lane in turn until it waits, whole chunks at once, each move with the
//! slow reference's arithmetic. A plan's result has one right answer, bit for bit, in the plan's own order.

use ringsmith_ir::entity::Link;
use ringsmith_ir::kernel_plan::{Counter, KernelOpKind, KernelPlan, Place, Source};
use ringsmith_ir::partition::{Chunks, Range};
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::reference;
use std::collections::{BTreeMap, VecDeque};

/// A rank's memory, and where in it the buffers start.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) bytes: Vec<u8>,
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) dtype: DataType,
    pub(crate) op: ReduceOp,
    /// Bits of an element.
    pub(crate) scalar: u64,
    pub(crate) count: u64,
}

struct Machine<'a> {
    plan: &'a KernelPlan,
    call: &'a Call,
    cut: Chunks,
    images: &'a mut [Image],
    /// Messages under way, and the one that is being written.
    fifos: BTreeMap<Link, VecDeque<Vec<u8>>>,
    open: BTreeMap<Link, Vec<u8>>,
    cells: BTreeMap<(Link, u32), Vec<u8>>,
    scratch: BTreeMap<(u32, u32, u32), Vec<u8>>,
}

/// Runs a plan on the memory of its ranks.
pub(crate) fn run(plan: &KernelPlan, call: &Call, images: &mut [Image]) {
    let cut = Chunks::new(plan.collective, call.dtype, call.count, plan.chunks_per_block());
    let mut machine = Machine {
        plan,
        call,
        cut,
        images,
        fifos: BTreeMap::new(),
        open: BTreeMap::new(),
        cells: BTreeMap::new(),
        scratch: BTreeMap::new(),
    };
    let lanes: Vec<_> = plan.lanes.values().collect();
    let mut next = vec![0; lanes.len()];
    loop {
        let mut has_moved = false;
        for (lane, next) in lanes.iter().zip(&mut next) {
            while let Some(op) = lane.ops.get(*next)
                && machine.step(lane.name.rank.as_u32(), &op.kind)
            {
                *next += 1;
                has_moved = true;
            }
        }
        if !has_moved {
            break;
        }
    }
    let is_done = lanes.iter().zip(&next).all(|(lane, next)| lane.ops.len() == *next);
    assert!(is_done, "plan @{} ends: it is proved", plan.name);
}

impl Machine<'_> {
    /// Whether the op could be done.
    fn step(&mut self, rank: u32, op: &KernelOpKind) -> bool {
        match op {
            KernelOpKind::Wait(Counter::Full(link)) => self.fifos.get(link).is_some_and(|q| !q.is_empty()),
            KernelOpKind::Wait(Counter::Free(link)) => {
                self.fifos.get(link).is_none_or(|q| q.len() < self.plan.slots as usize)
            }
            KernelOpKind::Wait(Counter::Cell(link, cell)) => self.cells.contains_key(&(*link, *cell)),
            KernelOpKind::Signal(Counter::Full(link)) => {
                let message = self.open.remove(link).unwrap_or_default();
                self.fifos.entry(*link).or_default().push_back(message);
                true
            }
            KernelOpKind::Signal(Counter::Free(link)) => {
                self.fifos.get_mut(link).and_then(VecDeque::pop_front);
                true
            }
            KernelOpKind::Signal(Counter::Cell(link, cell)) => {
                self.cells.insert((*link, *cell), Vec::new());
                true
            }
            KernelOpKind::Move { dst, src, post, chunk } => {
                let is_here = |s: &Source| match s.place {
                    Place::Cell(link, cell) => self.cells.contains_key(&(link, cell)),
                    _ => true,
                };
                if !src.iter().all(is_here) {
                    return false;
                }
                let bytes = self.cut.inside(*chunk).len as usize * self.call.dtype.size_bytes();
                let terms: Vec<(Vec<u8>, bool)> =
                    src.iter().map(|s| (self.read(rank, s.place, bytes), s.pre)).collect();
                let result = self.combine(terms, *post);
                for place in dst {
                    self.write(rank, *place, &result);
                }
                true
            }
        }
    }

    fn combine(&self, terms: Vec<(Vec<u8>, bool)>, post: bool) -> Vec<u8> {
        let Call { dtype, op, scalar, .. } = *self.call;
        let size = dtype.size_bytes();
        let of = |operation: ReduceOp, terms: &[&[u8]]| -> Vec<u8> {
            let mut result = Vec::with_capacity(terms[0].len());
            for at in (0..terms[0].len()).step_by(size) {
                let element = |term: &&[u8]| {
                    let mut word = [0; 8];
                    word[..size].copy_from_slice(&term[at..at + size]);
                    u64::from_le_bytes(word)
                };
                let elements: Vec<u64> = terms.iter().map(element).collect();
                let sum = reference::reduce(dtype, operation, self.plan.ranks, scalar, &elements);
                result.extend_from_slice(&sum.to_le_bytes()[..size]);
            }
            result
        };
        // Pre-multiplied sums are run on data that never rounds, so each step may be one of its own.
        let multiplied: Vec<Vec<u8>> = terms
            .into_iter()
            .map(|(term, pre)| match op {
                ReduceOp::PremulSum if pre => of(op, &[&term]),
                _ => term,
            })
            .collect();
        let terms: Vec<&[u8]> = multiplied.iter().map(Vec::as_slice).collect();
        match op {
            ReduceOp::Avg if post => of(op, &terms),
            ReduceOp::PremulSum | ReduceOp::Avg => of(ReduceOp::Sum, &terms),
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Min | ReduceOp::Max => of(op, &terms),
        }
    }

    /// A chunk's bytes in a buffer.
    fn bytes(&self, chunk: u32, one_block: bool) -> std::ops::Range<usize> {
        let Range { start, len } = if one_block { self.cut.inside(chunk) } else { self.cut.whole(chunk) };
        let size = self.call.dtype.size_bytes() as u64;
        (start * size) as usize..((start + len) * size) as usize
    }

    fn read(&self, rank: u32, place: Place, bytes: usize) -> Vec<u8> {
        let image = &self.images[rank as usize];
        let collective = self.plan.collective;
        let of_user = |start: usize, range: std::ops::Range<usize>| {
            image.bytes[start + range.start..start + range.end].to_vec()
        };
        match place {
            Place::Input(chunk) => {
                let one_block = matches!(collective, Collective::AllGather | Collective::Gather);
                of_user(image.input, self.bytes(chunk, one_block))
            }
            Place::Output(chunk) => {
                let one_block = matches!(collective, Collective::ReduceScatter | Collective::Scatter);
                of_user(image.output, self.bytes(chunk, one_block))
            }
            Place::Scratch(buffer, chunk) => {
                self.scratch.get(&(rank, buffer.as_u32(), chunk)).map_or_else(|| vec![0; bytes], Clone::clone)
            }
            Place::PeerInput(peer, chunk) => self.read(peer.as_u32(), Place::Input(chunk), bytes),
            Place::Slot(link) => self.fifos[&link][0].clone(),
            Place::Cell(link, cell) => self.cells[&(link, cell)].clone(),
            Place::PeerOutput(..) => unreachable!("a peer's output is only written"),
        }
    }

    fn write(&mut self, rank: u32, place: Place, bytes: &[u8]) {
        let collective = self.plan.collective;
        let one_block = matches!(collective, Collective::ReduceScatter | Collective::Scatter);
        let to_output = |machine: &mut Self, rank: u32, chunk: u32| {
            let range = machine.bytes(chunk, one_block);
            let image = &mut machine.images[rank as usize];
            image.bytes[image.output + range.start..image.output + range.end].copy_from_slice(bytes);
        };
        match place {
            Place::Output(chunk) => to_output(self, rank, chunk),
            Place::PeerOutput(peer, chunk) => to_output(self, peer.as_u32(), chunk),
            Place::Scratch(buffer, chunk) => {
                self.scratch.insert((rank, buffer.as_u32(), chunk), bytes.to_vec());
            }
            Place::Slot(link) => {
                self.open.insert(link, bytes.to_vec());
            }
            Place::Cell(link, cell) => {
                self.cells.insert((link, cell), bytes.to_vec());
            }
            Place::Input(_) | Place::PeerInput(..) => unreachable!("inputs are only read"),
        }
    }
}
