//! Dissemination barrier: log2(n) steps of signals.
//! The program is `dissemination_barrier.sched`.

use super::traffic::{Flow, Landing, Round, Shape, Traffic, ceil_log2, message};
use super::{Algorithm, Applies};
use ringsmith_ir::types::Collective;

/// See the head of the file.
pub(super) const ALGORITHM: Algorithm = Algorithm {
    name: "dissemination",
    aliases: &[],
    collective: Collective::Barrier,
    text: include_str!("dissemination_barrier.sched"),
    applies: Applies::Always,
    synchronises: true,
    has_channels: false,
    batched: false,
    by_node: false,
    links_per_pair: 1,
    traffic,
};

fn traffic(Shape { ranks, .. }: Shape) -> Traffic {
    let rounds = (0..ceil_log2(ranks)).map(|level| {
        let to = |r: u32| ((u64::from(r) + (1 << level)) % u64::from(ranks)) as u32;
        Round::once((0..ranks).map(|r| message(r, to(r), Landing::Signal)))
    });
    Traffic { chunks: 0, rounds: rounds.collect(), flow: Flow::Stepwise }
}
