//! Ring all_reduce: 2 (n - 1) steps of 1/n of the data each.
//! The program is `ring_all_reduce.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, ring};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("ring_all_reduce.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let steps = ranks - 1;
    Traffic {
        chunks: ranks,
        rounds: vec![
            Round::times(steps, ring(ranks, Landing::Reduce)),
            Round::times(steps, ring(ranks, Landing::Copy)),
        ],
        flow: Flow::Stepwise,
    }
}
