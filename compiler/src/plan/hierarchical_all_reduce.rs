//! Hierarchical all_reduce: sums within each host, rings between hosts, and back to everybody of the host.
//! The program is `hierarchical_all_reduce.sched`.

use super::traffic::{Flow, Landing, Message, Round, Shape, Traffic, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "hierarchical",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("hierarchical_all_reduce.sched"),
    applies: Applies::Always,
    // A rank hears from others of its host and from the host before, and from nobody else.
    synchronises: false,
    has_channels: true,
    batched: false,
    by_node: true,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, per_node, .. }: Shape) -> Traffic {
    let nodes = ranks / per_node;
    let inside = |landing| -> Vec<Message> {
        let of_host = move |r: u32| (1..per_node).map(move |j| r / per_node * per_node + (r + j) % per_node);
        (0..ranks).flat_map(|r| of_host(r).map(move |peer| message(r, peer, landing))).collect()
    };
    let between = |landing| (0..ranks).map(move |r| message(r, (r + per_node) % ranks, landing));
    Traffic {
        chunks: ranks,
        rounds: vec![
            Round::times(nodes, inside(Landing::Reduce)),
            Round::times(nodes - 1, between(Landing::Reduce)),
            Round::times(nodes - 1, between(Landing::Copy)),
            Round::times(nodes, inside(Landing::Copy)),
        ],
        flow: Flow::Stepwise,
    }
}
