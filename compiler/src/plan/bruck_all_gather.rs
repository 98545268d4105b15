//! Bruck's all_gather: log2(n) steps for any n.
//! The program is `bruck_all_gather.sched`.

use super::traffic::{Flow, Landing, Message, Round, Shape, Traffic, ceil_log2};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    aliases: &[],
    collective: Collective::AllGather,
    text: include_str!("bruck_all_gather.sched"),
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
        let have = 1 << level;
        let chunks = have.min(ranks - have);
        Round::once((0..ranks).map(|from| Message {
            from,
            to: (from + ranks - have) % ranks,
            chunks,
            landing: Landing::Copy,
        }))
    });
    Traffic { chunks: ranks, rounds: rounds.collect(), flow: Flow::Stepwise }
}
