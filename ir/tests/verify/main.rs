//! The verifier against an executor that tries every interleaving ([`explore`]): on thousands of random
//! schedules the two must agree, in both directions and on the kind of trouble.
//!
//! Every failure names its seed; `RINGSMITH_TEST_SEED=<seed>` runs that one alone,
//! `RINGSMITH_TEST_CASES=<number>` more or fewer.

mod explore;
mod pages;
mod random;

use explore::{Explorer, Trouble};
use random::Random;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::schedule::{BufferKind, Schedule};
use ringsmith_ir::text::print_schedule;
use ringsmith_ir::verify;
use std::collections::{BTreeMap, BTreeSet};

/// Codes of rules that need no run; the executor knows nothing of them.
const STATIC: [&str; 10] =
    ["V0101", "V0102", "V0103", "V0104", "V0201", "V0202", "V0203", "V0204", "V0205", "V0207"];

/// The seeds to run, `count` unless the environment names one.
pub(crate) fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let one =
        std::env::var("RINGSMITH_TEST_SEED").ok().map(|s| s.parse::<u64>().expect("a seed is a number"));
    let count =
        std::env::var("RINGSMITH_TEST_CASES").map_or(count, |n| n.parse().expect("a number of cases"));
    one.map_or(0..count, |seed| seed..seed + 1)
}

fn trouble(code: &str) -> Trouble {
    match code {
        "V0105" | "V0106" => Trouble::Leftover,
        "V0107" => Trouble::Unannounced,
        "V0206" => Trouble::Undefined,
        "V0301" | "V0302" | "V0303" => Trouble::Race,
        "V0304" => Trouble::TooEarly,
        "V0305" => Trouble::TooLate,
        "V0401" => Trouble::Wrong,
        "V0402" => Trouble::Order,
        "V0403" => Trouble::Barrier,
        "V0501" | "V0502" => Trouble::Stuck,
        other => panic!("{other} is no code of a run"),
    }
}

/// What is looked for only where all of the level before is absent: what a racing or stuck schedule
/// computes has no meaning, and neither has a sum of undefined memory.
const LEVELS: [&[Trouble]; 3] = [
    &[
        Trouble::Stuck,
        Trouble::Race,
        Trouble::Leftover,
        Trouble::Unannounced,
        Trouble::TooEarly,
        Trouble::TooLate,
    ],
    &[Trouble::Undefined],
    &[Trouble::Wrong, Trouble::Order, Trouble::Barrier],
];

/// The part of a set that lies on the first level where it has any. Of a stuck schedule nothing else
/// counts: a get that never happens may already have begun.
fn first_level(set: &BTreeSet<Trouble>) -> Vec<Trouble> {
    if set.contains(&Trouble::Stuck) {
        return vec![Trouble::Stuck];
    }
    let on = |level: &[Trouble]| level.iter().copied().filter(|t| set.contains(t)).collect::<Vec<_>>();
    LEVELS.into_iter().map(on).find(|found| !found.is_empty()).unwrap_or_default()
}

/// What the verifier says: nothing where a rule that needs no run already refuses the schedule.
fn verdict(schedule: &Schedule) -> Option<Result<(), Vec<Diagnostic>>> {
    match verify::schedule(schedule.clone()) {
        Ok(_) => Some(Ok(())),
        Err(found) if found.iter().any(|d| STATIC.contains(&d.code.0)) => None,
        Err(found) => Some(Err(found)),
    }
}

/// What trying says, over both layouts; nothing where there is too much to try.
fn tried(schedule: &Schedule) -> Option<BTreeSet<Trouble>> {
    let apart = Explorer::new(schedule, false).explore()?;
    if schedule.buffers.values().any(|b| b.kind == BufferKind::Inout) {
        return Some(apart);
    }
    Some(apart.union(&Explorer::new(schedule, true).explore()?).copied().collect())
}

#[derive(Default)]
struct Tally {
    agreed: BTreeMap<Vec<Trouble>, usize>,
    too_large: usize,
    refused_without_run: usize,
}

impl Tally {
    /// Compares one schedule.
    fn compare(&mut self, seed: u64, name: &str, schedule: &Schedule) {
        let Some(verdict) = verdict(schedule) else {
            self.refused_without_run += 1;
            return;
        };
        let Some(tried) = tried(schedule) else {
            self.too_large += 1;
            return;
        };
        let said: BTreeSet<Trouble> = match &verdict {
            Ok(()) => BTreeSet::new(),
            Err(found) => found.iter().map(|d| trouble(d.code.0)).collect(),
        };
        let context = || {
            let list: Vec<String> = match &verdict {
                Ok(()) => Vec::new(),
                Err(found) => found.iter().map(ToString::to_string).collect(),
            };
            let text = print_schedule(schedule);
            format!("seed {seed}, {name}\ntried {tried:?}\nsaid {said:?}\n{}\n{text}", list.join("\n"))
        };
        assert_eq!(said.is_empty(), tried.is_empty(), "proved or not: {}", context());
        assert_eq!(first_level(&said), first_level(&tried), "the kind of trouble: {}", context());
        *self.agreed.entry(first_level(&tried)).or_default() += 1;
    }

    fn print(&self) {
        println!("{} refused without a run, {} too large to try", self.refused_without_run, self.too_large);
        for (kinds, count) in &self.agreed {
            println!("{count:6} {kinds:?}");
        }
    }
}

#[test]
fn every_schedule_of_the_tree_does_what_is_said_of_it() {
    let mut tally = Tally::default();
    for named in random::schedules(1500) {
        tally.compare(0, &named.name, &named.schedule);
    }
    tally.print();
    assert!(tally.agreed[&Vec::new()] > 20, "the tree has many right schedules");
}

#[test]
fn damaged_schedules_do_what_is_said_of_them() {
    let schedules = random::schedules(400);
    let mut tally = Tally::default();
    for seed in seeds(6000) {
        let mut random = Random::new(seed);
        let named = random.pick(&schedules);
        let count = 1 + random.below(3);
        let damaged = random::mutate(named.schedule, count, &mut random);
        tally.compare(seed, &named.name, &damaged);
    }
    tally.print();
}

#[test]
fn chance_schedules_do_what_is_said_of_them() {
    let mut tally = Tally::default();
    for seed in seeds(4000) {
        let schedule = random::chance(&mut Random::new(seed));
        tally.compare(seed, "chance", &schedule);
    }
    tally.print();
}
