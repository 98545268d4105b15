//! Ranks started by `run` itself and by launchers.

use crate::Outcome;
use crate::job::{self, Job, free_port, ringsmith, with_clean_environment};
use libtest_mimic::Completion;
use std::path::Path;
use std::process::Command;

/// The README's first command, with fewer sizes.
pub(crate) fn readme() -> Outcome {
    Job::start(ringsmith("run all_reduce --ranks 4 -e 1M"))?.end()?.right()?;
    Ok(Completion::Completed)
}

/// Ranks that Open MPI starts, with nothing said but their number.
pub(crate) fn mpirun() -> Outcome {
    if !["/usr/bin/mpirun", "/usr/local/bin/mpirun"].iter().any(|path| Path::new(path).exists()) {
        return Ok(Completion::ignored_with("no mpirun here"));
    }
    let mut command = with_clean_environment(Command::new("mpirun"), "--oversubscribe -np 4");
    command.arg(job::program()).args(["run", "all_reduce", "-e", "64K"]);
    // Containers run as root, which mpirun wants said twice.
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_btl", "self,vader").env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    Job::start(command)?.end()?.right()?;
    Ok(Completion::Completed)
}

/// Ranks with the variables that torchrun sets.
pub(crate) fn torchrun() -> Outcome {
    let port = free_port()?.to_string();
    let rank = |rank: u32| {
        let mut command = ringsmith("run all_gather -e 64K");
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "3");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        Job::start(command)
    };
    let jobs = [rank(0)?, rank(1)?, rank(2)?];
    let mut ends = Vec::new();
    for job in jobs {
        ends.push(job.end()?);
    }
    ends[0].right()?;
    for end in &ends[1..] {
        end.failed(0, &[])?;
    }
    Ok(Completion::Completed)
}
