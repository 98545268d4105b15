//! `run`: a collective between real processes, checked and timed.
//!
//! Three ways to be: the first process of a run on one host, which starts the ranks ([`local`]); a
//! rank that it started ([`child`]); a rank that a launcher or the user started on this or another
//! host ([`meet`]). A rank's work is in [`rank`], and the same in all three.

pub(crate) mod arguments;
mod cases;
pub(crate) mod child;
mod gpu;
mod job;
mod limits;
mod local;
mod meet;
mod rank;
mod report;
mod settings;
pub(crate) mod sizes;

use crate::outcome::{Failure, Result};
use crate::output::remark;
use crate::verify::counted;
use arguments::{Device, RunArguments};
use child::{Briefed, Parent, Place};
use job::{Job, Read};
use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::communicator::Communicator;
use ringsmith_runtime::launcher::Launch;
use ringsmith_runtime::log;
use ringsmith_runtime::shown::shown;

/// Ranks of a run where nobody says how many.
const DEFAULT_RANKS: u32 = 2;

/// Runs `run`.
pub(crate) fn run(arguments: &RunArguments) -> Result {
    carry_out(arguments).map_err(|failure| by_its_flag(arguments, failure))
}

/// Advises the flag where the runtime, which knows settings alone, advises the setting that it stands for.
fn by_its_flag(arguments: &RunArguments, failure: Failure) -> Failure {
    match failure {
        Failure::Message { outcome, text } if arguments.timeout.is_some() => {
            Failure::Message { outcome, text: text.replace("RINGSMITH_TIMEOUT_S", "--timeout") }
        }
        other => other,
    }
}

fn carry_out(arguments: &RunArguments) -> Result {
    if let Some(place) = arguments.child {
        return started(arguments, place);
    }
    let job = match Job::read(arguments, None)? {
        Read::Job(job) => job,
        Read::Refused(outcome) => return Ok(outcome),
    };
    install_log(&job)?;
    if arguments.device == Device::Cuda {
        gpu::check(&job, "--device cuda")?;
    }
    if arguments.one_gpu {
        warn(&job, 0);
        return gpu::one_gpu(&job, arguments.ranks.unwrap_or(DEFAULT_RANKS));
    }
    if let (Some(rank), Some(world)) = (arguments.rank, arguments.world) {
        if rank >= world {
            return Err(Failure::unusable(format_args!(
                "--rank {rank} of --world {world}: ranks are 0 to {}",
                world - 1
            )));
        }
        job.check(world, format_args!("--world {world}"))?;
        limits::files_of_rank(&job, rank, world)?;
        warn(&job, rank);
        return meet::by_hand(&job, rank, world);
    }
    if arguments.roots()?.1.is_some() {
        return Err(Failure::unusable(
            "--root HOST:PORT is for ranks that are started one by one: give --rank and --world too",
        ));
    }
    match Launch::detect(job.config()).map_err(rank::failure)? {
        Some(launch) => {
            if let Some(ranks) = arguments.ranks.filter(|&ranks| ranks != launch.world) {
                let (launcher, world) = (launch.launcher, counted(launch.world as usize, "rank"));
                return Err(Failure::unusable(format_args!(
                    "--ranks {ranks}: {launcher} has started {world}, and this is one of them; leave --ranks out"
                )));
            }
            let (launcher, world) = (launch.launcher, launch.world);
            job.check(world, format_args!("{launcher} has started {}", counted(world as usize, "rank")))?;
            limits::files_of_rank(&job, launch.rank, world)?;
            warn(&job, launch.rank);
            meet::launched(&job, &launch)
        }
        None => local::run(&job, arguments.ranks.or(job.own_ranks()).unwrap_or(DEFAULT_RANKS)),
    }
}

/// Is a rank that the first process of this run has started. Its errors go there.
fn started(arguments: &RunArguments, place: Place) -> Result {
    let Briefed { parent, id, schedule } = Parent::meet(place)?;
    let run = || match Job::read(arguments, schedule)? {
        Read::Refused(outcome) => Ok(outcome),
        Read::Job(job) => {
            install_log(&job)?;
            let bootstrap = Bootstrap::connect(&id, place.rank, place.world, job.config());
            with_others(&job, bootstrap.map_err(rank::failure)?)
        }
    };
    Ok(run().unwrap_or_else(|failure| parent.tell(by_its_flag(arguments, failure))))
}

/// Is one of ranks that have come together, on the device that was asked for.
fn with_others(job: &Job<'_>, bootstrap: Bootstrap) -> Result {
    if job.arguments().device == Device::Cuda {
        return gpu::member(job, bootstrap);
    }
    rank::run(job, Communicator::over(bootstrap, job.config()).map_err(rank::failure)?)
}

/// Errors: a log's file that cannot be opened, by the setting that names it.
fn install_log(job: &Job<'_>) -> Result<()> {
    let Some(file) = &job.config().debug_file else {
        return log::install(job.config()).map_err(rank::failure);
    };
    log::install(job.config())
        .map_err(|e| Failure::unusable(format_args!("RINGSMITH_DEBUG_FILE={}: {e}", shown(file))))
}

/// Says once for all ranks what is worth saying about the settings.
fn warn(job: &Job<'_>, rank: u32) {
    if rank == 0 {
        for warning in job.warnings() {
            remark(format_args!("warning: {warning}"));
        }
    }
}
