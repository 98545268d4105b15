//! Two-shot all_reduce: each part to its owner, the sums back to everybody. Two steps.
//! The program is `two_shot_all_reduce.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, mesh};
use super::{Algorithm, Applies, MESH_RANKS};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "two_shot",
    aliases: &[],
    collective: Collective::AllReduce,
    text: include_str!("two_shot_all_reduce.sched"),
    applies: Applies::UpTo(MESH_RANKS),
    synchronises: true,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    Traffic {
        chunks: ranks,
        rounds: vec![Round::once(mesh(ranks, Landing::Reduce)), Round::once(mesh(ranks, Landing::Copy))],
        flow: Flow::Stepwise,
    }
}
