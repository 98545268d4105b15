//! How the examples get their ranks: from the launcher that started them, or as local processes of the
//! same program that they start themselves.
//!
//! `mpirun -np 4 01_hello` and `01_hello --ranks 4` do the same.

use ringsmith::{Communicator, Error, UniqueId};
use std::ffi::OsString;
use std::fmt::Display;
use std::process::{Child, Command, ExitCode};

/// Most local ranks that are started. Ours: a typing mistake should not fill the machine.
const MAX_LOCAL_RANKS: u32 = 256;
/// Exit status for arguments and files that cannot be used.
pub(crate) const UNUSABLE: u8 = 2;
/// Exit status for a rank or machine that failed.
pub(crate) const WORLD_FAILED: u8 = 3;

/// This program's arguments: the number after `--ranks`, and the others.
///
/// Errors: `--ranks` without a number from 1 on.
pub(crate) fn arguments() -> Result<(Option<u32>, Vec<OsString>), String> {
    let (mut ranks, mut others) = (None, Vec::new());
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        if argument != "--ranks" {
            others.push(argument);
            continue;
        }
        let number = arguments.next().unwrap_or_default();
        let number = number.to_string_lossy();
        match number.parse() {
            Ok(given @ 1..=MAX_LOCAL_RANKS) => ranks = Some(given),
            _ => return Err(format!("--ranks {number}: a number from 1 to {MAX_LOCAL_RANKS} is needed")),
        }
    }
    Ok((ranks, others))
}

/// Ends with a mistake in the arguments.
pub(crate) fn usage(usage: &str, mistake: &str) -> ExitCode {
    complain(&format_args!("{mistake}\nusage: {usage}"));
    ExitCode::from(UNUSABLE)
}

/// Runs `rank_main` on every rank: in this process if a launcher started it, else in processes that are
/// started here, as many as `--ranks` says or else `default`. `rank_main` returns the exit status that
/// all ranks agree on.
pub(crate) fn run(
    ranks: Option<u32>,
    default: u32,
    rank_main: impl FnOnce(&Communicator) -> Result<u8, Error>,
) -> ExitCode {
    let outcome = match Communicator::launched() {
        Ok(Some(comm)) => run_rank(comm, ranks, rank_main),
        Ok(None) => start(ranks.unwrap_or(default)),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            complain(&error);
            ExitCode::from(error.exit_status().code())
        }
    }
}

/// Writes an error as one line, in one piece: ranks share the terminal. What came from files may hold
/// signs that a terminal would obey.
pub(crate) fn complain(what: &dyn Display) {
    let text = what.to_string().replace(|sign: char| sign.is_control() && sign != '\n', "\u{fffd}");
    let line = format!("error: {text}\n");
    eprint!("{line}");
}

fn run_rank(
    comm: Communicator,
    ranks: Option<u32>,
    rank_main: impl FnOnce(&Communicator) -> Result<u8, Error>,
) -> Result<u8, Error> {
    let (rank, world) = (comm.rank(), comm.world());
    if let Some(wanted) = ranks.filter(|wanted| *wanted != world) {
        complain(&format_args!("rank {rank}: --ranks {wanted}, but the launcher started {world}"));
        return comm.finish().map(|()| UNUSABLE);
    }
    match rank_main(&comm) {
        Ok(status) => comm.finish().map(|()| status),
        Err(error) => {
            // The others may be waiting for this rank: they end too, and say why.
            comm.abort(&error.to_string());
            Err(error)
        }
    }
}

/// Starts the ranks and waits for them. The id's root lives here, so if this process dies, they end.
fn start(ranks: u32) -> Result<u8, Error> {
    if !(1..=MAX_LOCAL_RANKS).contains(&ranks) {
        complain(&format_args!("{ranks} local ranks; 1 to {MAX_LOCAL_RANKS} are started"));
        return Ok(UNUSABLE);
    }
    let id = UniqueId::create()?;
    let mut children = Vec::new();
    for rank in 0..ranks {
        match start_rank(rank, ranks, &id) {
            Ok(child) => children.push(child),
            Err(error) => {
                complain(&format_args!("cannot start rank {rank} of {ranks}: {error}"));
                for mut child in children {
                    // It may have ended by itself.
                    let _ = child.kill();
                    let _ = child.wait();
                }
                return Ok(WORLD_FAILED);
            }
        }
    }
    let mut worst = 0;
    for (rank, mut child) in children.into_iter().enumerate() {
        let status = child.wait().ok().and_then(|status| status.code());
        let status = status.and_then(|code| u8::try_from(code).ok()).unwrap_or_else(|| {
            complain(&format_args!("rank {rank} was killed"));
            WORLD_FAILED
        });
        // The lower statuses are causes; a rank that ends because another did has status 3.
        worst = if worst == 0 || status == 0 { worst.max(status) } else { worst.min(status) };
    }
    Ok(worst)
}

fn start_rank(rank: u32, ranks: u32, id: &UniqueId) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env("RINGSMITH_RANK", rank.to_string())
        .env("RINGSMITH_WORLD", ranks.to_string())
        .env("RINGSMITH_ID", id.to_hex())
        .spawn()
}
