//! Direct all_gather: every block to every rank, one step.
//! The program is `direct_all_gather.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, mesh};
use super::{Algorithm, Applies, MESH_RANKS};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    aliases: &[],
    collective: Collective::AllGather,
    text: include_str!("direct_all_gather.sched"),
    applies: Applies::UpTo(MESH_RANKS),
    synchronises: true,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    Traffic { chunks: ranks, rounds: vec![Round::once(mesh(ranks, Landing::Copy))], flow: Flow::Stepwise }
}
