//! Binomial tree all_reduce: up to rank 0 and down again, 2 log2(n) steps.
//! The program is `tree_all_reduce.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, binomial_level, ceil_log2, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "tree",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("tree_all_reduce.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let levels = ceil_log2(ranks);
    let up = (0..levels).map(|level| {
        Round::once(
            binomial_level(ranks, level).map(|(parent, child)| message(child, parent, Landing::Reduce)),
        )
    });
    let down = (0..levels).rev().map(|level| {
        Round::once(binomial_level(ranks, level).map(|(parent, child)| message(parent, child, Landing::Copy)))
    });
    Traffic { chunks: 1, rounds: up.chain(down).collect(), flow: Flow::Stepwise }
}
