//! Recursive doubling all_reduce: log2(n) exchanges of all the data.
//! The program is `recursive_doubling_all_reduce.sched`.

use super::traffic::{Flow, Folded, Landing, Shape, Traffic};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "recursive_doubling",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("recursive_doubling_all_reduce.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let folded = Folded::new(ranks);
    let swaps = (0..folded.levels()).map(|level| folded.swap(level, 1, Landing::Reduce));
    let rounds = folded.fold(1).into_iter().chain(swaps).chain(folded.unfold(1)).collect();
    Traffic { chunks: 1, rounds, flow: Flow::Stepwise }
}
