//! Ring all_gather: n - 1 steps of one block each.
//! The program is `ring_all_gather.sched`.

use super::traffic::{Flow, Landing, Round, Traffic, ring};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    aliases: &[],
    collective: Collective::AllGather,
    text: include_str!("ring_all_gather.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: true,
    batched: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(ranks: u32, _root: u32) -> Traffic {
    Traffic {
        chunks: ranks,
        rounds: vec![Round::times(ranks - 1, ring(ranks, Landing::Copy))],
        flow: Flow::Stepwise,
    }
}
