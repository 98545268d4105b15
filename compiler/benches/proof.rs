//! How long proofs take: the planner's ring all_reduce as a schedule and as kernel plans.
//!
//! `cargo bench -p ringsmith-compiler --bench proof [RANKS…]` prints one line a number of ranks. Times
//! are the best of five, or of one beyond a second.

use ringsmith_compiler::lower::{self, Options};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::text::parse_program;
use ringsmith_ir::verify;
use std::time::{Duration, Instant};

fn best<T>(mut work: impl FnMut() -> T) -> (T, Duration) {
    let mut least = Duration::MAX;
    for round in 0..5 {
        let start = Instant::now();
        let value = work();
        least = least.min(start.elapsed());
        if round == 4 || least > Duration::from_secs(1) {
            return (value, least);
        }
    }
    unreachable!("the last round returns")
}

fn main() {
    let program = parse_program(include_str!("../src/plan/ring_all_reduce.sched")).expect("a program");
    let asked: Vec<u32> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let asked = if asked.is_empty() { vec![2, 8, 64, 256] } else { asked };
    println!("{:>6} {:>10} {:>14} {:>10} {:>14}", "ranks", "ops", "schedule", "plan ops", "kernel plan");
    for ranks in asked {
        let schedule = expand(&program, &Arguments::ranks(ranks)).expect("it expands");
        let ops: usize = schedule.lanes.values().map(|l| l.ops.len()).sum();
        let (proved, of_schedule) = best(|| verify::schedule(schedule.clone()).expect("a right schedule"));
        let options = Options { protocol: Protocol::Simple, ..Options::default() };
        let plan = lower::lower(&proved, options).expect("it is lowered").into_inner();
        let plan_ops: usize = plan.lanes.values().map(|l| l.ops.len()).sum();
        let (_, of_plan) = best(|| verify::kernel_plan(plan.clone()).expect("a right plan"));
        println!("{ranks:>6} {ops:>10} {of_schedule:>14.1?} {plan_ops:>10} {of_plan:>14.1?}");
    }
}
