//! The run: lanes go through their ops, once a tile, and events wake them.
//!
//! An op waits for what it needs, works for what it costs, and signals. A signal is seen one latency later;
//! who waits for it then goes on. At one moment, work ends first, lane by lane, and then come events in the order
//! in which they were foretold: a run is a function of its arguments.

use super::critical;
use super::hang::{Blocked, Failure, Hang};
use super::network::{Cost, Network, Unit};
use super::sharing::Sharing;
use ringsmith_ir::entity::Lane;
use ringsmith_ir::kernel_plan::{Counter, KernelOpKind, KernelPlan, Place};
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::DataType;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// The most ops of a run, over all lanes and tiles. Ours: 200 MB, and a few seconds.
pub const MAX_OPS: u64 = 1 << 22;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The element type.
    pub dtype: DataType,
    /// Elements: of the whole, or of one rank's block where the collective has blocks.
    pub count: u64,
    /// How many calls each rank makes, one as soon as the one before has returned.
    pub calls: u32,
}

/// When ranks enter the call.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Start {
    /// Every rank enters at a random moment within this time; 0 has all enter at once.
    pub within_ns: f64,
    /// What the moments are drawn with.
    pub seed: u64,
}

/// An op of a lane for one tile, with what became of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// The lane.
    pub lane: Lane,
    /// The op's place in the lane.
    pub op: u32,
    /// The tile, from 0; tiles of later calls follow those of earlier ones.
    pub tile: u32,
    /// When the lane came to it.
    pub reached_ns: f64,
    /// When it had what it waited for and began to work.
    pub began_ns: f64,
    /// When it was over.
    pub ended_ns: f64,
    /// What it had to wait for last: the op before it on its lane, or a signal. By its place among the records.
    pub cause: Option<u32>,
    /// The resource that limited its work at last, by its place in the network; none if there was no work.
    pub limit: Option<u32>,
}

/// What a resource carried.
#[derive(Clone, Debug, PartialEq)]
pub struct Usage {
    /// What it is called.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// How much it carried: bytes, or ns of work.
    pub carried: f64,
    /// Which part that is of all that it could have carried, from 0 to 1.
    pub share: f64,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// From the first rank's call to the last rank's return.
    pub total_ns: f64,
    /// Tiles of each chunk.
    pub tiles: u64,
    /// Every op, in the order in which they ended.
    pub records: Vec<Record>,
    /// Every resource that carried something.
    pub usage: Vec<Usage>,
    /// The ops that decided the total, from the first on.
    pub critical: Vec<u32>,
    /// The same, summed up by what it was spent on; the longest first.
    pub parts: Vec<critical::Part>,
}

/// Runs a plan on a network.
///
/// The plan is proved, or refused for what [`super::may_run`] lets pass.
/// Errors: the plan hangs; it has more ops than a run may have.
/// Panics: the network has fewer ranks than the plan.
pub fn simulate(
    plan: &KernelPlan,
    launch: Launch,
    network: &Network,
    start: Start,
) -> Result<Timeline, Failure> {
    assert!(plan.ranks <= network.ranks(), "every rank of a plan has its place in the network");
    let sizes = Sizes::of(plan, launch);
    let ops: u64 = plan.lanes.values().map(|lane| lane.ops.len() as u64).sum();
    if ops.saturating_mul(sizes.all_tiles) > MAX_OPS {
        return Err(Failure::TooLong { ops, tiles: sizes.all_tiles });
    }
    Run::new(plan, sizes, network).run(start)
}

/// How the data is cut.
struct Sizes {
    chunks: Vec<u64>,
    tiles: u64,
    /// Of all calls together.
    all_tiles: u64,
    tile_bytes: u64,
}

impl Sizes {
    /// As the executors cut it; replicated lanes, each with a slice, are one lane with larger tiles.
    fn of(plan: &KernelPlan, launch: Launch) -> Self {
        let element = launch.dtype.size_bytes() as u64;
        let cut = Chunks::new(plan.collective, launch.dtype, launch.count, plan.chunks_per_block());
        let chunks = (0..plan.chunks).map(|chunk| cut.inside(chunk).len * element).collect();
        let largest = cut.largest() * element;
        let slots = (plan.slot_bytes / element * element).max(element);
        let tile_bytes = match plan.protocol {
            Protocol::Simple => slots.saturating_mul(u64::from(plan.lanes_per_lane)),
            Protocol::Ll | Protocol::Ll128 => largest.max(1),
        };
        let tiles = largest.div_ceil(tile_bytes).max(1);
        Self { chunks, tiles, all_tiles: tiles.saturating_mul(u64::from(launch.calls)), tile_bytes }
    }

    fn bytes(&self, chunk: u32, tile: u64) -> f64 {
        let whole = self.chunks.get(chunk as usize).copied().unwrap_or(0);
        whole.saturating_sub(tile % self.tiles * self.tile_bytes).min(self.tile_bytes) as f64
    }
}

/// Something that lanes wait for.
#[derive(Clone, Debug, Default)]
struct Count {
    /// The signals that have arrived, as records.
    arrived: Vec<u32>,
    /// How many of them have been used up.
    used: u64,
    /// How many more there are from the start: free slots.
    ahead: u64,
    waiting: Option<usize>,
}

/// Where a lane stands.
#[derive(Clone, Debug, Default)]
struct LaneState {
    op: usize,
    tile: u64,
    /// What the current op's record will say.
    reached_ns: f64,
    began_ns: f64,
    cause: Option<u32>,
    /// Cells of the current move that are there.
    cells: usize,
    blocked_on: Option<Counter>,
    done: bool,
}

/// What happens, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Event {
    at_ns: f64,
    number: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Begins(usize),
    Arrives { counter: usize, signal: u32 },
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_ns.total_cmp(&other.at_ns).then(self.number.cmp(&other.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Run<'a> {
    plan: &'a KernelPlan,
    network: &'a Network,
    sizes: Sizes,
    /// What each op of each lane takes.
    costs: Vec<Vec<Cost>>,
    counts: Vec<Count>,
    /// The first cell of each link among the counts.
    cells: Vec<usize>,
    lanes: Vec<LaneState>,
    sharing: Sharing,
    events: BinaryHeap<Reverse<Event>>,
    foretold: u64,
    records: Vec<Record>,
    carried: Vec<f64>,
    now_ns: f64,
}

impl<'a> Run<'a> {
    fn new(plan: &'a KernelPlan, sizes: Sizes, network: &'a Network) -> Self {
        let of_lane = |lane: &ringsmith_ir::kernel_plan::KernelLane| {
            lane.ops.iter().map(|op| network.cost(plan, lane.name, &op.kind)).collect()
        };
        let mut counts = vec![Count::default(); 2 * plan.links.len()];
        for free in counts.iter_mut().skip(1).step_by(2) {
            free.ahead = u64::from(plan.slots);
        }
        let mut cells = Vec::with_capacity(plan.links.len());
        for link in plan.links.values() {
            cells.push(counts.len());
            if plan.protocol != Protocol::Simple {
                counts.resize(counts.len() + link.messages as usize, Count::default());
            }
        }
        Self {
            plan,
            network,
            sizes,
            costs: plan.lanes.values().map(of_lane).collect(),
            counts,
            cells,
            lanes: vec![LaneState::default(); plan.lanes.len()],
            sharing: Sharing::new(plan.lanes.len(), network.resources.len()),
            events: BinaryHeap::new(),
            foretold: 0,
            records: Vec::new(),
            carried: vec![0.0; network.resources.len()],
            now_ns: 0.0,
        }
    }

    fn run(mut self, start: Start) -> Result<Timeline, Failure> {
        let enters: Vec<f64> = moments(start, self.plan.ranks);
        let calls = self.sizes.all_tiles / self.sizes.tiles;
        for (at, lane) in self.plan.lanes.values().enumerate() {
            if calls == 0 || lane.ops.is_empty() {
                self.lanes[at].done = true;
                continue;
            }
            let at_ns = enters[lane.name.rank.as_u32() as usize] + self.network.launch_ns();
            self.foretell(at_ns, What::Begins(at));
        }
        loop {
            let event_ns = self.events.peek().map(|Reverse(event)| event.at_ns);
            match self.sharing.next_end() {
                Some((end_ns, lane)) if event_ns.is_none_or(|event_ns| end_ns <= event_ns) => {
                    self.now_ns = end_ns;
                    let limit = self.sharing.limit(lane);
                    self.sharing.end(lane, end_ns);
                    self.finish(lane, limit);
                    self.go_on(lane);
                }
                _ => match self.events.pop() {
                    Some(Reverse(event)) => self.take(event),
                    None => break,
                },
            }
        }
        if self.lanes.iter().any(|lane| !lane.done) {
            return Err(Failure::Hang(self.hang()));
        }
        Ok(self.timeline())
    }

    fn foretell(&mut self, at_ns: f64, what: What) {
        self.events.push(Reverse(Event { at_ns, number: self.foretold, what }));
        self.foretold += 1;
    }

    fn take(&mut self, event: Event) {
        self.now_ns = event.at_ns;
        match event.what {
            What::Begins(lane) => {
                self.lanes[lane].reached_ns = event.at_ns;
                self.go_on(lane);
            }
            What::Arrives { counter, signal } => {
                self.counts[counter].arrived.push(signal);
                if let Some(lane) = self.counts[counter].waiting.take() {
                    self.lanes[lane].cause = Some(signal);
                    self.go_on(lane);
                }
            }
        }
    }

    /// A lane's op, if there is one left.
    fn op(&self, lane: usize) -> Option<&'a KernelOpKind> {
        let ops = &self.plan.lanes[Lane::from_u32(lane as u32)].ops;
        ops.get(self.lanes[lane].op).map(|op| &op.kind)
    }

    /// Takes a lane as far as it gets without time passing.
    fn go_on(&mut self, lane: usize) {
        loop {
            let Some(op) = self.op(lane) else {
                let state = &mut self.lanes[lane];
                state.tile += 1;
                state.op = 0;
                if !state.tile.is_multiple_of(self.sizes.tiles) {
                    continue;
                }
                if state.tile == self.sizes.all_tiles {
                    state.done = true;
                } else {
                    self.call_again(lane);
                }
                return;
            };
            if !self.has_what_it_needs(lane, op) {
                return;
            }
            if self.works(lane, op) {
                return;
            }
            self.finish(lane, None);
        }
    }

    /// Has the lanes of a rank begin their next call, once the last of them has come to the end of this one.
    fn call_again(&mut self, lane: usize) {
        let state = &self.lanes[lane];
        let (tile, cause) = (state.tile, state.cause);
        let rank = |at: usize| self.plan.lanes[Lane::from_u32(at as u32)].name.rank;
        let own = |at: &usize| rank(*at) == rank(lane) && self.op_count(*at) > 0;
        let lanes: Vec<usize> = (0..self.lanes.len()).filter(own).collect();
        let has_ended = |at: &usize| self.lanes[*at].tile == tile && self.lanes[*at].op == 0;
        if !lanes.iter().all(has_ended) {
            return;
        }
        for at in lanes {
            self.lanes[at].cause = cause;
            self.foretell(self.now_ns + self.network.launch_ns(), What::Begins(at));
        }
    }

    fn op_count(&self, lane: usize) -> usize {
        self.plan.lanes[Lane::from_u32(lane as u32)].ops.len()
    }

    /// Uses up what an op waits for. False if something is missing, for which the lane then waits.
    fn has_what_it_needs(&mut self, lane: usize, op: &KernelOpKind) -> bool {
        match op {
            KernelOpKind::Signal(_) => true,
            KernelOpKind::Wait(counter) => self.uses(lane, *counter),
            KernelOpKind::Move { src, .. } => {
                let cells = src.iter().filter_map(|source| match source.place {
                    Place::Cell(link, cell) => Some(Counter::Cell(link, cell)),
                    Place::Input(_) | Place::Output(_) | Place::PeerInput(..) | Place::PeerOutput(..) => None,
                    Place::Scratch(..) | Place::Slot(_) => None,
                });
                let missing = self.lanes[lane].cells;
                for counter in cells.skip(missing) {
                    if !self.uses(lane, counter) {
                        return false;
                    }
                    self.lanes[lane].cells += 1;
                }
                true
            }
        }
    }

    fn uses(&mut self, lane: usize, counter: Counter) -> bool {
        let index = self.index(counter);
        let count = &mut self.counts[index];
        if count.used >= count.ahead + count.arrived.len() as u64 {
            count.waiting = Some(lane);
            self.lanes[lane].blocked_on = Some(counter);
            return false;
        }
        count.used += 1;
        self.lanes[lane].blocked_on = None;
        true
    }

    fn index(&self, counter: Counter) -> usize {
        match counter {
            Counter::Full(link) => 2 * link.as_u32() as usize,
            Counter::Free(link) => 2 * link.as_u32() as usize + 1,
            Counter::Cell(link, cell) => self.cells[link.as_u32() as usize] + cell as usize,
        }
    }

    /// Begins an op's work. False if there is none.
    fn works(&mut self, lane: usize, op: &KernelOpKind) -> bool {
        let bytes = self.bytes(lane, op);
        let resources = &self.network.resources;
        let cost = &self.costs[lane][self.lanes[lane].op];
        let needs = |resource: usize, amount: f64| amount / resources[resource].per_ns;
        let amounts = || cost.iter().map(|take| (take.resource, take.fixed + take.per_byte * bytes));
        // One thread does one op, however many threads there are.
        let alone = amounts().map(|(resource, amount)| match resources[resource].unit {
            Unit::Bytes => needs(resource, amount),
            Unit::Work => amount,
        });
        let alone_ns = alone.fold(0.0, f64::max);
        self.lanes[lane].began_ns = self.now_ns;
        if alone_ns <= 0.0 {
            return false;
        }
        for (resource, amount) in amounts() {
            self.carried[resource] += amount;
        }
        let wants = amounts().map(|(resource, amount)| (resource, needs(resource, amount) / alone_ns));
        self.sharing.begin(lane, wants.filter(|want| want.1 > 0.0), alone_ns, self.now_ns);
        true
    }

    fn bytes(&self, lane: usize, op: &KernelOpKind) -> f64 {
        match op {
            KernelOpKind::Move { chunk, .. } => self.sizes.bytes(*chunk, self.lanes[lane].tile),
            KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => 0.0,
        }
    }

    /// Notes what became of a lane's op, sends its signals and turns to the next.
    fn finish(&mut self, lane: usize, limit: Option<usize>) {
        let Some(op) = self.op(lane) else { return };
        let record = self.records.len() as u32;
        let state = &mut self.lanes[lane];
        self.records.push(Record {
            lane: Lane::from_u32(lane as u32),
            op: state.op as u32,
            tile: state.tile as u32,
            reached_ns: state.reached_ns,
            began_ns: state.began_ns,
            ended_ns: self.now_ns,
            cause: state.cause,
            limit: limit.map(|resource| resource as u32),
        });
        (state.reached_ns, state.cause, state.cells) = (self.now_ns, Some(record), 0);
        state.op += 1;
        match op {
            KernelOpKind::Wait(_) => {}
            KernelOpKind::Signal(counter) => self.signal(lane, *counter, record),
            KernelOpKind::Move { dst, .. } => {
                for place in dst {
                    if let Place::Cell(link, cell) = *place {
                        self.signal(lane, Counter::Cell(link, cell), record);
                    }
                }
            }
        }
    }

    fn signal(&mut self, lane: usize, counter: Counter, record: u32) {
        let from = self.plan.lanes[Lane::from_u32(lane as u32)].name;
        let to = super::hang::listener(self.plan, counter).rank.as_u32();
        let at_ns = self.now_ns + self.network.latency_ns(self.plan, from, to);
        let counter = self.index(counter);
        self.foretell(at_ns, What::Arrives { counter, signal: record });
    }

    fn hang(&self) -> Hang {
        let stands = |lane: usize| {
            let state = &self.lanes[lane];
            let blocked = (!state.done).then_some(state.blocked_on).flatten();
            blocked.map(|counter| (self.plan.address(Lane::from_u32(lane as u32), state.op), counter))
        };
        let lane_of = |name| self.plan.lanes.values().position(|lane| lane.name == name);
        let blocked = (0..self.lanes.len()).filter_map(|lane| {
            let (op, counter) = stands(lane)?;
            let peer = super::hang::speaker(self.plan, counter);
            let peer_waits_at = lane_of(peer).and_then(stands).map(|(op, _)| op);
            Some(Blocked { op, tile: self.lanes[lane].tile, counter, peer, peer_waits_at })
        });
        Hang { at_ns: self.now_ns, blocked: blocked.collect() }
    }

    fn timeline(self) -> Timeline {
        // Credits may still be on their way when the last rank returns.
        let total_ns =
            self.records.iter().map(|record| record.ended_ns).fold(self.network.launch_ns(), f64::max);
        let usage = self.network.resources.iter().zip(&self.carried).filter(|(_, carried)| **carried > 0.0);
        let usage = usage.map(|(resource, &carried)| Usage {
            name: resource.name.clone(),
            unit: resource.unit,
            carried,
            share: if total_ns > 0.0 { carried / resource.per_ns / total_ns } else { 0.0 },
        });
        let critical = critical::path(&self.records);
        let parts =
            critical::parts(self.plan, &self.records, &critical, &self.network.resources, self.sizes.tiles);
        Timeline {
            total_ns,
            tiles: self.sizes.tiles,
            usage: usage.collect(),
            critical,
            parts,
            records: self.records,
        }
    }
}

/// When each rank enters: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) draws the moments.
fn moments(start: Start, ranks: u32) -> Vec<f64> {
    let mut state = start.seed;
    let mut draw = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    // The upper 53 bits, as a number below 1.
    (0..ranks).map(|_| (draw() >> 11) as f64 / (1u64 << 53) as f64 * start.within_ns).collect()
}
