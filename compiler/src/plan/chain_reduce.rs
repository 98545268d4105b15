//! Chain reduce: the sum travels towards the root, tiles follow each other.
//! The program is `chain_reduce.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, from_root, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "chain",
    aliases: &["ring"],
    collective: Collective::Reduce,
    text: include_str!("chain_reduce.sched"),
    applies: Applies::Always,
    synchronises: false,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, root, .. }: Shape) -> Traffic {
    let hop = |v| message(from_root(root, v, ranks), from_root(root, v - 1, ranks), Landing::Reduce);
    Traffic {
        chunks: 1,
        rounds: (1..ranks).rev().map(|v| Round::once([hop(v)])).collect(),
        flow: Flow::Pipelined,
    }
}
