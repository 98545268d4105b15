//! The conformance suite on the CPU: every collective, type and operation, between real processes, against
//! the sequential reference.
//!
//! One trial is one job: a number of ranks and a way to join them. The ranks are processes of this program,
//! started anew for each trial. By default a tenth of the cases runs, drawn by a seed that is printed;
//! `RINGSMITH_TEST_SEED=N` repeats a draw, and `RINGSMITH_TEST_WHOLE=1` runs every case.

mod cases;
mod job;
mod rank;

use cases::Draw;
use job::{Hosts, Job, Work};
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::ExitCode;

/// Numbers of ranks of the table.
const WORLDS: std::ops::RangeInclusive<u32> = 1..=9;

fn main() -> ExitCode {
    if let Some(code) = rank::run_if_asked() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // A job has up to nine processes: several at once would only get in each other's way.
    arguments.test_threads.get_or_insert(1);
    let draw = Draw::from_environment();
    println!("conformance: {draw}");
    libtest_mimic::run(&arguments, trials(draw)).exit_code()
}

fn trials(draw: Draw) -> Vec<Trial> {
    let mut trials = Vec::new();
    let mut add = |name: String, job: Job| {
        trials.push(Trial::test(name, move || job.run().map_err(Failed::from)));
    };
    for world in WORLDS {
        for hosts in [Hosts::Shared, Hosts::Sockets, Hosts::Two] {
            if world == 1 && hosts != Hosts::Shared {
                continue;
            }
            add(format!("table::{hosts}::{world}_ranks"), Job::new(world, hosts, Work::Table(draw)));
        }
    }
    for (name, algorithm, protocol) in cases::algorithms() {
        // What tells hosts apart needs two of them, alike.
        let (hosts, worlds) =
            if algorithm.by_node { (Hosts::Two, [4, 6, 8]) } else { (Hosts::Shared, [2, 5, 8]) };
        for world in worlds.into_iter().filter(|w| algorithm.applies.holds(*w)) {
            let work = Work::Algorithm(draw, algorithm, protocol);
            add(format!("algorithm::{name}::{world}_ranks"), Job::new(world, hosts, work));
        }
    }
    for (world, hosts) in [(4, Hosts::Shared), (3, Hosts::Sockets), (4, Hosts::Two)] {
        let calls = if hosts == Hosts::Shared { 10_000 } else { 2_000 };
        add(format!("mixture::{hosts}::{world}_ranks"), Job::new(world, hosts, Work::Mixture(draw, calls)));
    }
    trials
}
