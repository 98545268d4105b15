//! What a kernel plan may do, found by trying every interleaving of its lanes the way executors run
//! them: sequence numbers that only grow, waits that look at them and take nothing away, flags that stay
//! up. It shares no code and no idea with the verifier, and has any number of tiles and launches.

use ringsmith_ir::kernel_plan::{Counter, KernelOp, KernelOpKind, KernelPlan, Place, Source};
use ringsmith_ir::schedule::{Order, Protocol};
use ringsmith_ir::types::Collective;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A kind of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trouble {
    /// Lanes that never end: V0501, V0502.
    Stuck,
    /// Accesses that nothing orders: V0301, V0302, V0303.
    Race,
    /// A message that is left in its slot or cell: V0601.
    Leftover,
    /// A rank whose launch ends before another's has begun, in a zone plan or a barrier: V0602, V0403.
    Unheard,
    /// Undefined memory, wrong results, sums of what does not belong together, messages of another size
    /// than their receiver expects: V0206, V0401, V0402, V0604, V0606.
    Data,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) tiles: usize,
    pub(crate) launches: usize,
    pub(crate) in_place: bool,
}

/// A piece of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Spot {
    /// Rank, whether output, chunk, tile.
    User(usize, bool, u32, usize),
    Scratch(usize, u32, u32),
    Slot(usize, usize),
    Cell(usize, u32, usize),
}

/// A number on the way of each lane: ops of all tiles and launches in one row.
type Position = Vec<usize>;

pub(crate) struct Explorer {
    plan: KernelPlan,
    extent: Extent,
    rank_of: Vec<usize>,
    /// Ops of each lane in one launch.
    per_launch: Vec<usize>,
    /// Sending and receiving lane of each link.
    ends: Vec<(usize, usize)>,
}

/// A flag in a cell promises what is in that cell, and nothing of what else the move writes: such a move
/// becomes two, of which the second copies what the first has sent.
fn split_moves(mut plan: KernelPlan, in_place: bool) -> KernelPlan {
    // A destination that is the only source is no destination.
    let is_same = |from: Source, to: Place, post: bool| {
        let same = from.place == to
            || in_place && matches!((from.place, to), (Place::Input(a), Place::Output(b)) if a == b);
        same && !from.pre && !post
    };
    for lane in plan.lanes.values_mut() {
        lane.ops = std::mem::take(&mut lane.ops)
            .into_iter()
            .flat_map(|op| {
                let KernelOpKind::Move { dst, src, post, chunk } = op.kind.clone() else { return vec![op] };
                let keeps = |to: &Place| !matches!(src[..], [from] if is_same(from, *to, post));
                let (cells, others): (Vec<Place>, Vec<Place>) =
                    dst.into_iter().filter(keeps).partition(|place| matches!(place, Place::Cell(..)));
                if cells.is_empty() {
                    return vec![op];
                }
                if others.is_empty() {
                    let kind = KernelOpKind::Move { dst: cells, src, post, chunk };
                    return vec![KernelOp { kind, origin: Vec::new() }];
                }
                let sent = Source { place: cells[0], pre: false };
                let first = KernelOpKind::Move { dst: cells, src, post, chunk };
                let second = KernelOpKind::Move { dst: others, src: vec![sent], post: false, chunk };
                [first, second].map(|kind| KernelOp { kind, origin: Vec::new() }).to_vec()
            })
            .collect();
    }
    plan
}

impl Explorer {
    pub(crate) fn new(plan: &KernelPlan, extent: Extent) -> Self {
        let plan = split_moves(plan.clone(), extent.in_place);
        let lane = |name| plan.lanes.values().position(|l| l.name == name).expect("a lane of that name");
        Self {
            rank_of: plan.lanes.values().map(|l| l.name.rank.as_u32() as usize).collect(),
            per_launch: plan.lanes.values().map(|l| l.ops.len() * extent.tiles).collect(),
            ends: plan.links.values().map(|l| (lane(l.from), lane(l.to))).collect(),
            plan,
            extent,
        }
    }

    /// How many states there may be.
    pub(crate) fn states(&self) -> usize {
        let lengths = self.per_launch.iter().map(|ops| ops * self.extent.launches + 1);
        lengths.fold(1, |all: usize, length| all.saturating_mul(length))
    }

    fn ops(&self, lane: usize) -> impl Iterator<Item = &KernelOpKind> {
        self.plan.lanes.values().nth(lane).expect("a lane").ops.iter().map(|op| &op.kind)
    }

    fn op(&self, lane: usize, at: usize) -> &KernelOpKind {
        let ops = &self.plan.lanes.values().nth(lane).expect("a lane").ops;
        &ops[at % ops.len()].kind
    }

    /// How many signals of a counter a lane has sent before a position.
    fn signalled(&self, lane: usize, counter: Counter, before: usize) -> usize {
        let ops = self.per_launch[lane] / self.extent.tiles;
        if ops == 0 {
            return 0;
        }
        let count = |upto: usize| {
            self.ops(lane).take(upto).filter(|op| **op == KernelOpKind::Signal(counter)).count()
        };
        before / ops * count(ops) + count(before % ops)
    }

    fn launch(&self, lane: usize, at: usize) -> usize {
        at.checked_div(self.per_launch[lane]).unwrap_or(0)
    }

    /// Whether all lanes of a rank have ended so many launches.
    fn has_ended(&self, position: &Position, rank: usize, launches: usize) -> bool {
        (0..position.len())
            .filter(|l| self.rank_of[*l] == rank)
            .all(|l| position[l] >= self.per_launch[l] * launches)
    }

    fn has_begun(&self, position: &Position, rank: usize, launch: usize) -> bool {
        (0..position.len()).any(|l| self.rank_of[l] == rank && position[l] > self.per_launch[l] * launch)
    }

    /// Whether a cell of this launch has been filled.
    fn has_arrived(&self, position: &Position, link: usize, cell: u32, launch: usize) -> bool {
        let sender = self.ends[link].0;
        let fills = |op: &KernelOpKind| match op {
            KernelOpKind::Signal(Counter::Cell(l, c)) => l.as_u32() as usize == link && *c == cell,
            KernelOpKind::Move { dst, .. } => dst
                .iter()
                .any(|p| matches!(p, Place::Cell(l, c) if l.as_u32() as usize == link && *c == cell)),
            KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => false,
        };
        let from = self.per_launch[sender] * launch;
        (from..position[sender].min(from + self.per_launch[sender])).any(|at| fills(self.op(sender, at)))
    }

    fn is_ready(&self, position: &Position, lane: usize) -> bool {
        let at = position[lane];
        if self.per_launch[lane] == 0 || at == self.per_launch[lane] * self.extent.launches {
            return false;
        }
        let launch = self.launch(lane, at);
        if at.is_multiple_of(self.per_launch[lane]) && !self.has_ended(position, self.rank_of[lane], launch) {
            return false;
        }
        let arrived = |link: usize, cell| self.has_arrived(position, link, cell, launch);
        match self.op(lane, at) {
            KernelOpKind::Signal(_) => true,
            KernelOpKind::Wait(Counter::Full(link)) => {
                let sender = self.ends[link.as_u32() as usize].0;
                let published = self.signalled(sender, Counter::Full(*link), position[sender]);
                published > self.signalled(lane, Counter::Free(*link), at)
            }
            KernelOpKind::Wait(Counter::Free(link)) => {
                let receiver = self.ends[link.as_u32() as usize].1;
                let released = self.signalled(receiver, Counter::Free(*link), position[receiver]);
                self.signalled(lane, Counter::Full(*link), at) < released + self.plan.slots as usize
            }
            KernelOpKind::Wait(Counter::Cell(link, cell)) => arrived(link.as_u32() as usize, *cell),
            KernelOpKind::Move { src, .. } => src.iter().all(|s| match s.place {
                Place::Cell(link, cell) => arrived(link.as_u32() as usize, cell),
                _ => true,
            }),
        }
    }

    fn spot(&self, lane: usize, at: usize, place: Place, writes: bool) -> Spot {
        let rank = self.rank_of[lane];
        let ops = self.per_launch[lane] / self.extent.tiles;
        let tile = at % self.per_launch[lane] / ops;
        match place {
            Place::Input(chunk) => Spot::User(rank, false, chunk, tile),
            Place::Output(chunk) => Spot::User(rank, !self.extent.in_place, chunk, tile),
            Place::PeerInput(peer, chunk) => Spot::User(peer.as_u32() as usize, false, chunk, tile),
            Place::PeerOutput(peer, chunk) => {
                Spot::User(peer.as_u32() as usize, !self.extent.in_place, chunk, tile)
            }
            Place::Scratch(buffer, chunk) => Spot::Scratch(rank, buffer.as_u32(), chunk),
            Place::Slot(link) => {
                let counter = if writes { Counter::Full(link) } else { Counter::Free(link) };
                let number = self.signalled(lane, counter, at);
                Spot::Slot(link.as_u32() as usize, number % self.plan.slots as usize)
            }
            Place::Cell(link, cell) => Spot::Cell(link.as_u32() as usize, cell, self.launch(lane, at) % 2),
        }
    }

    /// The place that a copy takes from: a destination there is no write.
    fn copied_from(&self, lane: usize, at: usize) -> Option<Spot> {
        match self.op(lane, at) {
            KernelOpKind::Move { src, post: false, .. } => match src[..] {
                [Source { place, pre: false }] => Some(self.spot(lane, at, place, false)),
                _ => None,
            },
            _ => None,
        }
    }

    /// What the op at a position touches, and whether it writes there.
    fn accesses(&self, lane: usize, at: usize) -> Vec<(Spot, bool)> {
        match self.op(lane, at) {
            KernelOpKind::Move { dst, src, .. } => {
                let from = self.copied_from(lane, at);
                let reads = src.iter().map(|s| (self.spot(lane, at, s.place, false), false));
                let to = dst.iter().map(|p| self.spot(lane, at, *p, true));
                let writes = to.filter(|spot| Some(*spot) != from).map(|spot| (spot, true));
                reads.chain(writes).collect()
            }
            KernelOpKind::Signal(Counter::Cell(link, cell)) => {
                vec![(self.spot(lane, at, Place::Cell(*link, *cell), true), true)]
            }
            KernelOpKind::Wait(Counter::Cell(link, cell)) => {
                vec![(self.spot(lane, at, Place::Cell(*link, *cell), false), false)]
            }
            KernelOpKind::Signal(_) | KernelOpKind::Wait(_) => Vec::new(),
        }
    }

    /// Everything that any interleaving can meet.
    pub(crate) fn explore(&self, choose: impl FnMut(usize) -> usize) -> BTreeSet<Trouble> {
        let mut found = BTreeSet::new();
        self.walk(&mut found);
        self.balance(&mut found);
        if found.is_empty() {
            self.compute(choose, &mut found);
        }
        found
    }

    fn walk(&self, found: &mut BTreeSet<Trouble>) {
        let lanes = self.rank_of.len();
        let mut seen: HashSet<Position> = HashSet::new();
        let mut todo = vec![vec![0; lanes]];
        while let Some(position) = todo.pop() {
            if !seen.insert(position.clone()) {
                continue;
            }
            let ready: Vec<usize> = (0..lanes).filter(|l| self.is_ready(&position, *l)).collect();
            let next: Vec<Vec<(Spot, bool)>> =
                ready.iter().map(|l| self.accesses(*l, position[*l])).collect();
            for (index, own) in next.iter().enumerate() {
                let mut others = next[index + 1..].iter().flatten();
                if others.any(|(spot, writes)| own.iter().any(|(s, w)| s == spot && (*w || *writes))) {
                    found.insert(Trouble::Race);
                }
            }
            if self.must_hear_all() && self.someone_is_unheard(&position) {
                found.insert(Trouble::Unheard);
            }
            let at_end = |l: usize| position[l] == self.per_launch[l] * self.extent.launches;
            if ready.is_empty() && !(0..lanes).all(at_end) {
                found.insert(Trouble::Stuck);
            }
            for lane in ready {
                let mut next = position.clone();
                next[lane] += 1;
                todo.push(next);
            }
        }
    }

    fn must_hear_all(&self) -> bool {
        self.plan.protocol != Protocol::Simple || self.plan.collective == Collective::Barrier
    }

    fn someone_is_unheard(&self, position: &Position) -> bool {
        let ranks = 0..self.plan.ranks as usize;
        (0..self.extent.launches).any(|launch| {
            let unheard = |r: usize| ranks.clone().any(|o| o != r && !self.has_begun(position, o, launch));
            ranks.clone().any(|r| self.has_ended(position, r, launch + 1) && unheard(r))
        })
    }

    fn balance(&self, found: &mut BTreeSet<Trouble>) {
        if found.contains(&Trouble::Stuck) {
            return;
        }
        for (link, decl) in self.plan.links.iter() {
            let (from, to) = self.ends[link.as_u32() as usize];
            let uneven = if self.plan.protocol == Protocol::Simple {
                let sent = self.signalled(from, Counter::Full(link), self.per_launch[from]);
                sent != self.signalled(to, Counter::Free(link), self.per_launch[to])
            } else {
                let uses = |op: &KernelOpKind, cell: u32| match op {
                    KernelOpKind::Signal(c) | KernelOpKind::Wait(c) => *c == Counter::Cell(link, cell),
                    KernelOpKind::Move { dst, src, .. } => {
                        let place = Place::Cell(link, cell);
                        dst.contains(&place) || src.iter().any(|s| s.place == place)
                    }
                };
                let used = |lane: usize, cell: u32| self.ops(lane).any(|op| uses(op, cell));
                (0..decl.messages).any(|cell| used(from, cell) != used(to, cell))
            };
            if uneven {
                found.insert(Trouble::Leftover);
            }
        }
    }
}

/// What memory holds: who is in it, in which tree, and through which steps it went.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Datum {
    /// How often each rank's chunk of a tile of a launch is in it.
    parts: BTreeMap<(usize, u32, usize, usize), usize>,
    tree: String,
    /// Sized as this chunk within its block; none for a message without payload.
    size: Option<u32>,
}

impl Explorer {
    /// Runs once with data, lanes in an order that `choose` picks: where nothing races, every order
    /// computes the same.
    fn compute(&self, mut choose: impl FnMut(usize) -> usize, found: &mut BTreeSet<Trouble>) {
        let lanes = self.rank_of.len();
        let mut position = vec![0; lanes];
        let mut memory: BTreeMap<Spot, Datum> = BTreeMap::new();
        let mut begun: Vec<Option<usize>> = vec![None; self.plan.ranks as usize];
        let mut filled: BTreeSet<usize> = BTreeSet::new();
        let mut results: BTreeMap<(u32, usize, usize), String> = BTreeMap::new();
        for rank in 0..self.plan.ranks as usize {
            let idle = (0..lanes).all(|l| self.rank_of[l] != rank || self.per_launch[l] == 0);
            if idle {
                self.begin(rank, 0, &mut memory);
                self.check_results(rank, 0, &memory, &mut results, found);
            }
        }
        loop {
            let ready: Vec<usize> = (0..lanes).filter(|l| self.is_ready(&position, *l)).collect();
            if ready.is_empty() {
                return;
            }
            let lane = ready[choose(ready.len())];
            let (rank, launch) = (self.rank_of[lane], self.launch(lane, position[lane]));
            if begun[rank] != Some(launch) {
                begun[rank] = Some(launch);
                self.begin(rank, launch, &mut memory);
            }
            self.step(lane, position[lane], &mut memory, &mut filled, found);
            position[lane] += 1;
            if self.has_ended(&position, rank, launch + 1) {
                self.check_results(rank, launch, &memory, &mut results, found);
            }
        }
    }

    /// Fresh inputs; everything else of the rank's own is undefined.
    fn begin(&self, rank: usize, launch: usize, memory: &mut BTreeMap<Spot, Datum>) {
        memory.retain(|spot, _| match spot {
            Spot::User(owner, ..) | Spot::Scratch(owner, ..) => *owner != rank,
            Spot::Slot(..) | Spot::Cell(..) => true,
        });
        for (chunk, has) in (0..self.plan.chunks).map(|c| (c, self.is_input(rank, c))) {
            for tile in (0..self.extent.tiles).filter(|_| has) {
                let parts = BTreeMap::from([((rank, chunk, tile, launch), 1)]);
                let datum = Datum { parts, tree: format!("{rank}"), size: Some(self.size(chunk)) };
                memory.insert(Spot::User(rank, false, chunk, tile), datum);
            }
        }
    }

    fn block(&self) -> u32 {
        let blocks = matches!(
            self.plan.collective,
            Collective::AllGather
                | Collective::Gather
                | Collective::ReduceScatter
                | Collective::Scatter
                | Collective::AllToAll
        );
        if blocks { self.plan.chunks / self.plan.ranks } else { self.plan.chunks }
    }

    fn size(&self, chunk: u32) -> u32 {
        chunk % self.block().max(1)
    }

    fn is_root(&self, rank: usize) -> bool {
        self.plan.root.is_some_and(|r| r.as_u32() as usize == rank)
    }

    fn is_input(&self, rank: usize, chunk: u32) -> bool {
        match self.plan.collective {
            Collective::AllGather | Collective::Gather => chunk / self.block() == rank as u32,
            Collective::Broadcast | Collective::Scatter => self.is_root(rank),
            Collective::Barrier => false,
            _ => true,
        }
    }

    fn is_result(&self, rank: usize, chunk: u32) -> bool {
        match self.plan.collective {
            Collective::ReduceScatter | Collective::Scatter => chunk / self.block() == rank as u32,
            Collective::Reduce | Collective::Gather => self.is_root(rank),
            Collective::Barrier => false,
            _ => true,
        }
    }

    fn step(
        &self,
        lane: usize,
        at: usize,
        memory: &mut BTreeMap<Spot, Datum>,
        filled: &mut BTreeSet<usize>,
        found: &mut BTreeSet<Trouble>,
    ) {
        let empty = || Datum { parts: BTreeMap::new(), tree: "empty".to_owned(), size: None };
        match self.op(lane, at) {
            KernelOpKind::Signal(Counter::Cell(link, cell)) => {
                memory.insert(self.spot(lane, at, Place::Cell(*link, *cell), true), empty());
            }
            KernelOpKind::Signal(Counter::Full(link)) => {
                if !filled.remove(&(link.as_u32() as usize)) {
                    memory.insert(self.spot(lane, at, Place::Slot(*link), true), empty());
                }
            }
            KernelOpKind::Wait(Counter::Cell(link, cell)) => {
                let spot = self.spot(lane, at, Place::Cell(*link, *cell), false);
                if memory.get(&spot).is_none_or(|datum| datum.size.is_some()) {
                    found.insert(Trouble::Data);
                }
            }
            KernelOpKind::Signal(Counter::Free(_)) | KernelOpKind::Wait(_) => {}
            KernelOpKind::Move { dst, src, post, chunk } => {
                let Some(datum) = self.combine(lane, at, src, (*post, *chunk), memory) else {
                    found.insert(Trouble::Data);
                    return;
                };
                for place in dst {
                    if let Place::Output(c) = place
                        && self.size(*c) != self.size(*chunk)
                    {
                        found.insert(Trouble::Data);
                    }
                    if let Place::Slot(link) = place {
                        filled.insert(link.as_u32() as usize);
                    }
                    memory.insert(self.spot(lane, at, *place, true), datum.clone());
                }
            }
        }
    }

    /// The result of a move; none where it makes no sense.
    fn combine(
        &self,
        lane: usize,
        at: usize,
        src: &[Source],
        (post, chunk): (bool, u32),
        memory: &BTreeMap<Spot, Datum>,
    ) -> Option<Datum> {
        let size = Some(self.size(chunk));
        let mut parts: BTreeMap<_, usize> = BTreeMap::new();
        let mut trees = Vec::new();
        for source in src {
            let datum = memory.get(&self.spot(lane, at, source.place, false))?;
            if datum.size != size {
                return None;
            }
            for (part, count) in &datum.parts {
                *parts.entry(*part).or_default() += count;
            }
            trees.push(if source.pre { format!("pre {}", datum.tree) } else { datum.tree.clone() });
        }
        let of: BTreeSet<_> = parts.keys().map(|(_, chunk, tile, launch)| (chunk, tile, launch)).collect();
        if of.len() != 1 {
            return None;
        }
        // The first two terms commute; nothing else does.
        let first = trees.len().min(2);
        trees[..first].sort();
        let tree = if trees.len() == 1 { trees.remove(0) } else { format!("({})", trees.join("+")) };
        Some(Datum { parts, tree: if post { format!("post {tree}") } else { tree }, size })
    }

    fn check_results(
        &self,
        rank: usize,
        launch: usize,
        memory: &BTreeMap<Spot, Datum>,
        results: &mut BTreeMap<(u32, usize, usize), String>,
        found: &mut BTreeSet<Trouble>,
    ) {
        for chunk in (0..self.plan.chunks).filter(|c| self.is_result(rank, *c)) {
            for tile in 0..self.extent.tiles {
                let datum = memory.get(&Spot::User(rank, !self.extent.in_place, chunk, tile));
                let wanted: BTreeMap<_, usize> =
                    self.wanted(rank, chunk).into_iter().map(|(r, c)| ((r, c, tile, launch), 1)).collect();
                let Some(datum) = datum.filter(|d| d.parts == wanted) else {
                    found.insert(Trouble::Data);
                    continue;
                };
                let reduces = matches!(
                    self.plan.collective,
                    Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce
                );
                let count = |word: &str| datum.tree.matches(word).count();
                let ranks = self.plan.ranks as usize;
                let steps = if reduces { (ranks, 1) } else { (0, 0) };
                if (count("pre"), count("post")) != steps || reduces && !datum.tree.starts_with("post") {
                    found.insert(Trouble::Data);
                }
                let first = results.entry((chunk, tile, launch)).or_insert_with(|| datum.tree.clone());
                let one_tree =
                    self.plan.collective == Collective::AllReduce && self.plan.order == Order::Same;
                if one_tree && *first != datum.tree {
                    found.insert(Trouble::Data);
                }
            }
        }
    }

    fn wanted(&self, rank: usize, chunk: u32) -> Vec<(usize, u32)> {
        let block = self.block();
        match self.plan.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce => {
                (0..self.plan.ranks as usize).map(|r| (r, chunk)).collect()
            }
            Collective::AllGather | Collective::Gather => vec![((chunk / block) as usize, chunk)],
            Collective::Broadcast | Collective::Scatter => {
                vec![(self.plan.root.map_or(0, |r| r.as_u32() as usize), chunk)]
            }
            Collective::AllToAll => vec![((chunk / block) as usize, rank as u32 * block + chunk % block)],
            Collective::AllToAllV | Collective::SendRecv | Collective::Barrier => Vec::new(),
        }
    }
}
