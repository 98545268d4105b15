//! Every built-in program against the verifier, and against what its file says of its traffic.

use super::{Algorithm, Landing, Shape, candidates, instantiate};
use crate::lower;
use ringsmith_ir::diagnostic::{Diagnostic, line_column};
use ringsmith_ir::expand::expand;
use ringsmith_ir::schedule::{OpKind, Schedule};
use ringsmith_ir::text;
use ringsmith_ir::types::Collective;
use ringsmith_ir::verify;
use std::collections::BTreeMap;

fn all() -> impl Iterator<Item = &'static Algorithm> {
    Collective::ALL.into_iter().flat_map(candidates)
}

fn label(algorithm: &Algorithm) -> String {
    format!("{} {}", algorithm.name, algorithm.collective)
}

fn render(text: &str, found: &[Diagnostic]) -> String {
    let place = |d: &Diagnostic| line_column(text, d.span().start);
    let line = |d: &Diagnostic| {
        let (line, column) = place(d);
        let labels: Vec<&str> = d.labels.iter().map(|l| l.message.as_str()).collect();
        format!("{line}:{column}: {d}: {}\n  {}", labels.join("; "), d.notes.join("\n  "))
    };
    found.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn expanded(algorithm: &Algorithm, shape: Shape, channels: u32) -> Schedule {
    let (program, arguments) = instantiate(algorithm, shape, channels, None);
    expand(&program, &arguments).unwrap_or_else(|found| {
        panic!("{} for {shape:?}:\n{}", label(algorithm), render(algorithm.text, &found))
    })
}

/// Every way to deal ranks out to hosts that the algorithm can tell apart.
fn shapes(algorithm: &Algorithm, ranks: u32, root: u32) -> impl Iterator<Item = Shape> {
    let most = if algorithm.by_node { ranks } else { 1 };
    (1..=most).filter(move |per| ranks.is_multiple_of(*per)).map(move |per_node| Shape {
        ranks,
        per_node,
        root,
    })
}

fn roots(algorithm: &Algorithm, ranks: u32) -> std::ops::Range<u32> {
    if algorithm.collective.rooted() { 0..ranks } else { 0..1 }
}

fn check(algorithm: &Algorithm, ranks: u32, root: u32, channels: u32) {
    for shape in shapes(algorithm, ranks, root) {
        let schedule = expanded(algorithm, shape, channels);
        if let Err(found) = verify::schedule(schedule) {
            let text = render(algorithm.text, &found);
            panic!("{} for {shape:?}, {channels} channels:\n{text}", label(algorithm));
        }
    }
}

/// Files are in canonical form; `BLESS=1` brings them into it.
#[test]
fn every_program_reads_and_prints_as_it_is_written() {
    for algorithm in all() {
        let program = text::parse_program(algorithm.text)
            .unwrap_or_else(|found| panic!("{}:\n{}", label(algorithm), render(algorithm.text, &found)));
        let name = format!("{}_{}", algorithm.name, algorithm.collective);
        assert_eq!(program.name.text, name);
        let printed = text::print_program(&program);
        if std::env::var_os("BLESS").is_some() {
            let path = format!("{}/src/plan/{name}.sched", env!("CARGO_MANIFEST_DIR"));
            std::fs::write(path, &printed).expect("the file can be written");
        } else {
            assert_eq!(printed, algorithm.text, "{name}");
        }
    }
}

/// Puts (and, in a barrier, signals) per pair of ranks, and reductions per rank.
fn tally(schedule: &Schedule) -> (BTreeMap<(u32, u32), u32>, BTreeMap<u32, u32>) {
    let (mut sent, mut reduced) = (BTreeMap::new(), BTreeMap::new());
    for decl in schedule.lanes.values() {
        let rank = decl.name.rank.as_u32();
        for op in &decl.ops {
            match op.kind {
                OpKind::Put { peer, .. } => *sent.entry((rank, peer.as_u32())).or_insert(0) += 1,
                OpKind::Signal { link } if schedule.collective == Collective::Barrier => {
                    *sent.entry((rank, schedule.links[link].to.as_u32())).or_insert(0) += 1;
                }
                OpKind::Reduce { .. } => *reduced.entry(rank).or_insert(0) += 1,
                OpKind::Signal { .. } | OpKind::Wait { .. } | OpKind::Get { .. } | OpKind::Copy { .. } => {}
            }
        }
    }
    (sent, reduced)
}

#[test]
fn traffic_is_what_the_program_sends() {
    for algorithm in all() {
        for ranks in (1..=17).chain([32]).filter(|&n| algorithm.applies.holds(n)) {
            let all = roots(algorithm, ranks).take(3);
            for shape in all.flat_map(|root| shapes(algorithm, ranks, root)) {
                let schedule = expanded(algorithm, shape, 1);
                let traffic = (algorithm.traffic)(shape);
                let (mut sent, mut reduced) = (BTreeMap::new(), BTreeMap::new());
                for round in &traffic.rounds {
                    for message in &round.messages {
                        let chunks = message.chunks * round.repeat;
                        if chunks > 0 {
                            *sent.entry((message.from, message.to)).or_insert(0) += chunks;
                        }
                        if message.landing == Landing::Reduce && chunks > 0 {
                            *reduced.entry(message.to).or_insert(0) += chunks;
                        }
                    }
                }
                let place = format!("{} for {shape:?}", label(algorithm));
                assert_eq!(tally(&schedule), (sent, reduced), "{place}");
                assert_eq!(schedule.chunks, traffic.chunks, "{place}");
            }
        }
    }
}

#[test]
fn every_program_is_proved_for_more_ranks_and_channels() {
    for algorithm in all() {
        for ranks in [2, 3, 5, 12, 16, 17].into_iter().filter(|&n| algorithm.applies.holds(n)) {
            let last = roots(algorithm, ranks).end - 1;
            if algorithm.has_channels {
                check(algorithm, ranks, last, 3);
            } else {
                check(algorithm, ranks, last, 1);
            }
        }
    }
}

#[test]
fn every_program_is_proved_for_64_ranks() {
    for algorithm in all() {
        check(algorithm, 64, roots(algorithm, 64).end - 1, 1);
    }
}

/// The cost of memory: FIFOs are made per link, so no pair of ranks has more than it needs.
#[test]
fn pairs_of_ranks_share_few_links() {
    for algorithm in all() {
        let mut most = 0;
        for ranks in (2..=17).filter(|&n| algorithm.applies.holds(n)) {
            let mut links: BTreeMap<(u32, u32), u32> = BTreeMap::new();
            for link in expanded(algorithm, ranks.into(), 1).links.values() {
                *links.entry((link.from.as_u32(), link.to.as_u32())).or_insert(0) += 1;
            }
            most = links.values().copied().fold(most, u32::max);
        }
        assert_eq!(most, algorithm.links_per_pair, "{}", label(algorithm));
    }
}

#[test]
fn a_ring_is_n_links_a_channel() {
    for algorithm in all().filter(|a| a.name == "ring") {
        for (ranks, channels) in [(2, 1), (3, 2), (8, 4)] {
            let schedule = expanded(algorithm, ranks.into(), channels);
            assert_eq!(schedule.links.len() as u32, ranks * channels);
        }
    }
}

/// Every op is needed: the verifier refuses each program with any one op left out.
#[test]
fn no_op_can_be_left_out() {
    for algorithm in all() {
        for ranks in [2, 3, 4].into_iter().filter(|&n| algorithm.applies.holds(n)) {
            for shape in roots(algorithm, ranks).flat_map(|root| shapes(algorithm, ranks, root)) {
                let whole = expanded(algorithm, shape, 1);
                for lane in whole.lanes.keys() {
                    for op in 0..whole.lanes[lane].ops.len() {
                        let mut damaged = whole.clone();
                        damaged.lanes[lane].ops.remove(op);
                        let address = whole.address(lane, op);
                        assert!(
                            verify::schedule(damaged).is_err(),
                            "{} for {shape:?}: {address} is not needed",
                            label(algorithm)
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_program_is_proved_for_few_ranks_and_every_root() {
    for algorithm in all() {
        for ranks in (1..=9).filter(|&n| algorithm.applies.holds(n)) {
            for root in roots(algorithm, ranks) {
                check(algorithm, ranks, root, 1);
            }
        }
    }
}

#[test]
fn every_program_lowers_with_every_protocol_of_its_own() {
    for algorithm in all() {
        for ranks in [1, 2, 3, 4, 7, 8].into_iter().filter(|&n| algorithm.applies.holds(n)) {
            let root = roots(algorithm, ranks).end / 2;
            for shape in shapes(algorithm, ranks, root) {
                let schedule = verify::schedule(expanded(algorithm, shape, 1)).expect("proved above");
                for protocol in algorithm.protocols().iter().copied() {
                    let options = lower::Options { protocol, ..lower::Options::default() };
                    if let Err(found) = lower::lower(&schedule, options) {
                        panic!("{} for {shape:?}, {protocol}: {found:?}", label(algorithm));
                    }
                }
            }
        }
    }
}

#[test]
fn the_page_of_algorithms_lists_them_all() {
    let page = include_str!("../../../docs/algorithms.md");
    let cell = |row: &str, column: usize| row.split('|').nth(column).unwrap_or("").trim().to_owned();
    let rows: Vec<&str> = page.lines().filter(|l| l.starts_with("| ")).skip(2).collect();
    let listed: Vec<[String; 3]> = rows.iter().map(|r| [1, 2, 5].map(|column| cell(r, column))).collect();
    let protocols = |a: &Algorithm| if a.protocols().len() == 3 { "all" } else { "simple" };
    let known: Vec<[String; 3]> =
        all().map(|a| [a.collective.to_string(), a.name.to_owned(), protocols(a).to_owned()]).collect();
    assert_eq!(listed, known);
}
