//! Roles: lanes whose ops have the same shape, and the tables of what differs between them.
//!
//! A shape names the ends of links by the order in which the lane first uses them, and everything else
//! that depends on the rank by a column of the lane's table. A column that is the same in all lanes of a
//! role becomes a number in the text.

use super::EmitError;
use ringsmith_ir::entity::{LaneName, Link, OpAddress, Rank};
use ringsmith_ir::kernel_plan::{Counter, KernelLane, KernelOp, KernelOpKind, KernelPlan, Place, Source};
use ringsmith_ir::schedule::Protocol;
use std::collections::{BTreeMap, BTreeSet};

/// The most ends of links that a lane may have: they share one block's memory and threads.
const MAX_ENDS: usize = 128;

/// What a column of a lane's table holds, for the device runtime to fill in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Column {
    /// A chunk: its block in the upper 32 bits, its place in the block in the lower.
    Chunk(u64),
    /// The address of a zone's cell, for parity 0: in the memory of the link's receiver.
    Cell(Link, u32),
    /// The address of a chunk of scratch, numbered over all buffers.
    Scratch(u32),
    /// A rank.
    Rank(u32),
    /// A small number.
    Number(u64),
}

/// An end of a FIFO link: four columns, in front of all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// The link.
    pub link: Link,
    /// Whether the lane sends on it.
    pub sends: bool,
}

/// A lane's role and table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneTable {
    /// Its role; `None` for a lane that does nothing.
    pub role: Option<u32>,
    /// Ends of FIFO links, four columns each: slots, counter waited for, counter signalled, sequence word.
    pub ends: Vec<End>,
    /// The columns that follow.
    pub columns: Vec<Column>,
}

/// A number of the table's row, or the same for all lanes of the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot(pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Operand {
    Input(Slot),
    Output(Slot),
    PeerInput {
        rank: Slot,
        chunk: Slot,
    },
    PeerOutput {
        rank: Slot,
        chunk: Slot,
    },
    Scratch(Slot),
    /// The current slot of an end.
    Fifo(usize),
    Cell(Slot),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) from: Operand,
    pub(super) pre: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    Wait(usize),
    Signal(usize),
    WaitCell(Slot),
    SignalCell(Slot),
    Move {
        to: Vec<Operand>,
        from: Vec<Term>,
        /// Where the first term stands among the terms; `None` where they are listed in order.
        place: Option<Slot>,
        post: bool,
        chunk: Slot,
    },
}

pub(super) struct Role {
    pub(super) ops: Vec<Shape>,
    /// Whether an end sends, for each.
    pub(super) ends: Vec<bool>,
    /// The value of each column that all members share.
    pub(super) shared: Vec<Option<Column>>,
    /// Ends whose messages are signalled or waited for once, after the last tile, and their messages a
    /// tile.
    pub(super) deferred: BTreeMap<usize, u32>,
    /// Ends whose messages are signalled or waited for once, before the first tile, and their messages a
    /// tile.
    pub(super) announced: BTreeMap<usize, u32>,
    pub(super) members: Vec<LaneName>,
    /// Addresses of the first member's ops in the schedule.
    pub(super) origins: Vec<String>,
}

impl Role {
    /// The table's column that holds a slot's value.
    pub(super) fn column(&self, slot: Slot) -> usize {
        4 * self.ends.len() + self.shared[..slot.0].iter().filter(|s| s.is_none()).count()
    }
}

pub(super) struct Program {
    pub(super) roles: Vec<Role>,
    pub(super) tables: Vec<Vec<LaneTable>>,
    pub(super) lanes: u32,
    pub(super) columns: u32,
}

/// Sorts a plan's lanes into roles.
pub(super) fn extract(plan: &KernelPlan) -> Result<Program, EmitError> {
    let mut by_rank: Vec<Vec<&KernelLane>> = vec![Vec::new(); plan.ranks as usize];
    for lane in plan.lanes.values() {
        by_rank[lane.name.rank.as_u32() as usize].push(lane);
    }
    let deferred = deferred(plan);
    let announced: BTreeSet<Link> = announced(plan).difference(&deferred).copied().collect();
    let lanes = by_rank.iter().map(Vec::len).max().unwrap_or(0).max(1);
    let mut roles: Vec<Role> = Vec::new();
    let mut tables = Vec::new();
    for of_rank in &by_rank {
        let mut row = Vec::new();
        for lane in of_rank {
            if lane.ops.is_empty() {
                row.push(LaneTable { role: None, ends: Vec::new(), columns: Vec::new() });
                continue;
            }
            let mut shaper = Shaper { plan, ends: Vec::new(), columns: Vec::new(), op_start: 0 };
            let (ops, origins) = shaper.lane(lane);
            if shaper.ends.len() > MAX_ENDS {
                let (name, ends) = (lane.name, shaper.ends.len());
                return Err(EmitError::Plan(format!(
                    "lane {name} has {ends} ends of links; {MAX_ENDS} is the most"
                )));
            }
            let sends: Vec<bool> = shaper.ends.iter().map(|e| e.sends).collect();
            let among = |links: &BTreeSet<Link>| -> BTreeMap<usize, u32> {
                let ends = shaper.ends.iter().enumerate().filter(|(_, end)| links.contains(&end.link));
                ends.map(|(at, end)| (at, plan.links[end.link].messages)).collect()
            };
            let (deferred, announced) = (among(&deferred), among(&announced));
            let same = |r: &Role| {
                r.ops == ops && r.ends == sends && r.deferred == deferred && r.announced == announced
            };
            let role = roles.iter().position(same).unwrap_or_else(|| {
                let shared = shaper.columns.iter().map(|c| Some(*c)).collect();
                let members = Vec::new();
                roles.push(Role { ops, ends: sends, shared, deferred, announced, members, origins });
                roles.len() - 1
            });
            let found = &mut roles[role];
            found.members.push(lane.name);
            for (shared, column) in found.shared.iter_mut().zip(&shaper.columns) {
                if *shared != Some(*column) || !matches!(column, Column::Chunk(_) | Column::Number(_)) {
                    *shared = None;
                }
            }
            row.push(LaneTable { role: Some(role as u32), ends: shaper.ends, columns: shaper.columns });
        }
        row.resize_with(lanes, || LaneTable { role: None, ends: Vec::new(), columns: Vec::new() });
        tables.push(row);
    }
    for table in tables.iter_mut().flatten() {
        if let Some(role) = table.role {
            let shared = &roles[role as usize].shared;
            let columns = std::mem::take(&mut table.columns);
            table.columns =
                columns.into_iter().zip(shared).filter(|(_, s)| s.is_none()).map(|(c, _)| c).collect();
        }
    }
    let width = |t: &LaneTable| 4 * t.ends.len() + t.columns.len();
    let columns = tables.iter().flatten().map(width).max().unwrap_or(0).max(1);
    Ok(Program { roles, tables, lanes: lanes as u32, columns: columns as u32 })
}

/// Links that carry nothing but the news that a lane is done: no slot of theirs is used, and their receiver
/// only waits for them, gives their credits back and ends the tile.
///
/// They can wait for the last tile. Nothing in a tile depends on them, so the other ops run as before; at
/// the end every lane signals before it waits, so nobody waits for ever; and the sender needs no credit,
/// since there is no slot to be overwritten.
fn deferred(plan: &KernelPlan) -> BTreeSet<Link> {
    let mut found = without_payload(plan);
    for lane in plan.lanes.values() {
        // Receipts at the end have nothing behind them.
        let kept = lane.ops.len() - lane.ops.iter().rev().take_while(|op| is_receipt(&op.kind)).count();
        for op in &lane.ops[..kept] {
            if let KernelOpKind::Wait(Counter::Full(link)) | KernelOpKind::Signal(Counter::Free(link)) =
                op.kind
            {
                found.remove(&link);
            }
        }
    }
    found
}

/// Links that carry nothing but the news that a rank has begun: no slot of theirs is used, and their sender
/// signals them before it does anything else.
///
/// They can be sent for all tiles before the first, and waited for there. The sender depends on nobody, so
/// nobody waits for ever. What a message of a later tile might say beyond the launch's begin is that the
/// tiles before are done; that orders nothing else: tiles of the callers' buffers are apart, slots have
/// credits of their own, and plans with scratch, whose tiles lie in one place, are left as they are.
fn announced(plan: &KernelPlan) -> BTreeSet<Link> {
    if !plan.scratch.is_empty() {
        return BTreeSet::new();
    }
    let silent = without_payload(plan);
    let sent = |op: &KernelOp| match op.kind {
        KernelOpKind::Wait(Counter::Free(link)) | KernelOpKind::Signal(Counter::Full(link)) => Some(link),
        KernelOpKind::Wait(Counter::Full(_) | Counter::Cell(..))
        | KernelOpKind::Signal(Counter::Free(_) | Counter::Cell(..))
        | KernelOpKind::Move { .. } => None,
    };
    let mut found = silent.clone();
    for lane in plan.lanes.values() {
        let first =
            lane.ops.iter().take_while(|op| sent(op).is_some_and(|link| silent.contains(&link))).count();
        for link in lane.ops[first..].iter().filter_map(sent) {
            found.remove(&link);
        }
    }
    found
}

/// FIFO links of which no slot is used.
fn without_payload(plan: &KernelPlan) -> BTreeSet<Link> {
    if !is_fifo(plan) {
        return BTreeSet::new();
    }
    let mut found: BTreeSet<Link> = plan.links.keys().collect();
    for op in plan.lanes.values().flat_map(|lane| &lane.ops) {
        if let KernelOpKind::Move { dst, src, .. } = &op.kind {
            for place in dst.iter().copied().chain(src.iter().map(|s| s.place)) {
                if let Place::Slot(link) = place {
                    found.remove(&link);
                }
            }
        }
    }
    found
}

/// Whether an op only takes a message.
fn is_receipt(op: &KernelOpKind) -> bool {
    matches!(op, KernelOpKind::Signal(Counter::Free(_)) | KernelOpKind::Wait(Counter::Full(_)))
}

struct Shaper<'a> {
    plan: &'a KernelPlan,
    ends: Vec<End>,
    columns: Vec<Column>,
    /// The first column of the op at hand.
    op_start: usize,
}

impl Shaper<'_> {
    fn lane(&mut self, lane: &KernelLane) -> (Vec<Shape>, Vec<String>) {
        let mut shapes = Vec::new();
        let mut origins = Vec::new();
        for (index, op) in lane.ops.iter().enumerate() {
            self.op_start = self.columns.len();
            shapes.push(self.op(lane.name, &op.kind));
            origins.push(origin(lane, index, op));
        }
        (shapes, origins)
    }

    fn op(&mut self, lane: LaneName, op: &KernelOpKind) -> Shape {
        match op {
            KernelOpKind::Wait(Counter::Cell(link, cell)) => {
                Shape::WaitCell(self.column(Column::Cell(*link, *cell)))
            }
            KernelOpKind::Signal(Counter::Cell(link, cell)) => {
                Shape::SignalCell(self.column(Column::Cell(*link, *cell)))
            }
            KernelOpKind::Wait(Counter::Full(link)) => Shape::Wait(self.end(*link, false)),
            KernelOpKind::Wait(Counter::Free(link)) => Shape::Wait(self.end(*link, true)),
            KernelOpKind::Signal(Counter::Full(link)) => Shape::Signal(self.end(*link, true)),
            KernelOpKind::Signal(Counter::Free(link)) => Shape::Signal(self.end(*link, false)),
            KernelOpKind::Move { dst, src, post, chunk } => {
                let chunk = self.chunk(*chunk);
                let (from, place) = self.terms(lane.rank, src);
                let mut to: Vec<Place> = dst.clone();
                to.sort_by_key(|place| self.rotated(lane.rank, *place));
                let to = to.into_iter().map(|place| self.operand(place, true)).collect();
                Shape::Move { to, from, place, post: *post, chunk }
            }
        }
    }

    /// Sorts destinations alike on all ranks: the user's first, then links by how far away their
    /// receivers are.
    fn rotated(&self, rank: Rank, place: Place) -> (u8, u32, u32) {
        let far = |link: Link| {
            let n = self.plan.ranks;
            (self.plan.links[link].to.rank.as_u32() + n - rank.as_u32()) % n
        };
        match place {
            Place::Input(_) | Place::Output(_) | Place::PeerInput(..) => (0, 0, 0),
            Place::Scratch(buffer, chunk) => (1, buffer.as_u32(), chunk),
            Place::PeerOutput(peer, _) => {
                (2, (peer.as_u32() + self.plan.ranks - rank.as_u32()) % self.plan.ranks, 0)
            }
            Place::Slot(link) => (3, far(link), link.as_u32()),
            Place::Cell(link, cell) => (3, far(link), cell),
        }
    }

    /// Terms, with a single one from memory in front, and where that one belongs. Two terms commute: no
    /// operation gives other bits for them (docs/arithmetic.md). Among peers' inputs the own one is read as
    /// they are, in its place.
    fn terms(&mut self, rank: Rank, src: &[Source]) -> (Vec<Term>, Option<Slot>) {
        let linear = |s: &Source| !matches!(s.place, Place::Slot(_) | Place::Cell(..));
        let mut order: Vec<Source> = src.to_vec();
        let pulls = src.iter().any(|s| matches!(s.place, Place::PeerInput(..)));
        for source in order.iter_mut().filter(|_| pulls) {
            if let Place::Input(chunk) = source.place {
                source.place = Place::PeerInput(rank, chunk);
            }
        }
        let mut place = None;
        if src.len() > 1 && src.iter().filter(|s| linear(s)).count() == 1 {
            let at = src.iter().position(linear).expect("just counted");
            let own = order.remove(at);
            order.insert(0, own);
            if src.len() > 2 {
                place = Some(self.column(Column::Number(at as u64)));
            }
        }
        let terms = order.iter().map(|s| Term { from: self.operand(s.place, false), pre: s.pre }).collect();
        (terms, place)
    }

    fn operand(&mut self, place: Place, writes: bool) -> Operand {
        match place {
            Place::Input(chunk) => Operand::Input(self.chunk(chunk)),
            Place::Output(chunk) => Operand::Output(self.chunk(chunk)),
            Place::PeerInput(rank, chunk) => {
                let rank = self.column(Column::Rank(rank.as_u32()));
                Operand::PeerInput { rank, chunk: self.chunk(chunk) }
            }
            Place::PeerOutput(rank, chunk) => {
                let rank = self.column(Column::Rank(rank.as_u32()));
                Operand::PeerOutput { rank, chunk: self.chunk(chunk) }
            }
            Place::Scratch(buffer, chunk) => {
                let before: u32 =
                    self.plan.scratch.iter().take_while(|(b, _)| *b != buffer).map(|(_, d)| d.chunks).sum();
                Operand::Scratch(self.column(Column::Scratch(before + chunk)))
            }
            Place::Slot(link) => Operand::Fifo(self.end(link, writes)),
            Place::Cell(link, cell) => Operand::Cell(self.column(Column::Cell(link, cell))),
        }
    }

    fn chunk(&mut self, chunk: u32) -> Slot {
        let per_block = self.plan.chunks_per_block().max(1);
        let value = if self.plan.collective.blocked() {
            u64::from(chunk / per_block) << 32 | u64::from(chunk % per_block)
        } else {
            u64::from(chunk)
        };
        // A chunk that one op names twice is one column.
        let known = self.columns[self.op_start..].iter().position(|c| *c == Column::Chunk(value));
        match known {
            Some(at) => Slot(self.op_start + at),
            None => self.column(Column::Chunk(value)),
        }
    }

    fn column(&mut self, column: Column) -> Slot {
        self.columns.push(column);
        Slot(self.columns.len() - 1)
    }

    fn end(&mut self, link: Link, sends: bool) -> usize {
        let end = End { link, sends };
        self.ends.iter().position(|e| *e == end).unwrap_or_else(|| {
            self.ends.push(end);
            self.ends.len() - 1
        })
    }
}

fn origin(lane: &KernelLane, index: usize, op: &KernelOp) -> String {
    if op.origin.is_empty() {
        return OpAddress { lane: lane.name, op: index as u32 }.to_string();
    }
    op.origin.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether messages go through FIFOs.
pub(super) fn is_fifo(plan: &KernelPlan) -> bool {
    plan.protocol == Protocol::Simple
}
