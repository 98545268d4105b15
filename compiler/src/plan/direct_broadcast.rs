//! Direct broadcast: the root sends to everybody, one step.
//! The program is `direct_broadcast.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, from_root, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    aliases: &[],
    collective: Collective::Broadcast,
    text: include_str!("direct_broadcast.sched"),
    applies: Applies::Always,
    synchronises: false,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, root, .. }: Shape) -> Traffic {
    let hops = (1..ranks).map(|v| message(root, from_root(root, v, ranks), Landing::Copy));
    Traffic { chunks: 1, rounds: vec![Round::once(hops)], flow: Flow::Pipelined }
}
