//! A kernel plan as one rank runs it: its own lanes, with links resolved to the communicator's FIFOs
//! and zones.
//!
//! Links between an ordered pair of ranks take that pair's channels in the order of their ids, the
//! same on both ends. Made once per plan; counts and pointers come with each launch.

use crate::error::Error;
use crate::transport::Geometry;
use cranelift_entity::{EntityRef, SecondaryMap};
use ringsmith_ir::entity::{Lane, Link, OpAddress, Rank};
use ringsmith_ir::kernel_plan::{Counter, KernelOp, KernelOpKind, KernelPlan, Place};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::verify::Verified;
use std::collections::BTreeMap;

/// One end of a FIFO: an index into the communicator's ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Port(pub(crate) u32);

/// A cell of the zone shared with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ZoneCell {
    pub(crate) peer: u32,
    pub(crate) index: u32,
}

/// Where a move reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalPlace {
    Input(u32),
    Output(u32),
    /// Chunk of scratch, numbered over all scratch buffers.
    Scratch(u32),
    Slot(Port),
    Cell(ZoneCell),
}

/// A source of a move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalSource {
    pub(crate) place: LocalPlace,
    pub(crate) pre: bool,
}

/// A move of this rank.
#[derive(Clone, Debug)]
pub(crate) struct LocalMove {
    pub(crate) dst: Box<[LocalPlace]>,
    pub(crate) src: Box<[LocalSource]>,
    pub(crate) post: bool,
    pub(crate) chunk: u32,
}

/// An op of this rank.
#[derive(Clone, Debug)]
pub(crate) enum LocalOp {
    WaitFull(Port),
    WaitFree(Port),
    SignalFull(Port),
    SignalFree(Port),
    WaitCell(ZoneCell),
    SignalCell(ZoneCell),
    Move(LocalMove),
}

/// A lane of this rank.
#[derive(Clone, Debug)]
pub(crate) struct LocalLane {
    lane: Lane,
    pub(crate) ops: Box<[LocalOp]>,
}

/// A kernel plan, resolved for one rank of one communicator.
#[derive(Debug)]
pub(crate) struct LocalPlan {
    plan: Verified<KernelPlan>,
    pub(crate) lanes: Box<[LocalLane]>,
    pub(crate) scratch_chunks: u32,
    /// Channels, for people: as planned, or else the most links from one rank to another.
    pub(crate) channels: u32,
}

/// The port of a FIFO: those that this rank sends on come first.
pub(crate) fn port(geometry: &Geometry, sends: bool, peer: u32, channel: u32) -> Port {
    let direction = if sends { 0 } else { geometry.ranks };
    Port((direction + peer) * geometry.channels + channel)
}

/// The peer and channel of a port, and whether this rank sends on it.
pub(crate) fn describe_port(geometry: &Geometry, port: Port) -> (bool, u32, u32) {
    let peer = port.0 / geometry.channels;
    (peer < geometry.ranks, peer % geometry.ranks, port.0 % geometry.channels)
}

impl LocalPlan {
    /// Resolves a plan.
    ///
    /// Errors: `Unsupported` when the plan needs more channels, slots or cells than the communicator has.
    pub(crate) fn new(plan: Verified<KernelPlan>, rank: u32, geometry: &Geometry) -> Result<Self, Error> {
        check_fits(&plan, geometry)?;
        let channels = channels(&plan);
        let mut scratch_base = Vec::new();
        let mut scratch_chunks = 0;
        for decl in plan.scratch.values() {
            scratch_base.push(scratch_chunks);
            scratch_chunks += decl.chunks;
        }
        let resolver = Resolver { plan: &plan, geometry, channels: &channels, scratch_base: &scratch_base };
        let lanes = plan
            .lanes
            .iter()
            .filter(|(_, decl)| decl.name.rank == Rank::from_u32(rank))
            .map(|(lane, decl)| LocalLane {
                lane,
                ops: decl.ops.iter().map(|op| resolver.op(&op.kind)).collect(),
            })
            .collect();
        let channels = channels.values().max().map_or(1, |last| last + 1);
        Ok(Self { lanes, scratch_chunks, channels, plan })
    }

    /// The proved plan.
    pub(crate) fn plan(&self) -> &Verified<KernelPlan> {
        &self.plan
    }

    /// The address of an op of this rank in the schedule the plan came from, else in the plan.
    pub(crate) fn address(&self, lane: usize, op: usize) -> OpAddress {
        let lane = self.lanes[lane].lane;
        let origin = self.plan.lanes[lane].ops.get(op).and_then(|op| op.origin.first());
        origin.copied().unwrap_or_else(|| self.plan.address(lane, op))
    }
}

fn check_fits(plan: &KernelPlan, geometry: &Geometry) -> Result<(), Error> {
    let refuse = |detail: String| Error::Unsupported { operation: format!("plan @{}", plan.name), detail };
    if plan.ranks != geometry.ranks {
        return Err(refuse(format!(
            "it is for {} ranks, the communicator has {}",
            plan.ranks, geometry.ranks
        )));
    }
    let is_peer = |op: &KernelOp| match &op.kind {
        KernelOpKind::Move { dst, src, .. } => {
            let mut places = dst.iter().copied().chain(src.iter().map(|s| s.place));
            places.any(|place| matches!(place, Place::PeerInput(..) | Place::PeerOutput(..)))
        }
        KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => false,
    };
    if plan.lanes.values().flat_map(|lane| &lane.ops).any(is_peer) {
        return Err(refuse("it uses other ranks' buffers, which are not mapped here".to_owned()));
    }
    if plan.lanes_per_lane != 1 {
        return Err(refuse(format!(
            "`lanes {}` is for devices with many blocks; this device runs one slice a lane",
            plan.lanes_per_lane
        )));
    }
    match plan.protocol {
        Protocol::Simple => {
            let needed = channels(plan).values().max().map_or(0, |c| c + 1);
            if needed > geometry.channels {
                return Err(refuse(format!(
                    "it joins a pair of ranks by {needed} links, the communicator has {} channels; raise RINGSMITH_MAX_CHANNELS",
                    geometry.channels
                )));
            }
            if plan.slots != geometry.slots {
                return Err(refuse(format!(
                    "it was proved with {} slots, the communicator has {}",
                    plan.slots, geometry.slots
                )));
            }
        }
        Protocol::Ll | Protocol::Ll128 => {
            let cells = cells(plan).values().max().copied().unwrap_or(0);
            if cells > geometry.zone_cells {
                return Err(refuse(format!(
                    "it sends {cells} messages between a pair of ranks, an epoch zone has {} cells; use protocol simple",
                    geometry.zone_cells
                )));
            }
        }
    }
    Ok(())
}

/// The channel of each link: its position among the links of its ordered pair.
fn channels(plan: &KernelPlan) -> SecondaryMap<Link, u32> {
    let mut used: BTreeMap<(Rank, Rank), u32> = BTreeMap::new();
    let mut channels = SecondaryMap::new();
    for (link, decl) in plan.links.iter() {
        let next = used.entry((decl.from.rank, decl.to.rank)).or_default();
        channels[link] = *next;
        *next += 1;
    }
    channels
}

/// Cells that each ordered pair of ranks needs.
fn cells(plan: &KernelPlan) -> BTreeMap<(Rank, Rank), u32> {
    let mut cells: BTreeMap<(Rank, Rank), u32> = BTreeMap::new();
    for decl in plan.links.values() {
        *cells.entry((decl.from.rank, decl.to.rank)).or_default() += decl.messages;
    }
    cells
}

struct Resolver<'a> {
    plan: &'a KernelPlan,
    geometry: &'a Geometry,
    channels: &'a SecondaryMap<Link, u32>,
    scratch_base: &'a [u32],
}

impl Resolver<'_> {
    fn op(&self, kind: &KernelOpKind) -> LocalOp {
        match kind {
            KernelOpKind::Wait(Counter::Full(link)) => LocalOp::WaitFull(self.port(*link, false)),
            KernelOpKind::Wait(Counter::Free(link)) => LocalOp::WaitFree(self.port(*link, true)),
            KernelOpKind::Wait(Counter::Cell(link, cell)) => {
                LocalOp::WaitCell(self.cell(*link, *cell, false))
            }
            KernelOpKind::Signal(Counter::Full(link)) => LocalOp::SignalFull(self.port(*link, true)),
            KernelOpKind::Signal(Counter::Free(link)) => LocalOp::SignalFree(self.port(*link, false)),
            KernelOpKind::Signal(Counter::Cell(link, cell)) => {
                LocalOp::SignalCell(self.cell(*link, *cell, true))
            }
            KernelOpKind::Move { dst, src, post, chunk } => LocalOp::Move(LocalMove {
                dst: dst.iter().map(|p| self.place(*p, true)).collect(),
                src: src
                    .iter()
                    .map(|s| LocalSource { place: self.place(s.place, false), pre: s.pre })
                    .collect(),
                post: *post,
                chunk: *chunk,
            }),
        }
    }

    fn port(&self, link: Link, sends: bool) -> Port {
        let decl = &self.plan.links[link];
        let peer = if sends { decl.to.rank } else { decl.from.rank };
        port(self.geometry, sends, peer.as_u32(), self.channels[link])
    }

    /// Cells of the links of one ordered pair follow each other in the pair's zone.
    fn cell(&self, link: Link, cell: u32, sends: bool) -> ZoneCell {
        let decl = &self.plan.links[link];
        let before: u32 = self
            .plan
            .links
            .iter()
            .take_while(|(other, _)| *other != link)
            .filter(|(_, o)| (o.from.rank, o.to.rank) == (decl.from.rank, decl.to.rank))
            .map(|(_, o)| o.messages)
            .sum();
        let peer = if sends { decl.to.rank } else { decl.from.rank };
        ZoneCell { peer: peer.as_u32(), index: before + cell }
    }

    fn place(&self, place: Place, writes: bool) -> LocalPlace {
        match place {
            Place::Input(chunk) => LocalPlace::Input(chunk),
            Place::Output(chunk) => LocalPlace::Output(chunk),
            Place::PeerInput(..) | Place::PeerOutput(..) => {
                unreachable!("`check_fits` refuses plans that use peers' buffers")
            }
            Place::Scratch(buffer, chunk) => LocalPlace::Scratch(self.scratch_base[buffer.index()] + chunk),
            Place::Slot(link) => LocalPlace::Slot(self.port(link, writes)),
            Place::Cell(link, cell) => LocalPlace::Cell(self.cell(link, cell, writes)),
        }
    }
}
