//! Files that the processes of a run may have open: the limit is raised where that is allowed, and more ranks
//! than even then can be had are refused before they meet.

use super::job::Job;
use crate::outcome::{Failure, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Of a process that holds the root: the root, and what tells of signals.
const OWN: u64 = 8;
/// Of a rank, whatever it is connected to.
const OF_RANK: u64 = 16;

/// For the first process of a run on one host, whose limit its ranks inherit.
pub(super) fn files_of_first_process(job: &Job<'_>, ranks: u32) -> Result<()> {
    /// Of each rank: its standard input, its process, its way to the root.
    const PER_RANK: u64 = 3;
    let first = open_files() + OWN + PER_RANK * u64::from(ranks);
    allow(first.max(of_rank(job, ranks)), ranks, "--ranks")
}

/// For a rank that a launcher or the user has started. Rank 0 holds the root.
pub(super) fn files_of_rank(job: &Job<'_>, rank: u32, ranks: u32) -> Result<()> {
    let root = if rank == 0 { OWN + u64::from(ranks) } else { 0 };
    allow(open_files() + root + of_rank(job, ranks), ranks, "ranks")
}

fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

/// What a rank needs at least: whom it reaches by sockets otherwise is not known before the ranks have met.
fn of_rank(job: &Job<'_>, ranks: u32) -> u64 {
    let config = job.config();
    let is_socket = !config.shm || config.net.is_some();
    let connections = if is_socket { config.socket_connections } else { 0 };
    OF_RANK + u64::from(connections) * u64::from(ranks - 1)
}

/// Raises this process's limit where it is too low.
///
/// Errors: one that cannot be raised so far; `fewer` is of what there could be fewer.
fn allow(needed: u64, ranks: u32, fewer: &str) -> Result<()> {
    let limits = getrlimit(Resource::Nofile);
    let Some(current) = limits.current.filter(|&current| needed > current) else { return Ok(()) };
    if limits.maximum.is_none_or(|most| needed <= most)
        && setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).is_ok()
    {
        return Ok(());
    }
    Err(Failure::world(format_args!(
        "{ranks} ranks need about {needed} open files in one process, and the limit on open files is {}; raise it (ulimit -n, or nofile in /etc/security/limits.conf), or start fewer {fewer}",
        limits.maximum.unwrap_or(current)
    )))
}
