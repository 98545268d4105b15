//! How long simulations take: ring all_reduce of 64 MB on CPU ranks of one host and on GPUs.
//!
//! `cargo bench -p ringsmith-compiler --bench simulate [RANKS…]` prints one line a machine and number of
//! channels. Times are the best of five, of the run alone: without planning and proof.

use ringsmith_compiler::lower::{self, Options};
use ringsmith_compiler::machines;
use ringsmith_compiler::plan::{self, Machine, candidates};
use ringsmith_compiler::simulate::{Launch, Network, Start, simulate};
use ringsmith_ir::types::{Collective, DataType};
use ringsmith_ir::verify;
use std::time::Instant;

fn main() {
    let asked: Vec<u32> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let asked = if asked.is_empty() { vec![8] } else { asked };
    let ring = candidates(Collective::AllReduce).iter().find(|a| a.name == "ring").expect("a ring");
    let launch = Launch { dtype: DataType::Float32, count: 16 << 20, calls: 1 };
    println!(
        "{:>6} {:>9} {:>10} {:>10} {:>12} {:>14}",
        "ranks", "channels", "machine", "ops", "run", "predicted"
    );
    for ranks in asked {
        let order = (0..ranks).collect::<Vec<u32>>().into();
        let nodes = machines::known("hgx-h100").expect("a known machine").times(ranks.div_ceil(8));
        let gpus = Network::of_topology(&nodes.expect("so many nodes"), ranks).expect("they are joined");
        let hosts = Network::of_hosts(&Machine::cpu(vec![0; ranks as usize], 2), 64 << 20);
        for channels in [1, 4] {
            let schedule = plan::schedule(ring, &order, None, channels, None).expect("it applies");
            let schedule = verify::schedule(schedule).expect("it is right");
            let plan = lower::lower(&schedule, Options::default()).expect("so is its kernel plan");
            for (name, network) in [("CPUs", &hosts), ("GPUs", &gpus)] {
                let run = || {
                    let start = Instant::now();
                    let timeline = simulate(&plan, launch, network, Start::default()).expect("it ends");
                    (start.elapsed(), timeline)
                };
                let (least, timeline) = (0..5).map(|_| run()).min_by_key(|run| run.0).expect("five runs");
                let (ops, us) = (timeline.records.len(), timeline.total_ns / 1e3);
                println!("{ranks:>6} {channels:>9} {name:>10} {ops:>10} {least:>12.1?} {us:>11.1} us");
            }
        }
    }
}
