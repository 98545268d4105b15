//! Random schedules: right and wrong ones from the tree, with ops lost, doubled, swapped, moved or
//! changed; and small ones made of nothing but chance.

use cranelift_entity::EntityRef;
use ringsmith_ir::diagnostic::Span;
use ringsmith_ir::entity::{Buffer, Lane, LaneName, Link, Rank};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::{
    BufferDecl, BufferKind, LaneDecl, LinkDecl, Op, OpKind, Order, Protocol, Schedule, Slice,
};
use ringsmith_ir::text::{File, parse};
use ringsmith_ir::types::Collective;
use std::path::Path;

/// Numbers from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}

/// A schedule and what it is called in reports.
#[derive(Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
}

/// Every schedule of the tree that is small enough to be walked through, for one to three ranks.
pub(crate) fn schedules(largest: usize) -> Vec<Named> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = Vec::new();
    for folder in ["tests/file/verify", "examples/schedules", "examples/mistakes", "compiler/src/plan"] {
        let mut paths: Vec<_> = std::fs::read_dir(tree.join(folder))
            .unwrap_or_else(|e| panic!("{folder}: {e}"))
            .map(|entry| entry.expect("an entry of a folder that was just opened").path())
            .filter(|path| path.extension().is_some_and(|e| e == "sched"))
            .collect();
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).expect("a readable file");
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            match parse(&text) {
                Ok(File::Schedule(schedule)) => all.push(Named { name: stem, schedule }),
                Ok(File::Program(program)) => {
                    for ranks in 1..=3 {
                        // A root where none is wanted is refused, and so is none where one is.
                        for root in (0..ranks).map(Some).chain([None]) {
                            let arguments = Arguments { root, ..Arguments::ranks(ranks) };
                            if let Ok(schedule) = expand(&program, &arguments) {
                                all.push(Named { name: format!("{stem} for {ranks}"), schedule });
                            }
                        }
                    }
                }
                // Texts that cannot be read are other tests' business.
                Err(_) => {}
            }
        }
    }
    all.retain(|Named { schedule, .. }| {
        let memory: u32 = schedule.buffers.values().map(|b| b.chunks).max().unwrap_or(0);
        let positions = schedule.lanes.values().map(|l| l.ops.len() + 1);
        schedule.ranks <= 4
            && memory <= 64
            && positions.fold(1, |all: usize, of_lane| all.saturating_mul(of_lane)) <= largest
    });
    all
}

/// A schedule with `count` things changed.
pub(crate) fn mutate(mut schedule: Schedule, count: usize, random: &mut Random) -> Schedule {
    for _ in 0..count {
        change(&mut schedule, random);
    }
    schedule
}

fn change(schedule: &mut Schedule, random: &mut Random) {
    if schedule.lanes.is_empty() {
        return;
    }
    let lane = Lane::new(random.below(schedule.lanes.len()));
    let len = schedule.lanes[lane].ops.len();
    if len == 0 {
        return;
    }
    let at = random.below(len);
    let any_lane = Lane::new(random.below(schedule.lanes.len()));
    match random.below(12) {
        0 | 1 => drop(schedule.lanes[lane].ops.remove(at)),
        2 | 3 if at + 1 < len => schedule.lanes[lane].ops.swap(at, at + 1),
        4 => {
            let op = schedule.lanes[lane].ops[at];
            schedule.lanes[lane].ops.insert(random.below(len + 1), op);
        }
        5 => {
            let op = schedule.lanes[lane].ops.remove(at);
            schedule.lanes[lane].ops.insert(random.below(len), op);
        }
        6 => {
            let op = schedule.lanes[lane].ops.remove(at);
            let room = schedule.lanes[any_lane].ops.len() + 1;
            schedule.lanes[any_lane].ops.insert(random.below(room), op);
        }
        7 => {
            schedule.order = if schedule.order == Order::Any { Order::Same } else { Order::Any };
        }
        _ => {
            let mut op = schedule.lanes[lane].ops[at];
            change_op(schedule, &mut op.kind, random);
            schedule.lanes[lane].ops[at] = op;
        }
    }
}

fn any_slice(schedule: &Schedule, random: &mut Random) -> Option<Slice> {
    if schedule.buffers.is_empty() {
        return None;
    }
    let buffer = Buffer::new(random.below(schedule.buffers.len()));
    let chunks = schedule.buffers[buffer].chunks as usize;
    (chunks > 0).then(|| Slice { buffer, chunk: random.below(chunks) as u32 })
}

fn any_link(schedule: &Schedule, random: &mut Random) -> Option<Link> {
    (!schedule.links.is_empty()).then(|| Link::new(random.below(schedule.links.len())))
}

fn change_op(schedule: &Schedule, op: &mut OpKind, random: &mut Random) {
    match op {
        OpKind::Put { src, dst, .. }
        | OpKind::Get { src, dst, .. }
        | OpKind::Reduce { dst, src }
        | OpKind::Copy { src, dst } => {
            let slice = if random.below(2) == 0 { src } else { dst };
            if let Some(other) = any_slice(schedule, random) {
                *slice = other;
            }
        }
        OpKind::Signal { link } | OpKind::Wait { link } => {
            if let Some(other) = any_link(schedule, random) {
                *link = other;
            }
        }
    }
    if random.below(4) == 0 {
        *op = match *op {
            OpKind::Signal { link } => OpKind::Wait { link },
            OpKind::Wait { link } => OpKind::Signal { link },
            OpKind::Reduce { dst, src } => OpKind::Copy { src, dst },
            OpKind::Copy { src, dst } => OpKind::Reduce { dst, src },
            other => other,
        };
    }
}

/// A schedule made of nothing but chance: two or three ranks, one or two lanes each, few ops. Links
/// join fixed lanes, so that it breaks no rule that needs no run.
pub(crate) fn chance(random: &mut Random) -> Schedule {
    let ranks = 2 + random.below(2) as u32;
    let collective = random.pick(&[Collective::Barrier, Collective::Broadcast, Collective::AllReduce]);
    let has_data = collective != Collective::Barrier;
    let mut schedule = Schedule {
        name: "chance".to_owned(),
        ranks,
        collective,
        op: None,
        order: random.pick(&[Order::Same, Order::Any]),
        root: (collective == Collective::Broadcast).then(|| Rank::new(0)),
        chunks: u32::from(has_data),
        lanes_per_lane: 1,
        protocol: Protocol::Simple,
        buffers: Default::default(),
        links: Default::default(),
        lanes: Default::default(),
    };
    let span = Span::default();
    if has_data {
        for (name, kind) in [("data", BufferKind::Inout), ("inbox", BufferKind::Scratch)] {
            schedule.buffers.push(BufferDecl { name: name.to_owned(), kind, chunks: 1, span });
        }
    }
    let names: Vec<LaneName> = (0..ranks)
        .flat_map(|r| {
            let lanes = 1 + u32::from(random.below(4) == 0);
            (0..lanes).map(move |index| LaneName { rank: Rank::from_u32(r), index }).collect::<Vec<_>>()
        })
        .collect();
    let mut ends = Vec::new();
    for _ in 0..2 + random.below(3) {
        let (from, to) = (random.below(names.len()), random.below(names.len()));
        schedule.links.push(LinkDecl { from: names[from].rank, to: names[to].rank, span });
        ends.push((from, to));
    }
    for (index, name) in names.iter().enumerate() {
        let ops = (0..random.below(6))
            .filter_map(|_| chance_op(&schedule, &ends, index, random))
            .map(|kind| Op { kind, span })
            .collect();
        schedule.lanes.push(LaneDecl { name: *name, ops, span });
    }
    schedule
}

fn chance_op(
    schedule: &Schedule,
    ends: &[(usize, usize)],
    lane: usize,
    random: &mut Random,
) -> Option<OpKind> {
    let link = random.below(ends.len());
    let (sends, receives) = (ends[link].0 == lane, ends[link].1 == lane);
    let link = Link::new(link);
    let (from, to) = (schedule.links[link].from, schedule.links[link].to);
    let slices = (any_slice(schedule, random), any_slice(schedule, random));
    let data = match slices {
        (Some(src), Some(dst)) if random.below(2) == 0 => Some((src, dst)),
        _ => None,
    };
    match (sends, receives, data) {
        (true, _, Some((src, dst))) => Some(OpKind::Put { src, peer: to, dst, link }),
        (true, _, None) => Some(OpKind::Signal { link }),
        (_, true, Some((src, dst))) if random.below(2) == 0 => {
            Some(OpKind::Get { peer: from, src, dst, link })
        }
        (_, true, _) => Some(OpKind::Wait { link }),
        (_, _, Some((src, dst))) if random.below(2) == 0 => Some(OpKind::Reduce { dst, src }),
        (_, _, Some((src, dst))) => Some(OpKind::Copy { src, dst }),
        _ => None,
    }
}
