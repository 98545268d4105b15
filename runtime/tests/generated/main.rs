//! Generated kernels on a CPU: the very text that a GPU's compiler gets is compiled by g++ against a shim
//! (`shim/`), and run by fibers whose order is drawn from a seed, or by threads under ThreadSanitizer.
//!
//! Every algorithm of every collective with every protocol, for 2 to 4 ranks; launches of different plans,
//! counts and grids on scratch that is never cleared. Results are compared bit for bit with what the plan
//! says (`expected.rs`). Where g++ is missing the trials report themselves skipped.
//!
//! `RINGSMITH_TEST_SEED` repeats a run; `RINGSMITH_TEST_WHOLE=1` takes all kernels instead of a sample.

mod device;
mod exchange;
mod expected;
mod faults;
mod kernels;
mod random;

use device::{Communicator, Machine, Start};
use kernels::{Candidate, Folder, Made, Shape, Threads};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use random::Random;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::Collective;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    let mut arguments = Arguments::from_args();
    // Each compiles on all cores.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let named: [Named; 8] = [
        ("one_launch_of_all_ranks", together),
        ("a_launch_of_each_rank", apart),
        ("threads_of_the_system_race_nowhere", threads),
        ("messages_of_any_size_arrive", exchange::by_fibers),
        ("messages_race_nowhere", exchange::by_threads),
        ("planted_faults_of_the_exchange_are_found", exchange::faults),
        ("planted_faults_are_found", faults::by_fibers),
        ("planted_races_are_found", faults::by_threads),
    ];
    let trials = named.into_iter().map(|(name, run)| {
        Trial::ignorable_test(name, move || {
            if !kernels::has_compiler() {
                return Ok(Completion::ignored_with("no g++ here"));
            }
            let seed = seed();
            println!("{name}: RINGSMITH_TEST_SEED={seed}");
            run(seed).map_err(|text| Failed::from(format!("{text}\nRINGSMITH_TEST_SEED={seed}")))?;
            Ok(Completion::Completed)
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// Nothing, or what went wrong.
type Outcome = Result<(), String>;
/// A trial's name, and what runs it from a seed.
type Named = (&'static str, fn(u64) -> Outcome);

fn seed() -> u64 {
    let asked = std::env::var("RINGSMITH_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64);
    asked.unwrap_or(now)
}

fn is_whole() -> bool {
    std::env::var_os("RINGSMITH_TEST_WHOLE").is_some_and(|value| value != "0")
}

/// Kernels of a sample of all candidates, or of all.
fn sample(most: usize, is_together: bool, random: &mut Random) -> Vec<Made> {
    let mut all = kernels::candidates();
    if !is_whole() {
        for at in 0..all.len() {
            let other = at + random.below(all.len() - at);
            all.swap(at, other);
        }
    }
    let mut made = Vec::new();
    for candidate in &all {
        if is_whole() || made.len() < most {
            let shape = Shape::draw(candidate, random);
            let one = kernels::make(candidate, is_together, &shape);
            made.push(one.unwrap_or_else(|| panic!("{candidate:?} has no kernel as {shape:?}")));
        }
    }
    made
}

fn together(seed: u64) -> Outcome {
    let mut random = Random(seed);
    let made = sample(24, true, &mut random);
    check(&made, Threads::Fibers, 40, 2, &mut random)
}

fn apart(seed: u64) -> Outcome {
    let mut random = Random(seed);
    let made = sample(16, false, &mut random);
    check(&made, Threads::Fibers, 40, 5, &mut random)
}

/// A few kernels for two ranks: one of every form, and some of a sample. Many threads take turns here, so
/// there are few of them.
fn threads(seed: u64) -> Outcome {
    let mut random = Random(seed);
    let all: Vec<Candidate> = kernels::candidates().into_iter().filter(|c| c.ranks == 2).collect();
    let forms = [
        ("one_shot", Protocol::Ll),
        ("two_shot", Protocol::Ll128),
        ("ring", Protocol::Simple),
        ("split_two_shot", Protocol::Simple),
    ];
    let is_form = |c: &&Candidate| {
        c.collective == Collective::AllReduce && forms.iter().any(|f| (f.0, f.1) == (&c.name[..], c.protocol))
    };
    let made = |candidate: &Candidate, shape| {
        kernels::make(candidate, false, &shape).expect("every planned algorithm has a kernel")
    };
    let mut chosen: Vec<Made> = all.iter().filter(is_form).map(|c| made(c, Shape::plain())).collect();
    assert_eq!(chosen.len(), forms.len(), "every form is planned");
    for candidate in &all {
        if is_whole() || random.below(all.len()) < 3 {
            let shape = Shape { threads: 32, ..Shape::draw(candidate, &mut random) };
            chosen.push(made(candidate, shape));
        }
    }
    check(&chosen, Threads::System, if is_whole() { 30 } else { 6 }, 3, &mut random)
}

/// Where counters and epochs begin: at nothing, and shortly before they wrap.
const STARTS: [Start; 3] = [
    Start { epoch: 0, counter: 0 },
    Start { epoch: u32::MAX - 9, counter: u64::MAX - 9 },
    Start { epoch: (1 << 31) - 9, counter: i64::MAX as u64 - 9 },
];

/// Compiles kernels and launches each of them `times` or so, up to `in_a_row` launches back to back.
fn check(made: &[Made], threads: Threads, times: usize, in_a_row: usize, random: &mut Random) -> Outcome {
    let folder = Folder::new(&format!("generated-{:x}", random.next()));
    let texts: Vec<_> = made.iter().map(Made::text).collect();
    let program = kernels::program(&folder, &texts, threads)?;
    let mut machine = Machine::start(&program, &folder, threads);
    for ranks in 2..=4 {
        let own: Vec<(usize, &Made)> = made.iter().enumerate().filter(|(_, m)| m.ranks == ranks).collect();
        for start in STARTS {
            launch_many(&mut machine, &own, start, own.len() * times / STARTS.len(), in_a_row, random)?;
        }
    }
    Ok(())
}

/// Launches kernels in any order on one communicator.
fn launch_many(
    machine: &mut Machine,
    kernels: &[(usize, &Made)],
    start: Start,
    launches: usize,
    in_a_row: usize,
    random: &mut Random,
) -> Outcome {
    let Some((_, first)) = kernels.first() else { return Ok(()) };
    let communicator = Communicator::new(machine, first.ranks, start);
    let mut left = launches;
    while left > 0 {
        let row: Vec<_> = (0..1 + random.below(in_a_row)).map(|_| random.of(kernels)).collect();
        left = left.saturating_sub(row.len());
        communicator.run(machine, &row, random).map_err(|text| format!("{text}\n  {start:?}"))?;
    }
    Ok(())
}
