//! What a schedule may do, found by trying every interleaving: an executor that shares no code and no
//! idea with the verifier. No clocks, no symbolic trees, no greedy run: it walks through all states that
//! the lanes can reach together.
//!
//! The first walk looks at positions alone. Two accesses collide where some state lets both happen next;
//! a put lasts from the op itself until the wait for the signal that publishes it, a get from the signal
//! that it goes back to until the op itself. The second walk, of schedules in which nothing collides,
//! carries data: a put lands at any moment of its life, a get reads at its first or its last.

use ringsmith_ir::entity::Rank;
use ringsmith_ir::schedule::{BufferKind, OpKind, Order, Place, Schedule, Slice};
use ringsmith_ir::types::Collective;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// More states than this are too many for a test; the case is left out.
const MAX_STATES: usize = 60_000;

/// A kind of trouble. Each stands for the verifier's codes of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// Lanes that never end: V0501, V0502.
    Stuck,
    /// Accesses that nothing orders: V0301, V0302, V0303.
    Race,
    /// Signals or puts that nobody takes: V0105, V0106.
    Leftover,
    /// A get before any signal: V0107.
    Unannounced,
    /// A user buffer touched before its owner is there: V0304.
    TooEarly,
    /// A user buffer read after its owner has left: V0305.
    TooLate,
    /// A rank that leaves the barrier before another is there: V0403.
    Barrier,
    /// A read of what nobody has written: V0206.
    Undefined,
    /// A wrong result, or a sum of what does not belong together: V0401.
    Wrong,
    /// Ranks that add in different orders: V0402.
    Order,
}

/// An op by lane and position.
type At = (usize, usize);

#[derive(Clone, Copy)]
struct Access {
    location: usize,
    writes: bool,
}

/// A span of time in which memory is in use.
struct Window {
    access: Access,
    opens: At,
    /// The op whose end closes it; none where nothing ever does.
    closes: Option<At>,
}

/// A schedule, taken apart for walking.
pub(crate) struct Explorer<'a> {
    schedule: &'a Schedule,
    in_place: bool,
    ops: Vec<Vec<OpKind>>,
    rank_of: Vec<usize>,
    per_rank: usize,
    scratch_base: Vec<usize>,
    /// For each wait, the signal that it takes.
    taken: HashMap<At, At>,
    windows: Vec<Window>,
}

impl<'a> Explorer<'a> {
    pub(crate) fn new(schedule: &'a Schedule, in_place: bool) -> Self {
        let ops: Vec<Vec<OpKind>> =
            schedule.lanes.values().map(|l| l.ops.iter().map(|o| o.kind).collect()).collect();
        let mut per_rank = 2 * schedule.chunks as usize;
        let mut scratch_base = Vec::new();
        for buffer in schedule.buffers.values() {
            scratch_base.push(per_rank);
            per_rank += if buffer.kind == BufferKind::Scratch { buffer.chunks as usize } else { 0 };
        }
        let rank_of = schedule.lanes.values().map(|l| l.name.rank.as_u32() as usize).collect();
        let mut explorer = Self {
            schedule,
            in_place,
            ops,
            rank_of,
            per_rank,
            scratch_base,
            taken: HashMap::new(),
            windows: Vec::new(),
        };
        explorer.match_signals();
        explorer
    }

    fn all(&self) -> impl Iterator<Item = (At, OpKind)> + '_ {
        self.ops
            .iter()
            .enumerate()
            .flat_map(|(lane, ops)| ops.iter().enumerate().map(move |(i, op)| ((lane, i), *op)))
    }

    /// The k-th wait on a link takes its k-th signal; puts and gets last until, and from, there.
    fn match_signals(&mut self) {
        for link in self.schedule.links.keys() {
            let signals: Vec<At> =
                self.all().filter(|(_, op)| *op == OpKind::Signal { link }).map(|(at, _)| at).collect();
            let waits: Vec<At> =
                self.all().filter(|(_, op)| *op == OpKind::Wait { link }).map(|(at, _)| at).collect();
            for (signal, wait) in signals.iter().zip(&waits) {
                self.taken.insert(*wait, *signal);
            }
            let mut windows = Vec::new();
            for (at, op) in self.all() {
                match op {
                    OpKind::Put { peer, dst, link: via, .. } if via == link => {
                        let number = signals.iter().position(|s| s.1 > at.1);
                        let closes = number.and_then(|n| waits.get(n)).copied();
                        let location = self.location(peer.as_u32() as usize, dst);
                        windows.push(Window { access: Access { location, writes: true }, opens: at, closes });
                    }
                    OpKind::Get { peer, src, link: via, .. } if via == link => {
                        let number = waits.iter().filter(|w| w.1 < at.1).count();
                        let Some(signal) = number.checked_sub(1).and_then(|n| signals.get(n)) else {
                            continue;
                        };
                        let location = self.location(peer.as_u32() as usize, src);
                        let access = Access { location, writes: false };
                        windows.push(Window { access, opens: *signal, closes: Some(at) });
                    }
                    _ => {}
                }
            }
            self.windows.extend(windows);
        }
    }

    fn location(&self, rank: usize, slice: Slice) -> usize {
        let chunks = self.schedule.chunks as usize;
        rank * self.per_rank
            + match self.schedule.place(Rank::from_u32(rank as u32), slice) {
                Place::Input(chunk) | Place::Inout(chunk) => chunk as usize,
                Place::Output(chunk) => chunk as usize + if self.in_place { 0 } else { chunks },
                Place::Scratch(buffer, chunk) => self.scratch_base[buffer.as_u32() as usize] + chunk as usize,
            }
    }

    /// What an op touches at the moment at which it runs.
    fn accesses(&self, at: At) -> Vec<Access> {
        let rank = self.rank_of[at.0];
        let read = |rank: usize, slice| Access { location: self.location(rank, slice), writes: false };
        let write = |rank: usize, slice| Access { location: self.location(rank, slice), writes: true };
        let peer = |peer: Rank| peer.as_u32() as usize;
        match self.ops[at.0][at.1] {
            OpKind::Put { src, peer: to, dst, .. } => vec![read(rank, src), write(peer(to), dst)],
            OpKind::Get { peer: from, src, dst, .. } => vec![read(peer(from), src), write(rank, dst)],
            OpKind::Reduce { dst, src } => vec![read(rank, src), read(rank, dst), write(rank, dst)],
            OpKind::Copy { src, dst } => vec![read(rank, src), write(rank, dst)],
            OpKind::Signal { .. } => {
                self.windows.iter().filter(|w| w.opens == at && !w.access.writes).map(|w| w.access).collect()
            }
            OpKind::Wait { .. } => Vec::new(),
        }
    }

    fn is_ready(&self, pcs: &[usize], lane: usize) -> bool {
        match self.ops[lane].get(pcs[lane]) {
            None => false,
            Some(OpKind::Wait { .. }) => {
                self.taken.get(&(lane, pcs[lane])).is_some_and(|signal| pcs[signal.0] > signal.1)
            }
            Some(_) => true,
        }
    }

    fn has_ended(&self, pcs: &[usize], rank: usize) -> bool {
        (0..self.ops.len()).filter(|l| self.rank_of[*l] == rank).all(|l| pcs[l] == self.ops[l].len())
    }

    fn has_begun(&self, pcs: &[usize], rank: usize) -> bool {
        (0..self.ops.len()).any(|l| self.rank_of[l] == rank && pcs[l] > 0)
    }

    /// All trouble that any interleaving can meet; none where there are too many states.
    pub(crate) fn explore(&self) -> Option<BTreeSet<Trouble>> {
        let mut found = BTreeSet::new();
        self.walk_positions(&mut found)?;
        if found.contains(&Trouble::Stuck) {
            // A launch that never ends has no end that could be too late.
            found.remove(&Trouble::TooLate);
        } else {
            let balanced = |link| {
                let count = |op| self.all().filter(|(_, o)| *o == op).count();
                count(OpKind::Signal { link }) == count(OpKind::Wait { link })
            };
            let closed = self.windows.iter().all(|w| w.closes.is_some());
            if !closed || !self.schedule.links.keys().all(balanced) {
                found.insert(Trouble::Leftover);
            }
        }
        if found.is_empty() {
            self.walk_data(&mut found)?;
        }
        Some(found)
    }

    fn walk_positions(&self, found: &mut BTreeSet<Trouble>) -> Option<()> {
        let mut seen: HashSet<Vec<usize>> = HashSet::new();
        let mut todo = vec![vec![0; self.ops.len()]];
        while let Some(pcs) = todo.pop() {
            if !seen.insert(pcs.clone()) {
                continue;
            }
            if seen.len() > MAX_STATES {
                return None;
            }
            self.look(&pcs, found);
            let ready: Vec<usize> = (0..self.ops.len()).filter(|l| self.is_ready(&pcs, *l)).collect();
            if ready.is_empty() && (0..self.ops.len()).any(|l| pcs[l] < self.ops[l].len()) {
                found.insert(Trouble::Stuck);
            }
            for lane in ready {
                let mut next = pcs.clone();
                next[lane] += 1;
                todo.push(next);
            }
        }
        Some(())
    }

    /// Everything that one state shows.
    fn look(&self, pcs: &[usize], found: &mut BTreeSet<Trouble>) {
        let next: Vec<(At, Vec<Access>)> = (0..self.ops.len())
            .filter(|l| self.is_ready(pcs, *l))
            .map(|lane| ((lane, pcs[lane]), self.accesses((lane, pcs[lane]))))
            .collect();
        let collide = |a: &Access, b: &Access| a.location == b.location && (a.writes || b.writes);
        let open = |w: &Window| {
            let (opens, closes) = (w.opens, w.closes);
            pcs[opens.0] > opens.1 && closes.is_none_or(|at| pcs[at.0] <= at.1)
        };
        for (index, (at, accesses)) in next.iter().enumerate() {
            let others = next[index + 1..].iter().flat_map(|(_, accesses)| accesses);
            let windows = self.windows.iter().filter(|w| open(w) && w.closes != Some(*at)).map(|w| &w.access);
            if others.chain(windows).any(|other| accesses.iter().any(|own| collide(own, other))) {
                found.insert(Trouble::Race);
            }
            self.look_at_owner(pcs, *at, found);
        }
        if self.schedule.collective == Collective::Barrier {
            let ranks = 0..self.schedule.ranks as usize;
            let left =
                |r: usize| ranks.clone().any(|o| o != r && !self.has_begun(pcs, o)) && self.has_ended(pcs, r);
            if ranks.clone().any(left) {
                found.insert(Trouble::Barrier);
            }
        }
    }

    fn look_at_owner(&self, pcs: &[usize], at: At, found: &mut BTreeSet<Trouble>) {
        let is_user = |s: Slice| self.schedule.buffers[s.buffer].kind != BufferKind::Scratch;
        match self.ops[at.0][at.1] {
            OpKind::Put { peer, dst, .. } if is_user(dst) => {
                let owner = peer.as_u32() as usize;
                if owner != self.rank_of[at.0] && !self.has_begun(pcs, owner) {
                    found.insert(Trouble::TooEarly);
                }
            }
            OpKind::Get { peer, src, link, .. } => {
                let waited = self.ops[at.0][..at.1].contains(&OpKind::Wait { link });
                if !waited {
                    found.insert(Trouble::Unannounced);
                }
                let owner = peer.as_u32() as usize;
                if is_user(src) && owner != self.rank_of[at.0] {
                    if !self.has_begun(pcs, owner) {
                        found.insert(Trouble::TooEarly);
                    }
                    if self.has_ended(pcs, owner) {
                        found.insert(Trouble::TooLate);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Data of the second walk: how often each rank's each chunk is in it, and the tree that was added up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Datum {
    parts: BTreeMap<(usize, usize), usize>,
    tree: String,
}

impl Datum {
    fn input(rank: usize, chunk: usize) -> Self {
        Self { parts: BTreeMap::from([((rank, chunk), 1)]), tree: format!("{rank}:{chunk}") }
    }

    fn add(&self, other: &Self) -> Self {
        let mut parts = self.parts.clone();
        for (part, count) in &other.parts {
            *parts.entry(*part).or_default() += count;
        }
        let (a, b) = if self.tree <= other.tree { (self, other) } else { (other, self) };
        Self { parts, tree: format!("({}+{})", a.tree, b.tree) }
    }

    fn is_sum(&self) -> bool {
        let chunks: BTreeSet<usize> = self.parts.keys().map(|(_, chunk)| *chunk).collect();
        chunks.len() == 1 && self.parts.values().all(|count| *count == 1)
    }
}

/// A state of the second walk.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    pcs: Vec<usize>,
    memory: Vec<Option<Datum>>,
    /// Puts under way: where, and what they carry.
    flying: BTreeMap<At, (usize, Datum)>,
    /// What gets would read at the signal that they go back to.
    caught: BTreeMap<At, Option<Datum>>,
}

impl Explorer<'_> {
    fn walk_data(&self, found: &mut BTreeSet<Trouble>) -> Option<()> {
        let ranks = self.schedule.ranks as usize;
        let mut memory = vec![None; ranks * self.per_rank];
        for rank in 0..ranks {
            for chunk in self.schedule.input_chunks(Rank::from_u32(rank as u32)) {
                memory[rank * self.per_rank + chunk as usize] = Some(Datum::input(rank, chunk as usize));
            }
        }
        let start =
            State { pcs: vec![0; self.ops.len()], memory, flying: BTreeMap::new(), caught: BTreeMap::new() };
        let mut seen: HashSet<State> = HashSet::new();
        let mut todo = vec![start];
        while let Some(state) = todo.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            if seen.len() > MAX_STATES {
                return None;
            }
            if self.schedule.collective != Collective::Barrier {
                self.look_at_results(&state, found);
            }
            for put in state.flying.keys() {
                let mut next = state.clone();
                let (location, datum) = next.flying.remove(put).expect("the key is there");
                next.memory[location] = Some(datum);
                todo.push(next);
            }
            for lane in (0..self.ops.len()).filter(|l| self.is_ready(&state.pcs, *l)) {
                todo.extend(self.step(&state, lane, found));
            }
        }
        Some(())
    }

    /// The states after a lane's next op.
    fn step(&self, state: &State, lane: usize, found: &mut BTreeSet<Trouble>) -> Vec<State> {
        let at = (lane, state.pcs[lane]);
        let rank = self.rank_of[lane];
        let mut next = state.clone();
        next.pcs[lane] += 1;
        let mut load = |state: &State, location: usize| {
            if state.memory[location].is_none() {
                found.insert(Trouble::Undefined);
            }
            state.memory[location].clone()
        };
        match self.ops[lane][at.1] {
            OpKind::Signal { .. } => {
                for window in self.windows.iter().filter(|w| w.opens == at && !w.access.writes) {
                    let get = window.closes.expect("the window of a get ends with it");
                    next.caught.insert(get, state.memory[window.access.location].clone());
                }
            }
            OpKind::Wait { .. } => {
                for window in self.windows.iter().filter(|w| w.closes == Some(at) && w.access.writes) {
                    if let Some((location, datum)) = next.flying.remove(&window.opens) {
                        next.memory[location] = Some(datum);
                    }
                }
            }
            OpKind::Put { src, peer, dst, .. } => {
                if let Some(datum) = load(state, self.location(rank, src)) {
                    next.flying.insert(at, (self.location(peer.as_u32() as usize, dst), datum));
                }
            }
            OpKind::Copy { src, dst } => {
                next.memory[self.location(rank, dst)] = load(state, self.location(rank, src));
            }
            OpKind::Reduce { dst, src } => {
                let (term, own) =
                    (load(state, self.location(rank, src)), load(state, self.location(rank, dst)));
                let sum = own.zip(term).map(|(own, term)| own.add(&term));
                if sum.as_ref().is_some_and(|sum| !sum.is_sum()) {
                    found.insert(Trouble::Wrong);
                }
                next.memory[self.location(rank, dst)] = sum;
            }
            OpKind::Get { peer, src, dst, .. } => {
                let late = load(state, self.location(peer.as_u32() as usize, src));
                let early = next.caught.remove(&at).unwrap_or_else(|| late.clone());
                let mut other = next.clone();
                other.memory[self.location(rank, dst)] = early;
                next.memory[self.location(rank, dst)] = late;
                return vec![next, other];
            }
        }
        vec![next]
    }

    /// Ranks that have ended must have their results, whatever the others do.
    fn look_at_results(&self, state: &State, found: &mut BTreeSet<Trouble>) {
        let schedule = self.schedule;
        let inout = schedule.buffers.values().any(|b| b.kind == BufferKind::Inout);
        let mut trees: BTreeMap<usize, String> = BTreeMap::new();
        for rank in (0..schedule.ranks as usize).filter(|r| self.has_ended(&state.pcs, *r)) {
            for chunk in results(schedule, rank) {
                let apart = if inout || self.in_place { 0 } else { schedule.chunks as usize };
                let datum = &state.memory[rank * self.per_rank + apart + chunk];
                if datum.as_ref().map(|d| &d.parts) != Some(&wanted(schedule, rank, chunk)) {
                    found.insert(Trouble::Wrong);
                    continue;
                }
                let tree = &datum.as_ref().expect("it has the wanted parts").tree;
                let of_all = matches!(schedule.collective, Collective::AllReduce);
                if of_all
                    && schedule.order == Order::Same
                    && trees.entry(chunk).or_insert(tree.clone()) != tree
                {
                    found.insert(Trouble::Order);
                }
            }
        }
    }
}

/// The chunks that a rank must have in the end.
fn results(schedule: &Schedule, rank: usize) -> Vec<usize> {
    let chunks = schedule.chunks as usize;
    let block = chunks / schedule.ranks as usize;
    let root = schedule.root.map(|r| r.as_u32() as usize);
    match schedule.collective {
        Collective::AllReduce | Collective::AllGather | Collective::Broadcast | Collective::AllToAll => {
            (0..chunks).collect()
        }
        Collective::ReduceScatter | Collective::Scatter => (rank * block..(rank + 1) * block).collect(),
        Collective::Reduce | Collective::Gather if root == Some(rank) => (0..chunks).collect(),
        _ => Vec::new(),
    }
}

/// What such a chunk must be made of.
fn wanted(schedule: &Schedule, rank: usize, chunk: usize) -> BTreeMap<(usize, usize), usize> {
    let ranks = schedule.ranks as usize;
    let block = schedule.chunks as usize / ranks;
    let root = schedule.root.map_or(0, |r| r.as_u32() as usize);
    let parts: Vec<(usize, usize)> = match schedule.collective {
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => {
            (0..ranks).map(|r| (r, chunk)).collect()
        }
        Collective::AllGather | Collective::Gather => vec![(chunk / block, chunk)],
        Collective::Broadcast | Collective::Scatter => vec![(root, chunk)],
        Collective::AllToAll => vec![(chunk / block, rank * block + chunk % block)],
        Collective::AllToAllV | Collective::SendRecv | Collective::Barrier => Vec::new(),
    };
    parts.into_iter().map(|part| (part, 1)).collect()
}
