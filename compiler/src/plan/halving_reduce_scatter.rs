//! Recursive halving reduce_scatter: log2(n) steps, for a power of two of ranks.
//! The program is `halving_reduce_scatter.sched`.

use super::traffic::{Flow, Folded, Landing, Shape, Traffic};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "halving",
    aliases: &[],
    collective: Collective::ReduceScatter,
    text: include_str!("halving_reduce_scatter.sched"),
    applies: Applies::PowerOfTwo,
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
    Traffic { chunks: ranks, rounds: halving.collect(), flow: Flow::Stepwise }
}
