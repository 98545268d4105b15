//! Ranks that contradict each other: refused by name, well before the deadline, as arguments that
//! cannot be used or as a comparison that failed.

use crate::job::{Job, free_port, ringsmith};
use crate::{Outcome, ensure};
use libtest_mimic::Completion;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::config::grammar::HostPort;
use ringsmith_runtime::launcher::{Launch, Launcher, Meeting};

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

/// What decides how ranks plan is set to something else on one of them.
pub(crate) fn different_settings() -> Outcome {
    for (variable, setting, [first, second]) in [
        ("NCCL_ALGO", "RINGSMITH_ALGO", ["ring", "tree"]),
        ("NCCL_PROTO", "RINGSMITH_PROTO", ["simple", "ll"]),
        ("NCCL_MIN_NCHANNELS", "RINGSMITH_MIN_CHANNELS", ["1", "2"]),
        ("NCCL_MAX_NCHANNELS", "RINGSMITH_MAX_CHANNELS", ["8", "4"]),
        ("NCCL_MAX_CTAS", "RINGSMITH_MAX_CTAS", ["8", "4"]),
    ] {
        let port = free_port()?;
        let start = |rank: u32, value: &str| {
            let words = format!("run all_reduce --rank {rank} --world 2 --root 127.0.0.1:{port}");
            let mut command = ringsmith(&words);
            command.env(variable, value);
            Job::start(command)
        };
        let ranks = [start(0, first)?, start(1, second)?];
        let difference = format!("rank 1 has {setting} = {second}, but rank 0 has {setting} = {first}");
        for rank in ranks {
            rank.end_soon()?.failed(1, &[&difference])?;
        }
    }
    Ok(Completion::Completed)
}

/// A rank of another version: all that this process, which is rank 1, says of itself is that.
pub(crate) fn different_versions() -> Outcome {
    let port = free_port()?;
    let root = rank(0, 2, port)?;
    let address = HostPort::parse(&format!("127.0.0.1:{port}"))?;
    let meeting = Meeting::Address { address, setting: "--root", job: String::new() };
    let launch = Launch { launcher: Launcher::Ringsmith, rank: 1, world: 2, local_rank: None, meeting };
    let config = Config::default();
    let bootstrap = launch.join(&config)?;
    let mut values: Vec<(String, String)> =
        config.agreement().into_iter().map(|(name, value)| (format!("RINGSMITH_{name}"), value)).collect();
    values.push(("version of ringsmith".to_owned(), "0.0.7".to_owned()));
    let outcome = bootstrap.agree("settings", &values);
    let current = env!("CARGO_PKG_VERSION");
    let difference =
        format!("rank 1 has version of ringsmith = 0.0.7, but rank 0 has version of ringsmith = {current}");
    let refused = outcome.err().map(|error| error.to_string()).unwrap_or_default();
    ensure(refused.contains(&difference), || format!("the other version was told: {refused}"))?;
    root.end_soon()?.failed(1, &[&difference])?;
    Ok(Completion::Completed)
}
