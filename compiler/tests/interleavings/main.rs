//! The verifier on kernel plans against an executor that tries every interleaving ([`explore`]), with up
//! to three tiles and three launches, one or two slots: more than the verifier runs, so that this is a
//! test of the argument why it need not, too.
//!
//! The plans are those that lowering makes of the planner's programs, fused and not, whole and with ops
//! moved, lost, doubled or given to lanes of their own. Every failure names its seed;
//! `RINGSMITH_TEST_SEED=<seed>` runs that one alone,
//! `RINGSMITH_TEST_CASES=<number>` more or fewer.

mod explore;

use explore::{Explorer, Extent, Trouble};
use ringsmith_compiler::lower::{self, Options};
use ringsmith_ir::entity::{Lane, LaneName, Link};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::kernel_plan::{Counter, KernelLane, KernelOp, KernelOpKind, KernelPlan, Place};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::text::{parse_kernel_plan, parse_program, print_kernel_plan};
use ringsmith_ir::verify;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cranelift_entity::EntityRef;

/// Numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// States that one case may take; larger ones get fewer tiles and launches.
const MAX_STATES: usize = 12_000;

/// Plans of every program of the planner, small enough to be walked through.
fn plans() -> Vec<(String, KernelPlan)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the planner's folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "sched"))
        .collect();
    paths.sort();
    let mut plans = Vec::new();
    for path in paths {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let program = parse_program(&std::fs::read_to_string(&path).expect("a readable program"))
            .unwrap_or_else(|d| panic!("{name}: {d:?}"));
        for ranks in 2..=3 {
            // A root where none is wanted is refused, and so is none where one is.
            for root in [None, Some(0)] {
                let Ok(schedule) = expand(&program, &Arguments { root, ..Arguments::ranks(ranks) }) else {
                    continue;
                };
                let schedule = verify::schedule(schedule).unwrap_or_else(|d| panic!("{name}: {d:#?}"));
                for (protocol, slots) in [(Protocol::Simple, 1), (Protocol::Simple, 2), (Protocol::Ll, 2)] {
                    // Zones are not for every program.
                    let options = Options { protocol, slots, slot_bytes: 4096 };
                    if let Ok(plan) = lower::lower(&schedule, options) {
                        let name = format!("{name} for {ranks}, {protocol}, {slots} slots");
                        plans.push((name, plan.into_inner()));
                    }
                }
            }
        }
    }
    plans.push(("handed over".to_owned(), handed_over(true)));
    plans.retain(|(_, plan)| extents(plan).len() > 4);
    plans
}

/// What is tried of a plan: as many tiles and launches as the number of states allows.
fn extents(plan: &KernelPlan) -> Vec<Extent> {
    let wanted: &[(usize, usize)] = match plan.protocol {
        Protocol::Simple => &[(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2), (4, 1)],
        Protocol::Ll | Protocol::Ll128 => &[(1, 1), (1, 2), (1, 3), (1, 4)],
    };
    wanted
        .iter()
        .flat_map(|&(tiles, launches)| [false, true].map(|in_place| Extent { tiles, launches, in_place }))
        .filter(|extent| Explorer::new(plan, *extent).states() <= MAX_STATES)
        .collect()
}

fn trouble(code: &str) -> Option<Trouble> {
    match code {
        "V0501" | "V0502" => Some(Trouble::Stuck),
        "V0301" | "V0302" | "V0303" => Some(Trouble::Race),
        "V0601" => Some(Trouble::Leftover),
        "V0602" | "V0403" => Some(Trouble::Unheard),
        "V0206" | "V0401" | "V0402" | "V0604" | "V0606" => Some(Trouble::Data),
        // Rules that need no run; the executor knows nothing of them.
        "V0603" | "V0605" | "V0607" => None,
        other => panic!("{other} is no code of a kernel plan"),
    }
}

#[derive(Default)]
struct Tally {
    proved: usize,
    too_large: usize,
    refused: BTreeMap<Vec<&'static str>, usize>,
}

impl Tally {
    fn compare(&mut self, seed: u64, name: &str, plan: &KernelPlan, random: &mut Random) {
        let extents = extents(plan);
        // A refusal may need two tiles, or three launches of a zone, to show.
        let enough = if plan.protocol == Protocol::Simple { (2, 1) } else { (1, 3) };
        if !extents.iter().any(|e| e.in_place && (e.tiles, e.launches) == enough) {
            self.too_large += 1;
            return;
        }
        let verdict = verify::kernel_plan(plan.clone());
        let codes: BTreeSet<&'static str> = match &verdict {
            Ok(_) => BTreeSet::new(),
            Err(found) => found.iter().map(|d| d.code.0).collect(),
        };
        if codes.iter().any(|code| trouble(code).is_none()) {
            *self.refused.entry(vec!["without a run"]).or_default() += 1;
            return;
        }
        let mut tried = BTreeSet::new();
        for extent in &extents {
            let found = Explorer::new(plan, *extent).explore(|bound| random.below(bound));
            if verdict.is_ok() {
                let text = print_kernel_plan(plan);
                assert!(
                    found.is_empty(),
                    "seed {seed}, {name}: proved, and yet {found:?} with {extent:?}\n{text}"
                );
            }
            tried.extend(found);
        }
        match verdict {
            Ok(_) => self.proved += 1,
            Err(found) => {
                // The first and last step have stricter rules than the result needs: they say where.
                let strict = codes == BTreeSet::from(["V0604"]);
                let said: BTreeSet<Trouble> = codes.iter().filter_map(|code| trouble(code)).collect();
                let control = |set: &BTreeSet<Trouble>| {
                    set.iter().copied().filter(|t| *t != Trouble::Data).collect::<BTreeSet<_>>()
                };
                let seen =
                    strict || said.contains(&Trouble::Data) || !control(&said).is_disjoint(&control(&tried));
                let nothing = tried.is_empty() && !strict;
                let list: Vec<String> = found.iter().map(|d| format!("{d} {:?}", d.notes)).collect();
                assert!(
                    seen && !nothing,
                    "seed {seed}, {name}: refused, and {tried:?} tried\n{}\n{}",
                    list.join("\n"),
                    print_kernel_plan(plan)
                );
                *self.refused.entry(codes.into_iter().collect()).or_default() += 1;
            }
        }
    }
}

/// One change, mostly of a kind that the rules without a run let pass.
fn change(plan: &mut KernelPlan, random: &mut Random) {
    let lane = Lane::new(random.below(plan.lanes.len()));
    let len = plan.lanes[lane].ops.len();
    if len == 0 {
        return;
    }
    let at = random.below(len);
    match random.below(11) {
        10 => lose_link(plan, random),
        0..=3 => {
            // To any other place of its lane.
            let op = plan.lanes[lane].ops.remove(at);
            plan.lanes[lane].ops.insert(random.below(len), op);
        }
        4 => drop(plan.lanes[lane].ops.remove(at)),
        5 => split(plan, lane, at),
        6 => lose_message(plan, lane, at),
        7 => {
            let op = plan.lanes[lane].ops[at].clone();
            plan.lanes[lane].ops.insert(random.below(len + 1), op);
        }
        _ => change_move(plan, lane, at, random),
    }
}

fn links_of(op: &KernelOpKind) -> BTreeSet<u32> {
    let of_place = |place: &Place| match place {
        Place::Slot(link) | Place::Cell(link, _) => Some(link.as_u32()),
        Place::Input(_)
        | Place::Output(_)
        | Place::PeerInput(..)
        | Place::PeerOutput(..)
        | Place::Scratch(..) => None,
    };
    match op {
        KernelOpKind::Wait(c) | KernelOpKind::Signal(c) => match c {
            Counter::Full(link) | Counter::Free(link) | Counter::Cell(link, _) => {
                BTreeSet::from([link.as_u32()])
            }
        },
        KernelOpKind::Move { dst, src, .. } => {
            dst.iter().chain(src.iter().map(|s| &s.place)).filter_map(of_place).collect()
        }
    }
}

/// Gives everything that one link of a lane is used for, with what hangs on it, a lane of its own.
fn split(plan: &mut KernelPlan, lane: Lane, at: usize) {
    let mut links = links_of(&plan.lanes[lane].ops[at].kind);
    if links.is_empty() {
        return;
    }
    loop {
        let joined = |op: &&KernelOp| !links_of(&op.kind).is_disjoint(&links);
        let more: BTreeSet<u32> =
            plan.lanes[lane].ops.iter().filter(joined).flat_map(|op| links_of(&op.kind)).collect();
        if more.is_subset(&links) {
            break;
        }
        links.extend(more);
    }
    let old = plan.lanes[lane].name;
    let name = LaneName { rank: old.rank, index: 50 };
    if plan.lanes.values().any(|l| l.name == name) {
        return;
    }
    let (moved, kept) = std::mem::take(&mut plan.lanes[lane].ops)
        .into_iter()
        .partition(|op| !links_of(&op.kind).is_disjoint(&links));
    plan.lanes[lane].ops = kept;
    plan.lanes.push(KernelLane { name, ops: moved });
    for (link, decl) in plan.links.iter_mut().filter(|(link, _)| links.contains(&link.as_u32())) {
        assert!(decl.from == old || decl.to == old, "{link} is used by its ends");
        if decl.from == old {
            decl.from = name;
        }
        if decl.to == old {
            decl.to = name;
        }
    }
}

/// A wait and everything up to the signal that ends its use are lost.
fn lose_message(plan: &mut KernelPlan, lane: Lane, at: usize) {
    let ops = &mut plan.lanes[lane].ops;
    let ends = match ops[at].kind {
        KernelOpKind::Wait(Counter::Full(link)) => KernelOpKind::Signal(Counter::Free(link)),
        KernelOpKind::Wait(Counter::Free(link)) => KernelOpKind::Signal(Counter::Full(link)),
        _ => return,
    };
    let Some(last) = (at..ops.len()).find(|i| ops[*i].kind == ends) else { return };
    let message = ends;
    ops.drain(at..=last);
    if let KernelOpKind::Signal(Counter::Full(link)) = message {
        plan.links[link].messages -= 1;
    }
}

/// A link is not used any more, at either end.
fn lose_link(plan: &mut KernelPlan, random: &mut Random) {
    if plan.links.is_empty() {
        return;
    }
    let link = Link::new(random.below(plan.links.len()));
    let is_of = |place: &Place| matches!(place, Place::Slot(l) | Place::Cell(l, _) if *l == link);
    for lane in plan.lanes.values_mut() {
        lane.ops.retain_mut(|op| match &mut op.kind {
            KernelOpKind::Wait(c) | KernelOpKind::Signal(c) => {
                let (Counter::Full(l) | Counter::Free(l) | Counter::Cell(l, _)) = *c;
                l != link
            }
            KernelOpKind::Move { dst, src, .. } => {
                dst.retain(|place| !is_of(place));
                !dst.is_empty() && !src.iter().any(|s| is_of(&s.place))
            }
        });
    }
    plan.links[link].messages = 0;
}

fn change_move(plan: &mut KernelPlan, lane: Lane, at: usize, random: &mut Random) {
    let chunks = plan.chunks.max(1);
    let KernelOpKind::Move { dst, src, post, chunk } = &mut plan.lanes[lane].ops[at].kind else { return };
    match random.below(6) {
        0 => *post = !*post,
        1 => *chunk = random.below(chunks as usize) as u32,
        2 => {
            let source = random.below(src.len());
            src[source].pre = !src[source].pre;
        }
        3 => src.reverse(),
        4 => {
            let place = random.below(dst.len());
            if let Place::Output(c) | Place::Scratch(_, c) = &mut dst[place] {
                *c = random.below(chunks as usize) as u32;
            }
        }
        _ => {
            let source = random.below(src.len());
            if let Place::Input(c) | Place::Output(c) | Place::Scratch(_, c) = &mut src[source].place {
                *c = random.below(chunks as usize) as u32;
            }
        }
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let one =
        std::env::var("RINGSMITH_TEST_SEED").ok().map(|s| s.parse::<u64>().expect("a seed is a number"));
    let count =
        std::env::var("RINGSMITH_TEST_CASES").map_or(count, |n| n.parse().expect("a number of cases"));
    one.map_or(0..count, |seed| seed..seed + 1)
}

#[test]
fn what_lowering_makes_is_proved_and_right() {
    let mut tally = Tally::default();
    for (name, plan) in plans() {
        tally.compare(0, &name, &plan, &mut Random(0));
    }
    println!("{} proved", tally.proved);
    assert!(tally.refused.is_empty(), "{:?}", tally.refused);
    assert!(tally.proved > 40, "{}", tally.proved);
}

#[test]
fn changed_plans_do_what_is_said_of_them() {
    let plans = plans();
    let mut tally = Tally::default();
    for seed in seeds(3000) {
        let mut random = Random(seed);
        let (name, mut plan) = plans[random.below(plans.len())].clone();
        for _ in 0..1 + random.below(3) {
            change(&mut plan, &mut random);
        }
        tally.compare(seed, &name, &plan, &mut random);
    }
    println!("{:6} proved, {} too large to try", tally.proved, tally.too_large);
    for (codes, count) in &tally.refused {
        println!("{count:6} {}", codes.join(" "));
    }
}

/// Two lanes hand scratch to each other within a tile; with `answer`, the reader says when it is done.
fn handed_over(answer: bool) -> KernelPlan {
    let (link, wait, signal) = if answer {
        (
            "link l2: r0.1 -> r0.0 { messages = 1 }",
            "wait l2.full\nsignal l2.free",
            "wait l2.free\nsignal l2.full",
        )
    } else {
        ("", "", "")
    };
    let text = format!(
        "kernel_plan @handed_over {{
           ranks 2\ncollective broadcast\nroot r0\nchunks 1\nprotocol simple\nslots 2\nslot_bytes 4096
           scratch acc: [1]
           link l0: r0.0 -> r0.1 {{ messages = 1 }}
           link l1: r0.1 -> r1.0 {{ messages = 1 }}
           {link}
           lane r0.0 {{
             move output[0], acc[0] <- input[0]
             wait l0.free
             signal l0.full
             {wait}
           }}
           lane r0.1 {{
             wait l0.full
             signal l0.free
             wait l1.free
             move l1.slot <- acc[0] of 0
             signal l1.full
             {signal}
           }}
           lane r1.0 {{
             wait l1.full
             move output[0] <- l1.slot
             signal l1.free
           }}
         }}"
    );
    parse_kernel_plan(&text).unwrap_or_else(|d| panic!("{d:#?}"))
}

#[test]
fn scratch_that_the_next_tile_overwrites_shows_with_two_tiles() {
    let right = handed_over(true);
    let wrong = handed_over(false);
    let found = verify::kernel_plan(wrong.clone()).expect_err("the next tile overwrites the scratch");
    assert!(found.iter().all(|d| trouble(d.code.0) == Some(Trouble::Race)), "{found:#?}");
    assert!(found[0].notes.iter().any(|n| n.contains("2 tiles")), "{found:#?}");
    verify::kernel_plan(right.clone()).unwrap_or_else(|d| panic!("{d:#?}"));
    for tiles in 1..=3 {
        let extent = Extent { tiles, launches: 1, in_place: false };
        let expected = if tiles == 1 { BTreeSet::new() } else { BTreeSet::from([Trouble::Race]) };
        assert_eq!(Explorer::new(&wrong, extent).explore(|_| 0), expected, "{tiles} tiles");
        assert_eq!(Explorer::new(&right, extent).explore(|_| 0), BTreeSet::new(), "{tiles} tiles");
    }
}
