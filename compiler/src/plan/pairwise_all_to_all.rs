//! Pairwise all_to_all: one partner at a time, n rounds.
//! The program is `pairwise_all_to_all.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, message};
use super::{Algorithm, Applies, MESH_RANKS};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "pairwise",
    aliases: &[],
    collective: Collective::AllToAll,
    text: include_str!("pairwise_all_to_all.sched"),
    applies: Applies::UpTo(MESH_RANKS),
    synchronises: true,
    has_channels: true,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let rounds = (0..ranks).map(|k| {
        let partners = (0..ranks).map(|r| (r, (k + ranks - r) % ranks)).filter(|(r, peer)| r != peer);
        Round::once(partners.map(|(r, peer)| message(r, peer, Landing::Copy)))
    });
    Traffic { chunks: ranks, rounds: rounds.collect(), flow: Flow::Stepwise }
}
