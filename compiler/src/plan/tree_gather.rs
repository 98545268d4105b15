//! Binomial tree gather: the root hears from log2(n) ranks.
//! The program is `tree_gather.sched`.

use super::traffic::{
    Flow, Landing, Message, Round, Shape, Traffic, binomial_level, ceil_log2, family, from_root,
};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "tree",
    aliases: &[],
    collective: Collective::Gather,
    text: include_str!("tree_gather.sched"),
    applies: Applies::Always,
    synchronises: false,
    has_channels: false,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, root, .. }: Shape) -> Traffic {
    let rounds = (0..ceil_log2(ranks)).map(|level| {
        let edges = binomial_level(ranks, level);
        Round::once(edges.map(|(parent, child)| Message {
            from: from_root(root, child, ranks),
            to: from_root(root, parent, ranks),
            chunks: family(ranks, child),
            landing: Landing::Copy,
        }))
    });
    Traffic { chunks: ranks, rounds: rounds.collect(), flow: Flow::Pipelined }
}
