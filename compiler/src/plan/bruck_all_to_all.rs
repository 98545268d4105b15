//! Bruck's all_to_all: log2(n) steps of about half the data.
//! The program is `bruck_all_to_all.sched`.

use super::traffic::{Flow, Landing, Message, Round, Shape, Traffic, ceil_log2};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    aliases: &[],
    collective: Collective::AllToAll,
    text: include_str!("bruck_all_to_all.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: false,
    batched: true,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let rounds = (0..ceil_log2(ranks)).map(|level| {
        let chunks = (1..ranks).filter(|j| j >> level & 1 == 1).count() as u32;
        Round::once((0..ranks).map(|from| Message {
            from,
            to: ((u64::from(from) + (1 << level)) % u64::from(ranks)) as u32,
            chunks,
            landing: Landing::Copy,
        }))
    });
    Traffic { chunks: ranks, rounds: rounds.collect(), flow: Flow::Stepwise }
}
