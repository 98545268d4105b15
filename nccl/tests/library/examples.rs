//! examples/c as people run them, and what they read: results, the log, messages.

use crate::Outcome;
use crate::job::{Ended, Ranks, told};
use crate::programs::{Programs, root};
use libtest_mimic::Failed;
use std::path::PathBuf;

/// Runs an example for a trial, in two processes that share a file for the id, with settings.
fn run(
    programs: &Programs,
    trial: &str,
    name: &str,
    settings: &[(&str, &str)],
) -> Result<Vec<Ended>, Failed> {
    start(programs, trial, name, settings, 2)
}

/// The same for the first `ranks` of the two.
fn start(
    programs: &Programs,
    trial: &str,
    name: &str,
    settings: &[(&str, &str)],
    ranks: u32,
) -> Result<Vec<Ended>, Failed> {
    let folder = programs.folder(trial)?;
    let source: PathBuf = root().join("examples/c").join(format!("{name}.c"));
    let program = programs.link(&format!("{trial}/program"), &[source])?;
    let ranks = Ranks::start(ranks, |rank| {
        let mut command = programs.command(program.clone());
        command.arg(rank.to_string()).arg(folder.join("id")).envs(settings.iter().copied());
        command
    })?;
    ranks.wait()
}

fn check(holds: bool, what: &str, ended: &[Ended]) -> Outcome {
    if holds { Ok(()) } else { Err(format!("{what}\n{}", told(ended)).into()) }
}

/// The sum of two ranks, and a log with the phases of initialisation.
pub(crate) fn two_ranks(programs: &Programs) -> Outcome {
    let ended = run(programs, "two_ranks", "two_ranks", &[("NCCL_DEBUG", "INFO")])?;
    for (rank, one) in ended.iter().enumerate() {
        check(one.status.success(), "a rank fails", &ended)?;
        check(one.text.contains(&format!("rank {rank}: 3 6 9 12\n")), "a rank prints other sums", &ended)?;
        for line in [
            "[0] NCCL INFO NCCL version 2.28.9+ringsmith",
            "[0] NCCL INFO ncclCommInitRank comm 0x",
            "Init START",
            "Init COMPLETE",
            "(arguments ",
            ", topology ",
            ", connections ",
            ", proxies ",
        ] {
            check(one.text.contains(line), &format!("the log does not say {line:?}"), &ended)?;
        }
    }
    Ok(())
}

/// Each process makes its own id and waits alone, until the deadline.
pub(crate) fn two_ids(programs: &Programs) -> Outcome {
    let ended = run(programs, "two_ids", "mistakes/two_ids", &[("RINGSMITH_INIT_TIMEOUT_S", "2")])?;
    for (rank, one) in ended.iter().enumerate() {
        check(one.status.code() == Some(1), "a rank does not end with status 1", &ended)?;
        let alone = format!("rank {rank} of id-");
        check(one.text.contains(&alone), "a rank and its id are not named", &ended)?;
        check(one.text.contains("waits alone"), "nobody says that a rank waits alone", &ended)?;
    }
    Ok(())
}

/// Names that articles invented are told, with the name that was meant.
pub(crate) fn invented_settings(programs: &Programs) -> Outcome {
    let settings =
        [("NCCL_TOPODUMP_FILE", "topology.xml"), ("NCCL_PROXY_DEBUG", "1"), ("NCCL_DEBUG", "WARN")];
    let ended = run(programs, "invented", "two_ranks", &settings)?;
    for one in &ended {
        check(one.status.success(), "a rank fails", &ended)?;
        for (name, meant) in
            [("NCCL_TOPODUMP_FILE", "NCCL_TOPO_DUMP_FILE"), ("NCCL_PROXY_DEBUG", "did you mean NCCL_DEBUG?")]
        {
            let is_told =
                |line: &str| line.contains("[0] NCCL WARN") && line.contains(name) && line.contains(meant);
            check(one.text.lines().any(is_told), &format!("nobody says {meant} for {name}"), &ended)?;
        }
    }
    Ok(())
}

/// What cannot be read stops every call that needs settings, and says so.
pub(crate) fn unusable_settings(programs: &Programs) -> Outcome {
    let settings = [("NCCL_ALGO", "quantum"), ("RINGSMITH_INIT_TIMEOUT_S", "soon")];
    let ended = start(programs, "unusable", "two_ranks", &settings, 1)?;
    check(ended[0].status.code() == Some(1), "rank 0 does not end with status 1", &ended)?;
    for name in ["NCCL_ALGO", "RINGSMITH_INIT_TIMEOUT_S"] {
        check(ended[0].text.contains(name), &format!("{name} is not named"), &ended)?;
    }
    Ok(())
}

/// What is called is logged in NCCL's words, for those who ask for it.
pub(crate) fn log_lines(programs: &Programs) -> Outcome {
    let settings = [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "COLL")];
    let ended = run(programs, "log_lines", "two_ranks", &settings)?;
    for one in &ended {
        check(one.status.success(), "a rank fails", &ended)?;
        let line =
            one.text.lines().find(|line| line.contains("[0] NCCL INFO AllReduce: opCount 0 sendbuff 0x"));
        let Some(line) = line else { return check(false, "the call is not logged", &ended) };
        check(
            line.contains(" count 4 datatype 7 op 0 root 0 comm 0x"),
            "the call is logged otherwise",
            &ended,
        )?;
        check(line.ends_with("[nranks=2] stream 0x0"), "the line ends otherwise", &ended)?;
        check(!one.text.contains("Init START"), "other subsystems are logged", &ended)?;
    }
    Ok(())
}

/// GPUs are not there in this version, and that is said before anybody waits.
pub(crate) fn gpus(programs: &Programs) -> Outcome {
    let settings = [("RINGSMITH_DEVICE", "cuda"), ("RINGSMITH_INIT_TIMEOUT_S", "2")];
    let ended = start(programs, "gpus", "two_ranks", &settings, 1)?;
    check(ended[0].status.code() == Some(1), "rank 0 does not end with status 1", &ended)?;
    check(ended[0].text.contains("RINGSMITH_DEVICE=cpu"), "no remedy is named", &ended)
}
