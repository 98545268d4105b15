//! Binomial tree reduce: log2(n) steps.
//! The program is `tree_reduce.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, binomial_level, ceil_log2, from_root, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "tree",
    aliases: &[],
    collective: Collective::Reduce,
    text: include_str!("tree_reduce.sched"),
    applies: Applies::Always,
    synchronises: false,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, root, .. }: Shape) -> Traffic {
    let rounds = (0..ceil_log2(ranks)).map(|level| {
        let edges = binomial_level(ranks, level);
        Round::once(edges.map(|(parent, child)| {
            message(from_root(root, child, ranks), from_root(root, parent, ranks), Landing::Reduce)
        }))
    });
    Traffic { chunks: 1, rounds: rounds.collect(), flow: Flow::Pipelined }
}
