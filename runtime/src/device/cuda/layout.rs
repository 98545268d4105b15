//! Where everything lies in a rank's scratch on a GPU. All ranks have the same layout, so an address in a
//! peer's scratch is that scratch's start and an offset that both compute.
//!
//! | part | one for each | written by | read by |
//! | --- | --- | --- | --- |
//! | epochs | block | own kernels | own kernels |
//! | kept | end, block | own kernels | own kernels: each end's sequence number between launches |
//! | full | source, channel, block | the source, released | own waits, acquired |
//! | free | destination, channel, block | the destination, released | own waits, acquired |
//! | slots | source, channel, block, slot | the source | own moves |
//! | zones | protocol, parity, source | the source | own moves; flags and payload in one access |
//! | scratch | chunk | own moves | own moves |
//!
//! A word that was ever a flag is never payload: zones of the two protocols and slots are apart. Counters
//! count messages whatever plan sends them, so plans may share a channel.

use super::GpuError;
use ringsmith_compiler::emit::{Column, End};
use ringsmith_ir::entity::Link;
use ringsmith_ir::kernel_plan::{KernelOpKind, KernelPlan, Place};
use ringsmith_ir::schedule::Protocol;
use std::collections::BTreeSet;

/// Bytes from one counter to the next: what `COUNTER_WORDS` says in the templates.
const COUNTER_BYTES: u64 = 128;

/// What is fixed for a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Ranks.
    pub ranks: u32,
    /// The most thread blocks of a launch on one rank.
    pub max_blocks: u32,
    /// The most blocks of one lane of a FIFO plan: every FIFO has its slots once for each.
    pub fifo_blocks: u32,
    /// FIFOs from one rank to another.
    pub channels: u32,
    /// Of these, how many have slots; the others carry messages without payload.
    pub slot_channels: u32,
    /// Slots of a FIFO.
    pub slots: u32,
    /// Bytes of a slot: the largest tile.
    pub slot_bytes: u64,
    /// Bytes of lines that one rank sends another in a launch, with LL.
    pub ll_bytes: u64,
    /// The same with LL128.
    pub ll128_bytes: u64,
    /// Bytes for chunks of scratch.
    pub scratch_bytes: u64,
}

impl Geometry {
    /// What suits `ranks` ranks of which `local` share a GPU with `multiprocessors`. One rank sends nothing.
    pub fn for_ranks(ranks: u32, local: u32, multiprocessors: u32) -> Self {
        if ranks == 1 {
            return Self {
                ranks,
                max_blocks: 256,
                fifo_blocks: 66,
                channels: 1,
                slot_channels: 0,
                slots: 4,
                slot_bytes: 32 << 10,
                ll_bytes: 0,
                ll128_bytes: 0,
                scratch_bytes: 1024,
            };
        }
        let peers = u64::from(ranks.max(2) - 1);
        let fifo_blocks = (multiprocessors / local.max(1)).clamp(1, 66);
        Self {
            ranks,
            max_blocks: 256,
            fifo_blocks,
            channels: 4,
            slot_channels: 1,
            slots: 4,
            slot_bytes: 32 << 10,
            ll_bytes: ((512 << 10) / peers).next_multiple_of(128).max(64 << 10),
            ll128_bytes: ((4608 << 10) / peers).next_multiple_of(128).max(256 << 10),
            scratch_bytes: 4 << 20,
        }
    }

    /// Bytes of lines that one rank sends another in a launch.
    pub fn zone_bytes(&self, protocol: Protocol) -> u64 {
        match protocol {
            Protocol::Ll => self.ll_bytes,
            Protocol::Ll128 => self.ll128_bytes,
            Protocol::Simple => 0,
        }
    }

    /// From one parity of a zone to the other.
    pub fn parity_bytes(&self, protocol: Protocol) -> u64 {
        u64::from(self.ranks.max(2) - 1) * self.zone_bytes(protocol)
    }
}

/// Offsets of the parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    geometry: Geometry,
    kept: u64,
    full: u64,
    free: u64,
    ll: u64,
    ll128: u64,
    slots: u64,
    scratch: u64,
    bytes: u64,
}

impl Layout {
    /// Lays everything out.
    pub fn new(geometry: Geometry) -> Self {
        let g = &geometry;
        let peers = u64::from(g.ranks.max(2) - 1);
        let fifos = peers * u64::from(g.channels) * u64::from(g.fifo_blocks);
        let slotted = peers * u64::from(g.slot_channels) * u64::from(g.fifo_blocks);
        let mut end = 0;
        let mut part = |bytes: u64| {
            let start = end;
            end = (start + bytes).next_multiple_of(1024);
            start
        };
        part(4 * u64::from(g.max_blocks));
        let kept = part(2 * fifos * 8);
        let full = part(fifos * COUNTER_BYTES);
        let free = part(fifos * COUNTER_BYTES);
        let ll = part(2 * g.parity_bytes(Protocol::Ll));
        let ll128 = part(2 * g.parity_bytes(Protocol::Ll128));
        let slots = part(slotted * u64::from(g.slots) * g.slot_bytes);
        let scratch = part(g.scratch_bytes);
        Self { geometry, kept, full, free, ll, ll128, slots, scratch, bytes: end }
    }

    /// What is fixed.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of a rank's scratch.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes by purpose.
    pub fn purposes(&self) -> [(&'static str, u64); 5] {
        [
            ("counters", self.ll),
            ("LL zone", self.ll128 - self.ll),
            ("LL128 zone", self.slots - self.ll128),
            ("FIFO slots", self.scratch - self.slots),
            ("scratch", self.bytes - self.scratch),
        ]
    }

    /// Where ranks leave marks while they join, a word for each: memory that no kernel believes anything of.
    pub(super) fn marks(&self) -> u64 {
        self.scratch
    }

    /// A peer's place among a rank's peers.
    fn peer(&self, rank: u32, peer: u32) -> u64 {
        u64::from((peer + self.geometry.ranks - rank - 1) % self.geometry.ranks)
    }

    fn fifo(&self, rank: u32, peer: u32, channel: u32) -> u64 {
        let g = &self.geometry;
        (self.peer(rank, peer) * u64::from(g.channels) + u64::from(channel)) * u64::from(g.fifo_blocks)
    }

    /// The four columns of an end: slots, the counter waited for, the counter signalled, the kept word.
    /// `base` gives the start of each rank's scratch.
    pub(super) fn end(&self, base: &[u64], (from, to): (u32, u32), channel: u32, sends: bool) -> [u64; 4] {
        let g = &self.geometry;
        let at = |rank: u32, part: u64, offset: u64| base[rank as usize] + part + offset;
        let full = at(to, self.full, self.fifo(to, from, channel) * COUNTER_BYTES);
        let free = at(from, self.free, self.fifo(from, to, channel) * COUNTER_BYTES);
        let slot = (self.peer(to, from) * u64::from(g.slot_channels) + u64::from(channel))
            * u64::from(g.fifo_blocks)
            * u64::from(g.slots)
            * g.slot_bytes;
        // A channel without slots has no place for any; nothing of it is used.
        let slots = if channel < g.slot_channels { at(to, self.slots, slot) } else { 0 };
        let peers = u64::from(g.ranks.max(2) - 1);
        let sent = peers * u64::from(g.channels) * u64::from(g.fifo_blocks);
        if sends {
            [slots, free, full, at(from, self.kept, self.fifo(from, to, channel) * 8)]
        } else {
            [slots, full, free, at(to, self.kept, (sent + self.fifo(to, from, channel)) * 8)]
        }
    }
}

/// A plan's links and scratch, placed.
pub(super) struct Placement<'a> {
    plan: &'a KernelPlan,
    layout: &'a Layout,
    /// Channel of each link.
    channels: Vec<u32>,
    /// First cell of each link within its pair, and the pair's cells.
    cells: Vec<(u32, u32)>,
    scratch_chunks: u32,
    scratch_blocks: u32,
}

impl<'a> Placement<'a> {
    /// Gives every link a channel of its pair: those with payload from the first, the others from the last.
    ///
    /// Errors: more links between two ranks than there are channels.
    pub(super) fn new(plan: &'a KernelPlan, layout: &'a Layout) -> Result<Self, GpuError> {
        let g = layout.geometry();
        let loaded = links_with_payload(plan);
        let mut channels = Vec::new();
        let mut cells = Vec::new();
        for (link, decl) in plan.links.iter() {
            let same = |other: &Link| {
                let o = &plan.links[*other];
                (o.from.rank, o.to.rank) == (decl.from.rank, decl.to.rank)
            };
            let before: Vec<Link> = plan.links.keys().take_while(|l| *l != link).filter(same).collect();
            let all: u32 = plan.links.keys().filter(same).map(|l| plan.links[l].messages).sum();
            cells.push((before.iter().map(|l| plan.links[*l].messages).sum(), all.max(1)));
            let has_payload = loaded.contains(&link);
            let earlier = before.iter().filter(|l| loaded.contains(l) == has_payload).count() as u32;
            let fits =
                if has_payload { earlier < g.slot_channels } else { earlier + g.slot_channels < g.channels };
            if plan.protocol == Protocol::Simple && !fits {
                return Err(GpuError::Plan(format!(
                    "plan @{} has more links from {} to {} than the communicator's {} channels",
                    plan.name, decl.from.rank, decl.to.rank, g.channels
                )));
            }
            channels.push(if has_payload { earlier } else { g.channels.saturating_sub(1 + earlier) });
        }
        let scratch_chunks = plan.scratch.values().map(|s| s.chunks).sum();
        let scratch_blocks = if plan.protocol == Protocol::Simple { g.fifo_blocks } else { 1 };
        Ok(Self { plan, layout, channels, cells, scratch_chunks, scratch_blocks })
    }

    /// Bytes that a cell holds lines for.
    pub(super) fn cell_bytes(&self) -> u64 {
        let most = self.cells.iter().map(|c| c.1).max().unwrap_or(1);
        self.layout.geometry.zone_bytes(self.plan.protocol) / u64::from(most) / 128 * 128
    }

    /// Bytes of a chunk of scratch, for one block.
    pub(super) fn scratch_bytes(&self) -> u64 {
        let chunks = u64::from(self.scratch_chunks.max(1)) * u64::from(self.scratch_blocks);
        self.layout.geometry.scratch_bytes / chunks / 128 * 128
    }

    /// The columns of an end of a FIFO.
    pub(super) fn end(&self, base: &[u64], end: End) -> [u64; 4] {
        use cranelift_entity::EntityRef;
        let decl = &self.plan.links[end.link];
        let ranks = (decl.from.rank.as_u32(), decl.to.rank.as_u32());
        self.layout.end(base, ranks, self.channels[end.link.index()], end.sends)
    }

    /// The value of a column, for `rank`.
    pub(super) fn column(&self, base: &[u64], rank: u32, column: Column) -> u64 {
        use cranelift_entity::EntityRef;
        let layout = self.layout;
        match column {
            Column::Chunk(value) | Column::Number(value) => value,
            Column::Rank(rank) => u64::from(rank),
            Column::Cell(link, cell) => {
                let decl = &self.plan.links[link];
                let (from, to) = (decl.from.rank.as_u32(), decl.to.rank.as_u32());
                let zone = if self.plan.protocol == Protocol::Ll { layout.ll } else { layout.ll128 };
                let area = layout.geometry.zone_bytes(self.plan.protocol);
                let first = u64::from(self.cells[link.index()].0 + cell);
                base[to as usize] + zone + layout.peer(to, from) * area + first * self.cell_bytes()
            }
            Column::Scratch(chunk) => {
                let each = self.scratch_bytes() * u64::from(self.scratch_blocks);
                base[rank as usize] + layout.scratch + u64::from(chunk) * each
            }
        }
    }
}

fn links_with_payload(plan: &KernelPlan) -> BTreeSet<Link> {
    let mut found = BTreeSet::new();
    for op in plan.lanes.values().flat_map(|lane| &lane.ops) {
        let KernelOpKind::Move { dst, .. } = &op.kind else { continue };
        found.extend(dst.iter().filter_map(|place| match place {
            Place::Slot(link) => Some(*link),
            Place::Input(_)
            | Place::Output(_)
            | Place::PeerInput(..)
            | Place::PeerOutput(..)
            | Place::Scratch(..)
            | Place::Cell(..) => None,
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringsmith_compiler::plan::{Filter, candidates, gpu};
    use ringsmith_compiler::{emit, lower};
    use ringsmith_ir::types::{Collective, DataType, ReduceOp};
    use ringsmith_ir::{expand, verify};

    #[test]
    fn one_rank_needs_next_to_nothing() {
        let layout = Layout::new(Geometry::for_ranks(1, 1, 132));
        assert!(layout.bytes() < 64 << 10, "{:?}", layout.purposes());
        for collective in Collective::ALL {
            if matches!(collective, Collective::AllToAllV | Collective::SendRecv) {
                continue;
            }
            let op = collective.reduces().then_some(ReduceOp::Sum);
            let root = collective.rooted().then_some(0);
            let request = gpu::Request { collective, op, root, ranks: 1, bytes: 1 << 30, maps_buffers: true };
            let fits = |plan: &gpu::Plan| {
                let schedule = expand::expand(&plan.program, &plan.arguments).expect("it expands");
                let schedule = verify::schedule(schedule).expect("it is right");
                let options = lower::Options { protocol: plan.protocol, slots: 4, slot_bytes: 32 << 10 };
                let plan = lower::lower_direct(&schedule, options).expect("it lowers");
                plan.links.is_empty() && plan.scratch.is_empty()
            };
            assert!(gpu::plans(&request, &Filter::Any, &Filter::Any).iter().any(fits), "{collective}");
        }
    }

    /// Whoever asks for an algorithm by name gets it, between processes too.
    #[test]
    fn every_algorithm_has_room_with_some_protocol() {
        for ranks in 2..=8 {
            let layout = Layout::new(Geometry::for_ranks(ranks, 1, 132));
            for collective in Collective::ALL {
                for algorithm in candidates(collective).iter().filter(|a| a.applies.holds(ranks)) {
                    let op = collective.reduces().then_some(ReduceOp::Sum);
                    let root = collective.rooted().then_some(0);
                    let request =
                        gpu::Request { collective, op, root, ranks, bytes: 1 << 16, maps_buffers: false };
                    let only = Filter::Only(vec![algorithm.name.to_owned()]);
                    let has_room = |plan: &gpu::Plan| {
                        let schedule = expand::expand(&plan.program, &plan.arguments).expect("it expands");
                        let schedule = verify::schedule(schedule).expect("it is right");
                        let options =
                            lower::Options { protocol: plan.protocol, slots: 4, slot_bytes: 32 << 10 };
                        let lowered = lower::lower(&schedule, options).expect("it lowers");
                        Placement::new(&lowered, &layout).is_ok()
                    };
                    let plans = gpu::plans(&request, &only, &Filter::Any);
                    let without: Vec<_> = plans.iter().filter(|p| !has_room(p)).map(|p| p.protocol).collect();
                    // Both trees have links between some two ranks, and of FIFOs with slots there is one.
                    let expected =
                        if algorithm.name == "double_tree" { &[Protocol::Simple][..] } else { &[] };
                    assert_eq!(without, expected, "{collective} {} of {ranks} ranks", algorithm.name);
                }
            }
        }
    }

    /// What is compiled at a first call between processes must not keep ranks waiting: NVRTC takes about a second for
    /// 30,000 bytes, and more than its share beyond.
    #[test]
    fn kernels_between_processes_are_short() {
        for ranks in 2..=8 {
            let layout = Layout::new(Geometry::for_ranks(ranks, 1, 132));
            for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather] {
                for bytes in [8, 1 << 20, 1 << 30] {
                    let op = collective.reduces().then_some(ReduceOp::Sum);
                    let request =
                        gpu::Request { collective, op, root: None, ranks, bytes, maps_buffers: false };
                    let kernel = gpu::plans(&request, &Filter::Any, &Filter::Any).iter().find_map(|plan| {
                        let schedule = expand::expand(&plan.program, &plan.arguments).expect("it expands");
                        let schedule = verify::schedule(schedule).expect("it is right");
                        let tile_bytes = u64::from(plan.threads * plan.unroll) * 16;
                        let options =
                            lower::Options { protocol: plan.protocol, slots: 4, slot_bytes: tile_bytes };
                        let lowered = lower::lower(&schedule, options).expect("it lowers");
                        Placement::new(&lowered, &layout).ok()?;
                        let options = emit::Options {
                            dtype: DataType::Float32,
                            op,
                            access: emit::Access::Vector,
                            threads: plan.threads,
                            unroll: plan.unroll,
                            resident: 1,
                            local_ranks: 1,
                            max_blocks: 256,
                            parity_bytes: 1 << 20,
                            slot_bytes: 32 << 10,
                        };
                        Some(emit::emit(&lowered, &options).expect("it emits"))
                    });
                    let length = kernel.expect("there is a plan").source.len();
                    assert!(length < 64 << 10, "{request:?}: {length} bytes");
                }
            }
        }
    }
}
