//! Staging: every put, get and signal of a schedule becomes messages of its link.
//!
//! A link carries messages in order. A put is one message: the sender fills the slot, the receiver
//! empties it where the schedule waits. A signal that publishes no put is a message without payload.
//! A get is a message too: its owner sends the chunk right after the signal that the reader waited
//! for last, which is what the schedule's rules make a get mean.
//!
//! `inout` chunks are resolved here, with the verifier's facts: they are the input until first
//! written, the output after. Output chunks that a schedule never writes because `inout` already
//! holds them are copied.

use super::Options;
use ringsmith_ir::entity::{Buffer, Lane, LaneName, Link, OpAddress, Rank};
use ringsmith_ir::kernel_plan::{
    Counter, KernelLane, KernelLink, KernelOp, KernelOpKind, KernelPlan, Place, ScratchDecl, Source,
};
use ringsmith_ir::schedule::{self, BufferKind, OpKind, Protocol, Schedule, Slice};
use ringsmith_ir::verify::{Fact, Verified};
use std::collections::BTreeSet;

use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};

/// One message of a link.
#[derive(Clone, Copy)]
struct Message {
    /// What is sent; nothing for a bare signal.
    payload: Option<Payload>,
    /// The op that sends it.
    sent_by: OpAddress,
}

#[derive(Clone, Copy)]
struct Payload {
    src: Source,
    dst: Place,
    chunk: u32,
    /// The op of the schedule that names it.
    named_by: OpAddress,
}

/// What a schedule's signal publishes.
#[derive(Clone, Default)]
struct Group {
    puts: Vec<Message>,
    gets: Vec<Message>,
    /// Whether the group opens with a message without payload.
    bare: Option<OpAddress>,
}

impl Group {
    fn at_signal(&self) -> impl Iterator<Item = Message> + '_ {
        self.bare.map(|sent_by| Message { payload: None, sent_by }).into_iter()
    }
}

/// How a get of a peer's input reaches it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Gets {
    /// The peer sends it.
    Sent,
    /// It is read where it lies; what a peer has in scratch or has written is sent.
    Mapped,
}

/// Stages a schedule.
pub(super) fn stage(schedule: &Verified<Schedule>, options: Options, gets: Gets) -> KernelPlan {
    let mut stager = Stager { schedule, options, gets, groups: SecondaryMap::new(), copies: Vec::new() };
    stager.collect_groups();
    stager.collect_copies();
    stager.build()
}

struct Stager<'a> {
    schedule: &'a Verified<Schedule>,
    options: Options,
    gets: Gets,
    groups: SecondaryMap<Link, Vec<Group>>,
    /// Per rank: output chunks to be copied from the input.
    copies: Vec<BTreeSet<u32>>,
}

impl Stager<'_> {
    fn fact(&self, lane: Lane, op: usize) -> Fact {
        self.schedule.facts()[lane.index()][op]
    }

    fn reduces(&self) -> bool {
        self.schedule.collective.reduces()
    }

    /// A chunk as a source.
    fn source(&self, rank: Rank, slice: Slice, is_input: bool) -> Source {
        let place = match self.schedule.place(rank, slice) {
            schedule::Place::Input(chunk) => Place::Input(chunk),
            schedule::Place::Output(chunk) => Place::Output(chunk),
            schedule::Place::Inout(chunk) if is_input => Place::Input(chunk),
            schedule::Place::Inout(chunk) => Place::Output(chunk),
            schedule::Place::Scratch(buffer, chunk) => Place::Scratch(buffer, chunk),
        };
        Source { place, pre: is_input && self.reduces() }
    }

    /// A chunk as a destination.
    fn destination(&self, rank: Rank, slice: Slice) -> Place {
        match self.schedule.place(rank, slice) {
            schedule::Place::Input(_) => unreachable!("the verifier refuses writes of the input"),
            schedule::Place::Output(chunk) | schedule::Place::Inout(chunk) => Place::Output(chunk),
            schedule::Place::Scratch(buffer, chunk) => Place::Scratch(buffer, chunk),
        }
    }

    /// The input that a get reads where it lies.
    fn pulled(&self, lane: Lane, op: usize) -> Option<Source> {
        let OpKind::Get { peer, src, .. } = self.schedule.lanes[lane].ops[op].kind else { return None };
        if self.gets == Gets::Sent || self.options.protocol != Protocol::Simple {
            return None;
        }
        let Source { place: Place::Input(chunk), pre } =
            self.source(peer, src, self.fact(lane, op).src_is_input)
        else {
            return None;
        };
        Some(Source { place: Place::PeerInput(peer, chunk), pre })
    }

    fn collect_groups(&mut self) {
        for (lane, decl) in self.schedule.lanes.iter() {
            let rank = decl.name.rank;
            let mut open: SecondaryMap<Link, Vec<Message>> = SecondaryMap::new();
            for (index, op) in decl.ops.iter().enumerate() {
                let address = self.schedule.address(lane, index);
                match op.kind {
                    OpKind::Put { src, peer, dst, link } => {
                        let src = self.source(rank, src, self.fact(lane, index).src_is_input);
                        let dst = self.destination(peer, dst);
                        let chunk = self.fact(lane, index).chunk;
                        let payload = Some(Payload { src, dst, chunk, named_by: address });
                        open[link].push(Message { payload, sent_by: address });
                    }
                    OpKind::Signal { link } => {
                        let puts = std::mem::take(&mut open[link]);
                        let bare = puts.is_empty().then_some(address);
                        self.groups[link].push(Group { puts, gets: Vec::new(), bare });
                    }
                    OpKind::Get { .. }
                    | OpKind::Wait { .. }
                    | OpKind::Reduce { .. }
                    | OpKind::Copy { .. } => {}
                }
            }
        }
        for (lane, decl) in self.schedule.lanes.iter() {
            let rank = decl.name.rank;
            let mut waited: SecondaryMap<Link, usize> = SecondaryMap::new();
            for (index, op) in decl.ops.iter().enumerate() {
                match op.kind {
                    OpKind::Wait { link } => waited[link] += 1,
                    OpKind::Get { .. } if self.pulled(lane, index).is_some() => {}
                    OpKind::Get { peer, src, dst, link } => {
                        let src = self.source(peer, src, self.fact(lane, index).src_is_input);
                        let dst = self.destination(rank, dst);
                        let named_by = self.schedule.address(lane, index);
                        let chunk = self.fact(lane, index).chunk;
                        let payload = Some(Payload { src, dst, chunk, named_by });
                        self.groups[link][waited[link] - 1].gets.push(Message { payload, sent_by: named_by });
                    }
                    OpKind::Put { .. }
                    | OpKind::Signal { .. }
                    | OpKind::Reduce { .. }
                    | OpKind::Copy { .. } => {}
                }
            }
        }
    }

    /// Output chunks that only `inout` makes right: input and output under one name.
    fn collect_copies(&mut self) {
        self.copies = vec![BTreeSet::new(); self.schedule.ranks as usize];
        if !self.schedule.buffers.values().any(|b| b.kind == BufferKind::Inout) {
            return;
        }
        for rank in (0..self.schedule.ranks).map(Rank::from_u32) {
            let input = self.schedule.input_chunks(rank);
            self.copies[rank.index()] =
                self.schedule.output_chunks(rank).filter(|c| input.contains(c)).collect();
        }
        for decl in self.schedule.lanes.values() {
            for op in &decl.ops {
                let (rank, dst) = match op.kind {
                    OpKind::Put { peer, dst, .. } => (peer, dst),
                    OpKind::Get { dst, .. } | OpKind::Reduce { dst, .. } | OpKind::Copy { dst, .. } => {
                        (decl.name.rank, dst)
                    }
                    OpKind::Signal { .. } | OpKind::Wait { .. } => continue,
                };
                if let schedule::Place::Inout(chunk) = self.schedule.place(rank, dst) {
                    self.copies[rank.index()].remove(&chunk);
                }
            }
        }
    }

    fn build(mut self) -> KernelPlan {
        let mut lanes: PrimaryMap<Lane, KernelLane> = PrimaryMap::new();
        let mut ends: SecondaryMap<Link, (Option<LaneName>, Option<LaneName>)> = SecondaryMap::new();
        for rank in (0..self.schedule.ranks).map(Rank::from_u32) {
            let own: Vec<Lane> =
                self.schedule.lanes.iter().filter(|(_, d)| d.name.rank == rank).map(|(l, _)| l).collect();
            let mut own_lanes: Vec<KernelLane> = own
                .iter()
                .map(|lane| {
                    let name = self.schedule.lanes[*lane].name;
                    KernelLane { name, ops: self.lane(*lane, &mut ends) }
                })
                .collect();
            self.insert_copies(rank, &mut own_lanes);
            for lane in own_lanes {
                lanes.push(lane);
            }
        }
        let (links, renamed) = self.links(&ends);
        for lane in lanes.values_mut() {
            lane.ops.iter_mut().for_each(|op| rename_links(&mut op.kind, &renamed));
        }
        self.plan(lanes, links)
    }

    fn plan(&self, lanes: PrimaryMap<Lane, KernelLane>, links: PrimaryMap<Link, KernelLink>) -> KernelPlan {
        let schedule = self.schedule;
        KernelPlan {
            name: schedule.name.clone(),
            ranks: schedule.ranks,
            collective: schedule.collective,
            op: schedule.op,
            order: schedule.order,
            root: schedule.root,
            chunks: schedule.chunks,
            lanes_per_lane: schedule.lanes_per_lane,
            protocol: self.options.protocol,
            slots: self.options.slots,
            slot_bytes: self.options.slot_bytes,
            scratch: schedule
                .buffers
                .values()
                .map(|b| ScratchDecl {
                    name: b.name.clone(),
                    chunks: if b.kind == BufferKind::Scratch { b.chunks } else { 0 },
                })
                .collect(),
            links,
            lanes,
        }
    }

    /// The links that are used, numbered anew.
    fn links(
        &self,
        ends: &SecondaryMap<Link, (Option<LaneName>, Option<LaneName>)>,
    ) -> (PrimaryMap<Link, KernelLink>, SecondaryMap<Link, Option<Link>>) {
        let mut links = PrimaryMap::new();
        let mut renamed = SecondaryMap::new();
        for link in self.schedule.links.keys() {
            if let (Some(from), Some(to)) = ends[link] {
                let messages = self.groups[link].iter().map(|g| count(g) as u32).sum();
                renamed[link] = Some(links.push(KernelLink { from, to, messages }));
            }
        }
        (links, renamed)
    }

    fn lane(
        &self,
        lane: Lane,
        ends: &mut SecondaryMap<Link, (Option<LaneName>, Option<LaneName>)>,
    ) -> Vec<KernelOp> {
        let decl = &self.schedule.lanes[lane];
        let rank = decl.name.rank;
        let mut out = LaneBuilder { protocol: self.options.protocol, ops: Vec::new() };
        let mut sent: SecondaryMap<Link, u32> = SecondaryMap::new();
        let mut taken: SecondaryMap<Link, u32> = SecondaryMap::new();
        let mut signals: SecondaryMap<Link, usize> = SecondaryMap::new();
        let mut waits: SecondaryMap<Link, usize> = SecondaryMap::new();
        let mut puts: SecondaryMap<Link, usize> = SecondaryMap::new();
        for (index, op) in decl.ops.iter().enumerate() {
            let address = self.schedule.address(lane, index);
            let fact = self.fact(lane, index);
            match op.kind {
                OpKind::Put { link, .. } => {
                    ends[link].0 = Some(decl.name);
                    let message = self.groups[link][signals[link]].puts[puts[link]];
                    puts[link] += 1;
                    out.send(link, &mut sent[link], message, address);
                }
                OpKind::Signal { link } => {
                    ends[link].0 = Some(decl.name);
                    let group = &self.groups[link][signals[link]];
                    signals[link] += 1;
                    puts[link] = 0;
                    for message in group.at_signal().chain(group.gets.iter().copied()) {
                        out.send(link, &mut sent[link], message, address);
                    }
                    out.also_stands_for(address);
                }
                OpKind::Wait { link } => {
                    ends[link].1 = Some(decl.name);
                    let group = &self.groups[link][waits[link]];
                    waits[link] += 1;
                    for message in group.at_signal().chain(group.puts.iter().copied()) {
                        out.take(link, &mut taken[link], message, address);
                    }
                }
                OpKind::Get { dst, .. } if let Some(src) = self.pulled(lane, index) => {
                    let (dst, src) = (vec![self.destination(rank, dst)], vec![src]);
                    out.push(KernelOpKind::Move { dst, src, post: false, chunk: fact.chunk }, address);
                }
                OpKind::Get { link, .. } => {
                    ends[link].1 = Some(decl.name);
                    let group = &self.groups[link][waits[link] - 1];
                    let message = group
                        .gets
                        .iter()
                        .find(|m| m.payload.is_some_and(|p| p.named_by == address))
                        .expect("every get was collected");
                    out.take(link, &mut taken[link], *message, address);
                }
                OpKind::Reduce { dst, src } => {
                    let own = self.source(rank, dst, fact.dst_was_input);
                    let term = self.source(rank, src, fact.src_is_input);
                    let dst = vec![self.destination(rank, dst)];
                    let (src, post, chunk) = (vec![own, term], fact.completes, fact.chunk);
                    out.push(KernelOpKind::Move { dst, src, post, chunk }, address);
                }
                OpKind::Copy { dst, src } => {
                    let src = self.source(rank, src, fact.src_is_input);
                    let post = self.schedule.ranks == 1 && src.pre;
                    let dst = vec![self.destination(rank, dst)];
                    out.push(KernelOpKind::Move { dst, src: vec![src], post, chunk: fact.chunk }, address);
                }
            }
        }
        out.ops
    }

    /// Copies stand behind the first op that sends the same input, where fusing can join them, or at the
    /// end of the rank's first lane, which is made where it has none.
    fn insert_copies(&mut self, rank: Rank, lanes: &mut Vec<KernelLane>) {
        let copies = std::mem::take(&mut self.copies[rank.index()]);
        if lanes.is_empty() && !copies.is_empty() {
            lanes.push(KernelLane { name: LaneName { rank, index: 0 }, ops: Vec::new() });
        }
        let alone = self.schedule.ranks == 1 && self.reduces();
        for chunk in copies {
            let src = Source { place: Place::Input(chunk), pre: self.reduces() };
            let dst = vec![Place::Output(chunk)];
            let kind = KernelOpKind::Move { dst, src: vec![src], post: alone, chunk };
            let sends =
                |op: &KernelOp| matches!(&op.kind, KernelOpKind::Move { src: s, .. } if s[..] == [src]);
            let found = lanes
                .iter()
                .enumerate()
                .find_map(|(lane, l)| Some((lane, l.ops.iter().position(sends)? + 1)));
            let (lane, at) = found.unwrap_or((0, lanes[0].ops.len()));
            lanes[lane].ops.insert(at, KernelOp { kind, origin: Vec::new() });
        }
    }
}

fn count(group: &Group) -> usize {
    group.puts.len() + group.gets.len() + usize::from(group.bare.is_some())
}

/// Renames links in an op.
pub(super) fn rename_links(kind: &mut KernelOpKind, renamed: &SecondaryMap<Link, Option<Link>>) {
    let to = |link: &mut Link| *link = renamed[*link].expect("every used link has both ends");
    let place = |p: &mut Place| match p {
        Place::Slot(link) | Place::Cell(link, _) => to(link),
        Place::Input(_)
        | Place::Output(_)
        | Place::PeerInput(..)
        | Place::PeerOutput(..)
        | Place::Scratch(..) => {}
    };
    match kind {
        KernelOpKind::Wait(counter) | KernelOpKind::Signal(counter) => match counter {
            Counter::Full(link) | Counter::Free(link) | Counter::Cell(link, _) => to(link),
        },
        KernelOpKind::Move { dst, src, .. } => {
            dst.iter_mut().for_each(place);
            src.iter_mut().map(|s| &mut s.place).for_each(place);
        }
    }
}

struct LaneBuilder {
    protocol: Protocol,
    ops: Vec<KernelOp>,
}

impl LaneBuilder {
    fn push(&mut self, kind: KernelOpKind, origin: OpAddress) {
        self.ops.push(KernelOp { kind, origin: vec![origin] });
    }

    fn also_stands_for(&mut self, origin: OpAddress) {
        if let Some(op) = self.ops.last_mut()
            && !op.origin.contains(&origin)
            && matches!(op.kind, KernelOpKind::Signal(_))
        {
            op.origin.push(origin);
        }
    }

    fn send(&mut self, link: Link, sent: &mut u32, message: Message, origin: OpAddress) {
        let number = *sent;
        *sent += 1;
        let zone = self.protocol != Protocol::Simple;
        if !zone {
            self.push(KernelOpKind::Wait(Counter::Free(link)), origin);
        }
        if let Some(payload) = message.payload {
            let dst = vec![if zone { Place::Cell(link, number) } else { Place::Slot(link) }];
            let (src, chunk) = (vec![payload.src], payload.chunk);
            self.push(KernelOpKind::Move { dst, src, post: false, chunk }, message.sent_by);
        } else if zone {
            self.push(KernelOpKind::Signal(Counter::Cell(link, number)), origin);
        }
        if !zone {
            self.push(KernelOpKind::Signal(Counter::Full(link)), origin);
        }
    }

    fn take(&mut self, link: Link, taken: &mut u32, message: Message, origin: OpAddress) {
        let number = *taken;
        *taken += 1;
        let zone = self.protocol != Protocol::Simple;
        if !zone {
            self.push(KernelOpKind::Wait(Counter::Full(link)), origin);
        }
        if let Some(payload) = message.payload {
            let place = if zone { Place::Cell(link, number) } else { Place::Slot(link) };
            let src = vec![Source { place, pre: false }];
            let (dst, chunk) = (vec![payload.dst], payload.chunk);
            self.push(KernelOpKind::Move { dst, src, post: false, chunk }, origin);
        } else if zone {
            self.push(KernelOpKind::Wait(Counter::Cell(link, number)), origin);
        }
        if !zone {
            self.push(KernelOpKind::Signal(Counter::Free(link)), origin);
        }
    }
}

/// Drops scratch buffers that nothing uses and numbers the rest anew.
pub(super) fn compact_scratch(plan: &mut KernelPlan) {
    let mut used: SecondaryMap<Buffer, u32> = SecondaryMap::new();
    let mut note = |place: &Place| {
        if let Place::Scratch(buffer, chunk) = place {
            used[*buffer] = used[*buffer].max(chunk + 1);
        }
    };
    for op in plan.lanes.values().flat_map(|l| &l.ops) {
        if let KernelOpKind::Move { dst, src, .. } = &op.kind {
            dst.iter().for_each(&mut note);
            src.iter().map(|s| &s.place).for_each(&mut note);
        }
    }
    let mut renamed: SecondaryMap<Buffer, Option<Buffer>> = SecondaryMap::new();
    let mut kept = PrimaryMap::new();
    for (buffer, decl) in plan.scratch.iter() {
        if used[buffer] > 0 {
            renamed[buffer] = Some(kept.push(ScratchDecl { name: decl.name.clone(), chunks: used[buffer] }));
        }
    }
    plan.scratch = kept;
    let rename = |place: &mut Place| {
        if let Place::Scratch(buffer, _) = place {
            *buffer = renamed[*buffer].expect("used buffers are kept");
        }
    };
    for op in plan.lanes.values_mut().flat_map(|l| &mut l.ops) {
        if let KernelOpKind::Move { dst, src, .. } = &mut op.kind {
            dst.iter_mut().for_each(rename);
            src.iter_mut().map(|s| &mut s.place).for_each(rename);
        }
    }
}
