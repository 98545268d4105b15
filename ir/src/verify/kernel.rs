//! The verifier on kernel plans: the same machine, with slots, tiles and launches made real.
//!
//! # Why one and two tiles are enough
//! An end of a FIFO uses one message after the other: it waits, uses the slot, signals (V0607), and both
//! ends have the same number of messages in every tile (V0601). So message k of a link belongs to the
//! same tile at both ends, and no op waits for anything of a later tile: what orders two ops of one
//! tile lies within that tile, and what orders neighbouring tiles lies within these two. User memory,
//! slots, cycles and results are decided by one tile; scratch, which tiles share, by two. A launch
//! begins where the one before ended, with every slot free, so it adds nothing but order. The second
//! launch is run all the same; zones need a third, which meets the first one's parity.
//! docs/verifier.md has the argument at length.

use super::Verified;
use super::bounds::{self, MAX_FOUND};
use super::kernel_rules::check_static;
use super::machine::{Collision, Machine, OpRef, Race};
use super::postcondition::expected;
use super::report::{cycles, finish};
use super::value::{Content, Input, Value};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::entity::{Lane, LaneName, Link, Rank};
use crate::kernel_plan::{Counter, KernelLink, KernelOpKind, KernelPlan, Place, Source};
use crate::schedule::{Order, Protocol};
use crate::types::Collective;
use cranelift_entity::EntityRef;
use std::collections::{BTreeMap, HashSet};

/// One run of a proof.
struct Pass {
    tiles: u16,
    launches: u16,
    in_place: bool,
}

/// What stands for any number of tiles and launches. Where input and output lie matters to user memory
/// only, which one tile decides.
const FIFO_PASSES: &[Pass] = &[
    Pass { tiles: 1, launches: 2, in_place: false },
    Pass { tiles: 1, launches: 2, in_place: true },
    Pass { tiles: 2, launches: 2, in_place: false },
];

/// A message of a zone plan is never cut into tiles; its third launch uses the parity of the first.
const ZONE_PASSES: &[Pass] =
    &[Pass { tiles: 1, launches: 3, in_place: false }, Pass { tiles: 1, launches: 3, in_place: true }];

const fn is_zone(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Simple)
}

const fn passes_of(protocol: Protocol) -> &'static [Pass] {
    if is_zone(protocol) { ZONE_PASSES } else { FIFO_PASSES }
}

/// How often a proof runs each op of a kernel plan: for all tiles, launches and layouts. This times
/// the number of ops may be [`MAX_STEPS`](super::MAX_STEPS).
pub fn passes(protocol: Protocol) -> u64 {
    passes_of(protocol).iter().map(|p| u64::from(p.tiles) * u64::from(p.launches)).sum()
}

/// Proves a kernel plan, or says everything that is wrong with it.
///
/// Errors: one diagnostic per mistake; places are op addresses in the message, since a kernel plan
/// is seldom a text that somebody wrote.
pub fn kernel_plan(plan: KernelPlan) -> Result<Verified<KernelPlan>, Vec<Diagnostic>> {
    let found = check_static(&plan);
    if !found.is_empty() {
        return Err(finish(found));
    }
    bounds::check(&size(&plan)).map_err(|d| vec![d])?;
    for pass in passes_of(plan.protocol) {
        if pass.in_place && !may_be_in_place(plan.collective) {
            continue;
        }
        let found = Run::new(&plan, pass.tiles, pass.in_place).run(pass.launches);
        if !found.is_empty() {
            return Err(finish(with_context(found, pass.tiles, pass.in_place)));
        }
    }
    Ok(Verified { value: plan, facts: () })
}

/// Whether input and output can be the same memory. Messages whose sizes only the call knows have no
/// offsets at which they could be: callers keep them apart.
fn may_be_in_place(collective: Collective) -> bool {
    !matches!(collective, Collective::AllToAllV | Collective::SendRecv)
}

fn size(plan: &KernelPlan) -> bounds::Size {
    let zone = is_zone(plan.protocol);
    let tiles = passes_of(plan.protocol).iter().map(|p| u64::from(p.tiles)).max().unwrap_or(1);
    let scratch = plan.scratch.values().map(|s| u64::from(s.chunks)).sum::<u64>();
    let per_link = |messages: u32| if zone { 2 * u64::from(messages) } else { u64::from(plan.slots) };
    let on_links = plan.links.values().map(|l| per_link(l.messages)).sum::<u64>();
    let inputs = |r: u32| input_chunks(plan, Rank::from_u32(r)).len() as u64;
    bounds::Size {
        steps: passes(plan.protocol) * plan.lanes.values().map(|l| l.ops.len() as u64).sum::<u64>(),
        locations: u64::from(plan.ranks) * (2 * tiles * u64::from(plan.chunks) + scratch) + on_links,
        lanes: plan.lanes.len(),
        inputs: tiles * (0..plan.ranks).map(inputs).sum::<u64>(),
        ranks: plan.ranks,
    }
}

fn with_context(found: Vec<Diagnostic>, tiles: u16, in_place: bool) -> Vec<Diagnostic> {
    let layout = if in_place { "input and output the same memory" } else { "input and output apart" };
    let plural = if tiles == 1 { "" } else { "s" };
    found.into_iter().map(|d| d.note(format!("found with {tiles} tile{plural} a chunk, {layout}"))).collect()
}

pub(super) fn wrong(code: &'static str, message: String) -> Diagnostic {
    Diagnostic::new(Code(code), message, Span::default(), "in the kernel plan")
}

pub(super) fn input_chunks(plan: &KernelPlan, rank: Rank) -> std::ops::Range<u32> {
    crate::schedule::input_chunks(plan.collective, plan.root, plan.chunks, plan.chunks_per_block(), rank)
}

pub(super) fn output_chunks(plan: &KernelPlan, rank: Rank) -> std::ops::Range<u32> {
    crate::schedule::output_chunks(plan.collective, plan.root, plan.chunks, plan.chunks_per_block(), rank)
}

/// Where a lane stands.
#[derive(Clone, Copy, Default)]
struct Position {
    tile: u16,
    op: usize,
    /// Sources of the current move whose cells have been waited for.
    waited: usize,
}

/// Each end's sequence number of a link.
#[derive(Clone, Copy, Default)]
struct Sequence {
    sent: usize,
    taken: usize,
    /// Whether something has been written into the slot that is published next.
    filled: bool,
}

/// One run: a number of tiles and a layout.
pub(super) struct Run<'a> {
    pub(super) plan: &'a KernelPlan,
    tiles: u16,
    in_place: bool,
    launch: u16,
    pub(super) machine: Machine,
    at: Vec<Position>,
    sequence: Vec<Sequence>,
    /// Each lane's tick when the launch began.
    pub(super) started: Vec<u32>,
    /// Uses of peers' inputs and outputs in this launch: owner, op, its tick, and what is done.
    pub(super) peer_uses: Vec<(Rank, OpRef, u32, &'static str)>,
    /// First location of each rank's user memory and scratch.
    per_rank: usize,
    scratch_base: Vec<usize>,
    slot_base: usize,
    cell_base: Vec<usize>,
    pub(super) lanes_of: Vec<Vec<Lane>>,
    lane_by_name: BTreeMap<LaneName, Lane>,
    pub(super) found: Vec<Diagnostic>,
}

impl<'a> Run<'a> {
    fn new(plan: &'a KernelPlan, tiles: u16, in_place: bool) -> Self {
        let user = plan.chunks as usize * tiles as usize * if in_place { 1 } else { 2 };
        let mut per_rank = user;
        let mut scratch_base = Vec::new();
        for decl in plan.scratch.values() {
            scratch_base.push(per_rank);
            per_rank += decl.chunks as usize;
        }
        let ranks = plan.ranks as usize;
        let slot_base = per_rank * ranks;
        let mut cells = 0;
        let mut cell_base = Vec::new();
        for link in plan.links.values() {
            cell_base.push(cells);
            cells += 2 * link.messages as usize;
        }
        let links = plan.links.len();
        let (counters, slots) = match plan.protocol {
            Protocol::Simple => (2 * links, links * plan.slots as usize),
            Protocol::Ll | Protocol::Ll128 => (cells, cells),
        };
        let mut lanes_of = vec![Vec::new(); ranks];
        for (lane, decl) in plan.lanes.iter() {
            lanes_of[decl.name.rank.index()].push(lane);
        }
        let mut machine = Machine::new(plan.ranks, plan.lanes.len(), counters, slot_base + slots);
        if plan.protocol == Protocol::Simple {
            (0..links).for_each(|link| machine.preload(2 * link + 1, plan.slots));
        }
        Self {
            plan,
            tiles,
            in_place,
            launch: 0,
            machine,
            at: Vec::new(),
            sequence: vec![Sequence::default(); links],
            started: Vec::new(),
            peer_uses: Vec::new(),
            per_rank,
            scratch_base,
            slot_base,
            cell_base,
            lanes_of,
            lane_by_name: plan.lanes.iter().map(|(l, d)| (d.name, l)).collect(),
            found: Vec::new(),
        }
    }

    fn run(mut self, launches: u16) -> Vec<Diagnostic> {
        for launch in 0..launches {
            self.launch = launch;
            self.begin();
            let mut ready: Vec<Lane> = self.plan.lanes.keys().collect();
            while let Some(lane) = ready.pop() {
                while self.step(lane) {
                    if self.machine.is_exhausted() {
                        return vec![bounds::outgrown()];
                    }
                }
                ready.append(&mut self.machine.woken);
            }
            self.report_collisions();
            if self.report_stuck() {
                break;
            }
            self.check_balance();
            self.check_owners_stay();
            if launch == 0 && self.plan.protocol != Protocol::Simple {
                self.check_synchronising();
            }
            if self.found.is_empty() {
                self.check_results();
            }
            if !self.found.is_empty() {
                break;
            }
            for lanes in &self.lanes_of {
                self.machine.join(lanes);
            }
        }
        self.found
    }

    /// Gives every rank fresh inputs, and undefined outputs and scratch.
    fn begin(&mut self) {
        self.at = vec![Position::default(); self.plan.lanes.len()];
        self.started = self.plan.lanes.keys().map(|l| self.machine.seen(l, l)).collect();
        for rank in (0..self.plan.ranks).map(Rank::from_u32) {
            let first = rank.index() * self.per_rank;
            let user = self.scratch_base.first().copied().unwrap_or(self.per_rank);
            for location in first..first + self.per_rank {
                self.machine.define(location, Value::UNDEFINED);
                if location < first + user {
                    self.machine.release(location);
                }
            }
            for chunk in input_chunks(self.plan, rank) {
                for tile in 0..self.tiles {
                    let input = Input { rank: rank.as_u32(), chunk, tile, launch: self.launch };
                    let value = self.machine.values.input(input);
                    let location = self.user(rank, chunk, tile, false);
                    self.machine.define(location, value);
                }
            }
        }
    }

    fn user(&self, rank: Rank, chunk: u32, tile: u16, output: bool) -> usize {
        let tiles = self.tiles as usize;
        let apart = if output && !self.in_place { self.plan.chunks as usize * tiles } else { 0 };
        rank.index() * self.per_rank + apart + chunk as usize * tiles + tile as usize
    }

    fn cell(&self, link: Link, cell: u32) -> usize {
        self.cell_base[link.index()] + 2 * cell as usize + usize::from(self.launch & 1)
    }

    fn location(&self, rank: Rank, tile: u16, place: Place, writes: bool) -> usize {
        let slots = self.plan.slots as usize;
        match place {
            Place::Input(chunk) => self.user(rank, chunk, tile, false),
            Place::Output(chunk) => self.user(rank, chunk, tile, true),
            Place::PeerInput(peer, chunk) => self.user(peer, chunk, tile, false),
            Place::PeerOutput(peer, chunk) => self.user(peer, chunk, tile, true),
            Place::Scratch(buffer, chunk) => {
                rank.index() * self.per_rank + self.scratch_base[buffer.index()] + chunk as usize
            }
            Place::Slot(link) => {
                let sequence = self.sequence[link.index()];
                let number = if writes { sequence.sent } else { sequence.taken };
                self.slot_base + link.index() * slots + number % slots
            }
            Place::Cell(link, cell) => self.slot_base + self.cell(link, cell),
        }
    }

    fn counter(&self, counter: Counter) -> usize {
        match counter {
            Counter::Full(link) => 2 * link.index(),
            Counter::Free(link) => 2 * link.index() + 1,
            Counter::Cell(link, cell) => self.cell(link, cell),
        }
    }

    /// Runs the lane's next op; false when it is blocked or at its end.
    fn step(&mut self, lane: Lane) -> bool {
        let decl = &self.plan.lanes[lane];
        let mut position = self.at[lane.index()];
        if position.op == decl.ops.len() {
            position = Position { tile: position.tile + 1, op: 0, waited: 0 };
        }
        if position.tile >= self.tiles || decl.ops.is_empty() {
            return false;
        }
        self.at[lane.index()] = position;
        let at = OpRef { lane, op: position.op as u32 };
        let done = match &decl.ops[position.op].kind {
            KernelOpKind::Wait(counter) => self.wait(at, *counter),
            KernelOpKind::Signal(counter) => {
                self.signal(at, *counter);
                true
            }
            KernelOpKind::Move { dst, src, post, chunk } => self.step_move(at, dst, src, (*post, *chunk)),
        };
        if done {
            self.at[lane.index()].op += 1;
            self.at[lane.index()].waited = 0;
        }
        done
    }

    fn wait(&mut self, at: OpRef, counter: Counter) -> bool {
        if !self.machine.wait(at, self.counter(counter)) {
            return false;
        }
        if let Counter::Cell(link, cell) = counter {
            let location = self.slot_base + self.cell(link, cell);
            let value = self.machine.read(at, location);
            if value != Value::EMPTY {
                let name = Self::counter_name(counter);
                self.complain(
                    "V0606",
                    at,
                    format!("the message in {name} carries data, and nothing reads it"),
                );
            }
        }
        true
    }

    fn signal(&mut self, at: OpRef, counter: Counter) {
        self.machine.tick(at.lane);
        match counter {
            Counter::Full(link) => {
                if !self.sequence[link.index()].filled {
                    let slot = self.location(self.plan.lanes[at.lane].name.rank, 0, Place::Slot(link), true);
                    self.machine.define(slot, Value::EMPTY);
                }
                let sequence = &mut self.sequence[link.index()];
                sequence.sent += 1;
                sequence.filled = false;
            }
            Counter::Free(link) => self.sequence[link.index()].taken += 1,
            Counter::Cell(link, cell) => {
                let location = self.slot_base + self.cell(link, cell);
                self.machine.write(at, location, Value::EMPTY);
            }
        }
        self.machine.signal(at, self.counter(counter), Vec::new());
    }

    fn step_move(&mut self, at: OpRef, dst: &[Place], src: &[Source], (post, chunk): (bool, u32)) -> bool {
        for (index, source) in src.iter().enumerate().skip(self.at[at.lane.index()].waited) {
            if let Place::Cell(link, cell) = source.place
                && !self.machine.wait(at, self.cell(link, cell))
            {
                return false;
            }
            self.at[at.lane.index()].waited = index + 1;
        }
        self.machine.tick(at.lane);
        let terms: Vec<Value> = src.iter().map(|source| self.read(at, *source)).collect();
        let mut value = self.machine.values.combine(&terms);
        self.check_size(at, value, chunk, dst);
        if post {
            let fresh = !self.machine.values.is_post(value);
            if !(fresh
                && self.plan.collective.reduces()
                && self.machine.values.complete(value, self.plan.ranks))
            {
                let what = self.machine.values.describe(value);
                self.complain(
                    "V0604",
                    at,
                    format!(
                        "the last step of the operation is applied to {what}, which is not a complete result"
                    ),
                );
            }
            value = self.machine.values.post(value);
        }
        let rank = self.plan.lanes[at.lane].name.rank;
        let tile = self.at[at.lane.index()].tile;
        let only_source = match src {
            [source] => Some(self.location(rank, tile, source.place, false)),
            _ => None,
        };
        // A flag in a cell promises what is in that cell and nothing else that the move writes.
        let (cells, others): (Vec<Place>, Vec<Place>) =
            dst.iter().partition(|place| matches!(place, Place::Cell(..)));
        for place in &cells {
            let Place::Cell(link, cell) = *place else { unreachable!("just chosen") };
            self.machine.write(at, self.location(rank, tile, *place, true), value);
            self.machine.signal(at, self.cell(link, cell), Vec::new());
        }
        if !cells.is_empty() {
            self.machine.tick(at.lane);
        }
        for place in others {
            let location = self.location(rank, tile, place, true);
            // A copy onto itself (in place, input to output) is no write: executors leave it out.
            if only_source == Some(location) && self.machine.value(location) == value {
                continue;
            }
            match place {
                Place::Slot(link) => self.sequence[link.index()].filled = true,
                Place::PeerOutput(owner, _) => self.enter_peer(at, owner, "output is written"),
                Place::Input(_)
                | Place::Output(_)
                | Place::PeerInput(..)
                | Place::Scratch(..)
                | Place::Cell(..) => {}
            }
            self.machine.write(at, location, value);
        }
        true
    }

    /// A move has the size of the chunk whose contributions it carries, and so have its user chunks.
    fn check_size(&mut self, at: OpRef, value: Value, chunk: u32, dst: &[Place]) {
        let block = self.plan.chunks_per_block().max(1);
        if matches!(self.machine.values.content(value), Content::Mixed) {
            let what = self.machine.values.describe(value);
            self.complain("V0401", at, format!("the move combines what does not belong together: {what}"));
        }
        let carried = self.machine.values.chunk(value);
        let written = dst.iter().filter_map(|p| match p {
            Place::Output(c) | Place::PeerOutput(_, c) => Some(*c),
            Place::Input(_)
            | Place::PeerInput(..)
            | Place::Scratch(..)
            | Place::Slot(_)
            | Place::Cell(..) => None,
        });
        for other in carried.into_iter().chain(written) {
            if other % block != chunk % block {
                self.complain(
                    "V0606",
                    at,
                    format!("the move is sized as chunk {chunk} and carries chunk {other}"),
                );
            }
        }
    }

    fn read(&mut self, at: OpRef, source: Source) -> Value {
        let rank = self.plan.lanes[at.lane].name.rank;
        let location = self.location(rank, self.at[at.lane.index()].tile, source.place, false);
        if let Place::PeerInput(owner, _) = source.place {
            self.enter_peer(at, owner, "input is read");
        }
        let value = self.machine.read(at, location);
        if value == Value::UNDEFINED || value == Value::EMPTY {
            let place = self.place_name(source.place);
            self.complain("V0206", at, format!("{place} is read, which is undefined"));
        }
        let raw = self.machine.values.is_raw(value);
        if !source.pre {
            if raw && self.plan.collective.reduces() {
                let place = self.place_name(source.place);
                self.complain(
                    "V0604",
                    at,
                    format!("{place} is a raw input; the first step of the operation is missing"),
                );
            }
            return value;
        }
        if !(raw && self.plan.collective.reduces()) {
            let what = self.machine.values.describe(value);
            self.complain(
                "V0604",
                at,
                format!("the first step of the operation is applied to {what}, which is no raw input"),
            );
        }
        self.machine.values.pre(value)
    }

    fn name(&self, at: OpRef) -> String {
        self.plan.address(at.lane, at.op as usize).to_string()
    }

    fn place_name(&self, place: Place) -> String {
        match place {
            Place::Input(chunk) => format!("input[{chunk}]"),
            Place::Output(chunk) => format!("output[{chunk}]"),
            Place::PeerInput(rank, chunk) => format!("{rank}.input[{chunk}]"),
            Place::PeerOutput(rank, chunk) => format!("{rank}.output[{chunk}]"),
            Place::Scratch(buffer, chunk) => format!("{}[{chunk}]", self.plan.scratch[buffer].name),
            Place::Slot(link) => format!("{link}.slot"),
            Place::Cell(link, cell) => format!("{link}.cell[{cell}]"),
        }
    }

    fn counter_name(counter: Counter) -> String {
        match counter {
            Counter::Full(link) => format!("{link}.full"),
            Counter::Free(link) => format!("{link}.free"),
            Counter::Cell(link, cell) => format!("{link}.cell[{cell}]"),
        }
    }

    pub(super) fn complain(&mut self, code: &'static str, at: OpRef, message: String) {
        let position = self.at[at.lane.index()];
        let diagnostic = wrong(code, format!("{}: {message}", self.name(at))).note(format!(
            "in launch {}, tile {}",
            self.launch + 1,
            position.tile + 1
        ));
        if self.found.len() < MAX_FOUND {
            self.found.push(self.with_origin(diagnostic, at, "here"));
        }
    }

    /// Adds the ops of the schedule that an op stands for, and what it does there.
    fn with_origin(&self, diagnostic: Diagnostic, at: OpRef, does: &str) -> Diagnostic {
        let origin = &self.plan.lanes[at.lane].ops[at.op as usize].origin;
        let name = self.name(at);
        let Some(&first) = origin.first() else { return diagnostic };
        let list: Vec<String> = origin.iter().map(ToString::to_string).collect();
        diagnostic
            .op(first, format!("{name} of the kernel plan {does}"))
            .note(format!("{name} stands for {} of the schedule", list.join(", ")))
    }

    fn report_collisions(&mut self) {
        let mut seen = HashSet::new();
        for c in std::mem::take(&mut self.machine.collisions) {
            if seen.insert((c.race, c.first, c.second)) && self.found.len() < MAX_FOUND {
                let diagnostic = self.collision(c);
                self.found.push(diagnostic);
            }
        }
    }

    fn collision(&self, c: Collision) -> Diagnostic {
        let (first, second) = (self.name(c.first), self.name(c.second));
        let what = self.location_name(c.location);
        let (code, later, earlier) = match c.race {
            Race::WriteWrite => ("V0301", "write", "one"),
            Race::ReadAfterWrite => ("V0302", "read", "write"),
            Race::WriteAfterRead => ("V0303", "write", "read"),
        };
        let message =
            format!("nothing orders the {later} of {what} by {second} after the {earlier} by {first}");
        let earlier = if earlier == "read" { "reads" } else { "writes" };
        let found = self.with_origin(wrong(code, message), c.second, &format!("{later}s {what} here"));
        self.with_origin(found, c.first, &format!("{earlier} it here"))
    }

    fn location_name(&self, location: usize) -> String {
        if location >= self.slot_base {
            let slot = location - self.slot_base;
            return match self.plan.protocol {
                Protocol::Simple => {
                    let slots = self.plan.slots as usize;
                    format!("slot {} of l{}", slot % slots, slot / slots)
                }
                Protocol::Ll | Protocol::Ll128 => {
                    let link = self.cell_base.partition_point(|&b| b <= slot) - 1;
                    format!("cell {} of l{link}", (slot - self.cell_base[link]) / 2)
                }
            };
        }
        let (rank, inside) = (location / self.per_rank, location % self.per_rank);
        let scratch = self.scratch_base.partition_point(|&b| b <= inside);
        if scratch > 0 {
            let buffer = crate::entity::Buffer::from_u32(scratch as u32 - 1);
            return format!(
                "r{rank}'s {}[{}]",
                self.plan.scratch[buffer].name,
                inside - self.scratch_base[scratch - 1]
            );
        }
        let chunks = self.plan.chunks as usize * self.tiles as usize;
        let name = if inside >= chunks { "output" } else { "input" };
        format!("r{rank}'s {name}[{}]", inside % chunks / self.tiles as usize)
    }

    fn report_stuck(&mut self) -> bool {
        let mut blocked: BTreeMap<Lane, Counter> = BTreeMap::new();
        for (lane, decl) in self.plan.lanes.iter() {
            let position = self.at[lane.index()];
            let Some(op) = decl.ops.get(position.op) else { continue };
            if position.tile >= self.tiles {
                continue;
            }
            match &op.kind {
                KernelOpKind::Wait(counter) => {
                    blocked.insert(lane, *counter);
                }
                KernelOpKind::Move { src, .. } => {
                    if let Some(Place::Cell(link, cell)) = src.get(position.waited).map(|s| s.place) {
                        blocked.insert(lane, Counter::Cell(link, cell));
                    }
                }
                KernelOpKind::Signal(_) => unreachable!("signals do not block"),
            }
        }
        let signaller = |counter: Counter| {
            let name = match counter {
                Counter::Full(link) | Counter::Cell(link, _) => self.plan.links[link].from,
                Counter::Free(link) => self.plan.links[link].to,
            };
            self.lane_by_name.get(&name).copied()
        };
        let at = |lane: Lane| OpRef { lane, op: self.at[lane.index()].op as u32 };
        let mut found = Vec::new();
        for (&lane, &counter) in &blocked {
            if signaller(counter).is_none_or(|s| !blocked.contains_key(&s)) {
                let message = format!(
                    "{} waits for {}, which is never signalled (launch {}, tile {})",
                    self.name(at(lane)),
                    Self::counter_name(counter),
                    self.launch + 1,
                    self.at[lane.index()].tile + 1
                );
                found.push(self.with_origin(wrong("V0502", message), at(lane), "waits here"));
            }
        }
        for cycle in cycles(&blocked, signaller) {
            found.push(self.deadlock(&cycle, at, |l| Self::counter_name(blocked[&l])));
        }
        self.found.append(&mut found);
        !blocked.is_empty()
    }

    /// Lanes that wait for each other, each at an op for a counter.
    fn deadlock(
        &self,
        cycle: &[Lane],
        at: impl Fn(Lane) -> OpRef,
        counter: impl Fn(Lane) -> String,
    ) -> Diagnostic {
        /// Lanes that the message names. Ours: a line or two.
        const NAMED: usize = 8;
        let shown = &cycle[..cycle.len().min(NAMED)];
        let names: Vec<String> =
            shown.iter().map(|&l| format!("{} for {}", self.name(at(l)), counter(l))).collect();
        let more = match cycle.len() - shown.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let (slots, names) = (self.plan.slots, names.join(", "));
        let message = format!("deadlock with {slots} slots: {names}{more} wait for each other");
        let found = shown.iter().fold(wrong("V0501", message), |found, &l| {
            self.with_origin(found, at(l), &format!("waits for {} here", counter(l)))
        });
        match self.plan.protocol {
            Protocol::Simple => found.help(
                "let the other end take messages before so many are sent, or raise the number of slots",
            ),
            Protocol::Ll | Protocol::Ll128 => found,
        }
    }

    fn check_balance(&mut self) {
        let left = |counter: Counter| self.machine.pending(self.counter(counter));
        let mut found = Vec::new();
        for (link, decl) in self.plan.links.iter() {
            if is_zone(self.plan.protocol) {
                let filled = (0..decl.messages).filter(|cell| left(Counter::Cell(link, *cell)) != 0);
                found.extend(filled.map(|cell| (link, format!("{link}.cell[{cell}] filled"))));
                continue;
            }
            // The other counter is off by as much: each end uses one message after the other.
            match left(Counter::Full(link)) {
                0 => {}
                1 => found.push((link, format!("a message of {link} in its slot"))),
                more => found.push((link, format!("{more} messages of {link} in their slots"))),
            }
            if found.len() >= MAX_FOUND {
                break;
            }
        }
        for (link, what) in found {
            let KernelLink { from, to, .. } = self.plan.links[link];
            let message = format!("a launch leaves {what}: {from} sends more than {to} takes");
            let help = format!("let {to} take as many messages of {link} as {from} sends");
            self.found.push(wrong("V0601", message).help(help));
        }
    }

    fn check_results(&mut self) {
        if self.plan.collective == Collective::Barrier {
            self.check_barrier();
            return;
        }
        let mut trees: BTreeMap<(u32, u16), (Value, Rank)> = BTreeMap::new();
        for rank in (0..self.plan.ranks).map(Rank::from_u32) {
            for chunk in output_chunks(self.plan, rank) {
                if self.found.len() >= MAX_FOUND {
                    return;
                }
                for tile in 0..self.tiles {
                    let value = self.machine.value(self.user(rank, chunk, tile, true));
                    if !self.check_result(rank, chunk, tile, value) {
                        continue;
                    }
                    let (first, of) = *trees.entry((chunk, tile)).or_insert((value, rank));
                    if self.plan.collective == Collective::AllReduce
                        && first != value
                        && self.plan.order == Order::Same
                    {
                        let message = format!("{of} and {rank} reduce chunk {chunk} in different orders");
                        let (a, b) =
                            (self.machine.values.describe(first), self.machine.values.describe(value));
                        self.found.push(
                            wrong("V0402", message).note(format!("{of}: {a}")).note(format!("{rank}: {b}")),
                        );
                    }
                }
            }
        }
    }

    fn check_result(&mut self, rank: Rank, chunk: u32, tile: u16, value: Value) -> bool {
        let block = self.plan.chunks_per_block();
        let input = expected(self.plan.collective, self.plan.root, block, rank, chunk).map(|input| Input {
            tile,
            launch: self.launch,
            ..input
        });
        let of = Input { rank: 0, chunk, tile, launch: self.launch };
        let is_sum = input.is_none()
            && matches!(self.machine.values.content(value), Content::Parts { of: o, .. } if *o == of)
            && self.machine.values.complete(value, self.plan.ranks);
        let right = match input {
            Some(input) => self.machine.values.input(input) == value,
            None => is_sum && self.machine.values.is_post(value),
        };
        if !right {
            let found = self.machine.values.describe(value);
            let wanted = input.map_or_else(
                || format!("post of the sum over all ranks of chunk {chunk}"),
                |i| format!("r{}[{}]", i.rank, i.chunk),
            );
            let diagnostic = if is_sum {
                let message =
                    format!("{rank}'s output[{chunk}] is complete and lacks the last step of the operation");
                wrong("V0604", message).help("write `post(…)` around the sum that makes it complete")
            } else {
                wrong("V0401", format!("{rank}'s output[{chunk}] ends with the wrong content"))
            };
            self.found.push(
                diagnostic
                    .note(format!("expected {wanted} (tile {}, launch {})", tile + 1, self.launch + 1))
                    .note(format!("found    {found}")),
            );
        }
        right
    }
}
