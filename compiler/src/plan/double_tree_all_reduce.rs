//! Double binary tree all_reduce: two trees, half the data each, pipelined.
//! The program is `double_tree_all_reduce.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "double_tree",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("double_tree_all_reduce.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: false,
    batched: false,
    by_node: false,
    links_per_pair: 2,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    // Node v is at level log2(v + 1); both trees do the same at the same time.
    let depth = ranks.ilog2();
    let level = |level: u32| {
        let nodes = (1 << level) - 1..((1 << (level + 1)) - 1).min(ranks);
        let both = nodes.flat_map(|v| [(v, (v - 1) / 2), (ranks - 1 - v, ranks - 1 - (v - 1) / 2)]);
        both.collect::<Vec<_>>()
    };
    let up = (1..=depth).rev().map(|l| {
        Round::once(level(l).into_iter().map(|(child, parent)| message(child, parent, Landing::Reduce)))
    });
    let down = (1..=depth).map(|l| {
        Round::once(level(l).into_iter().map(|(child, parent)| message(parent, child, Landing::Copy)))
    });
    Traffic { chunks: 2, rounds: up.chain(down).collect(), flow: Flow::Pipelined }
}
