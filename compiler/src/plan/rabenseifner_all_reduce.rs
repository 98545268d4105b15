//! Recursive halving and doubling all_reduce (Rabenseifner): 2 log2(n) steps, few bytes.
//! The program is `rabenseifner_all_reduce.sched`.

use super::traffic::{Flow, Folded, Landing, Shape, Traffic};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "rabenseifner",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("rabenseifner_all_reduce.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: false,
    batched: true,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let folded = Folded::new(ranks);
    let halving = (0..folded.levels()).rev().map(|level| folded.swap(level, 1 << level, Landing::Reduce));
    let doubling = (0..folded.levels()).map(|level| folded.swap(level, 1 << level, Landing::Copy));
    let fold = folded.fold(folded.nodes).into_iter();
    let rounds = fold.chain(halving).chain(doubling).chain(folded.unfold(folded.nodes)).collect();
    Traffic { chunks: folded.nodes, rounds, flow: Flow::Stepwise }
}
