//! Broadcast as scatter and ring all_gather: n steps of 1/n of the data.
//! The program is `scatter_gather_broadcast.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, from_root, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "scatter_gather",
    aliases: &[],
    collective: Collective::Broadcast,
    text: include_str!("scatter_gather_broadcast.sched"),
    applies: Applies::Always,
    synchronises: false,
    has_channels: false,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, root, .. }: Shape) -> Traffic {
    let deal = (1..ranks).map(|v| message(root, from_root(root, v, ranks), Landing::Copy));
    let hop = |v| message(from_root(root, v, ranks), from_root(root, v + 1, ranks), Landing::Copy);
    Traffic {
        chunks: ranks,
        rounds: vec![Round::once(deal), Round::times(ranks - 1, (0..ranks - 1).map(hop))],
        flow: Flow::Stepwise,
    }
}
