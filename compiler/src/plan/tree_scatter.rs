//! Binomial tree scatter: the root talks to log2(n) ranks.
//! The program is `tree_scatter.sched`.

use super::traffic::{
    Flow, Landing, Message, Round, Shape, Traffic, binomial_level, ceil_log2, family, from_root,
};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "tree",
    aliases: &[],
    collective: Collective::Scatter,
    text: include_str!("tree_scatter.sched"),
    applies: Applies::Always,
    synchronises: false,
    has_channels: false,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, root, .. }: Shape) -> Traffic {
    let rounds = (0..ceil_log2(ranks)).rev().map(|level| {
        let edges = binomial_level(ranks, level);
        Round::once(edges.map(|(parent, child)| Message {
            from: from_root(root, parent, ranks),
            to: from_root(root, child, ranks),
            chunks: family(ranks, child),
            landing: Landing::Copy,
        }))
    });
    Traffic { chunks: ranks, rounds: rounds.collect(), flow: Flow::Pipelined }
}
