//! Ranks that contradict each other: refused by name, well before the deadline, as arguments that
//! cannot be used.

use crate::Outcome;
use crate::job::{Job, free_port, ringsmith};
use libtest_mimic::Completion;

fn rank(rank: u32, world: u32, port: u16) -> Result<Job, libtest_mimic::Failed> {
    Job::start(ringsmith(&format!("run all_reduce --rank {rank} --world {world} --root 127.0.0.1:{port}")))
}

/// Two processes say that they are rank 1.
pub(crate) fn same_rank_twice() -> Outcome {
    let port = free_port()?;
    let root = rank(0, 3, port)?;
    let twins = [rank(1, 3, port)?, rank(1, 3, port)?];
    root.end_soon()?.failed(2, &["rank 1"])?;
    for twin in twins {
        twin.end_soon()?.failed(2, &["rank 1"])?;
    }
    Ok(Completion::Completed)
}

/// Ranks were told different numbers of ranks.
pub(crate) fn different_numbers_of_ranks() -> Outcome {
    let port = free_port()?;
    let root = rank(0, 2, port)?;
    let other = rank(1, 3, port)?;
    root.end_soon()?.failed(2, &["rank 1"])?;
    other.end_soon()?.failed(2, &["3", "2"])?;
    Ok(Completion::Completed)
}
