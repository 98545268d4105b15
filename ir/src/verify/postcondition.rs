//! What each collective leaves behind, in terms of the inputs.

use super::value::Input;
use crate::entity::Rank;
use crate::schedule::Schedule;
use crate::types::Collective;

/// The input that an output chunk of a collective without reduction must equal.
pub(super) fn expected_input(schedule: &Schedule, rank: Rank, chunk: u32) -> Option<Input> {
    expected(schedule.collective, schedule.root, schedule.chunks_per_block(), rank, chunk)
}

/// As [`expected_input`], from the parts of a schedule or kernel plan that decide it.
pub(super) fn expected(
    collective: Collective,
    root: Option<Rank>,
    block: u32,
    rank: Rank,
    chunk: u32,
) -> Option<Input> {
    let of = |rank: u32, chunk: u32| Some(Input { rank, chunk, tile: 0, launch: 0 });
    match collective {
        Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce | Collective::Barrier => None,
        Collective::AllGather | Collective::Gather => of(chunk / block, chunk),
        Collective::Broadcast | Collective::Scatter => of(root.map_or(0, |r| r.as_u32()), chunk),
        Collective::AllToAll | Collective::AllToAllV | Collective::SendRecv => {
            let block = block.max(1);
            of(chunk / block, rank.as_u32() * block + chunk % block)
        }
    }
}
