//! `tune`: what the ways to do a collective take on this machine, and the costs that follow from it.
//!
//! Every way that the planner could choose is run by `ringsmith run` itself, in processes of its own, so that what is
//! measured is what users get. The compiler finds the costs; here calls are made, stored and shown.

mod measure;
mod report;

use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress, remark};
use crate::run::arguments::MAX_LOCAL_RANKS;
use crate::{input, values, written};
use clap::Args;
use ringsmith_compiler::plan::{Costs, Machine, Tuning};
use ringsmith_compiler::tune::{self, Call};
use ringsmith_ir::types::Collective;
use ringsmith_runtime::config::tuning;
use std::path::{Path, PathBuf};
use std::thread;

/// The most bytes of a call that may be measured. Ours: what a machine with little memory has for two ranks.
const MAX_BYTES: u64 = 1 << 30;
/// The most rounds.
const MAX_ROUNDS: u32 = 1000;

/// Arguments of `tune`.
#[derive(Args, Debug)]
pub(crate) struct TuneArguments {
    /// Collectives to measure [default: every one that is planned]
    #[arg(value_parser = values::name::<Collective>())]
    collectives: Vec<Collective>,

    /// Local processes to measure with [default: 2, or as many as there are cores if that is fewer]
    #[arg(long, allow_hyphen_values = true, value_parser = values::whole(2, MAX_LOCAL_RANKS))]
    ranks: Option<u32>,
    /// How the ranks talk [default: both]
    #[arg(long, allow_hyphen_values = true, value_enum)]
    transport: Option<measure::Transport>,
    /// Smallest size of the larger side of the data
    #[arg(short = 'b', long, allow_hyphen_values = true, value_name = "SIZE", default_value = "64", value_parser = values::size)]
    min: u64,
    /// Largest size
    #[arg(short = 'e', long, allow_hyphen_values = true, value_name = "SIZE", default_value = "16M", value_parser = values::size)]
    max: u64,
    /// From one size to the next
    #[arg(short = 'f', long, allow_hyphen_values = true, value_name = "TIMES", default_value_t = 4, value_parser = values::whole(2, u64::MAX))]
    factor: u64,
    /// How often everything is measured; the fastest counts
    #[arg(long, allow_hyphen_values = true, default_value_t = 3, value_parser = values::whole(1, MAX_ROUNDS))]
    rounds: u32,
    /// Where to store what was found, for `RINGSMITH_TUNING`; `-` prints it in place of the summary
    #[arg(short, long, allow_negative_numbers = true, value_name = "FILE", required_unless_present = "show")]
    output: Option<PathBuf>,
    /// Compares predictions from FILE's costs with what it says was measured, and stores nothing
    #[arg(long, allow_negative_numbers = true, value_name = "FILE", conflicts_with = "output")]
    show: Option<PathBuf>,
    /// With --show: compares with what is measured now
    #[arg(long)]
    again: bool,
    /// With --show: one JSON object a call
    #[arg(long)]
    json: bool,
}

/// Runs `tune`.
pub(crate) fn run(arguments: &TuneArguments) -> Result {
    if let Some(path) = &arguments.show {
        let stored = read(path)?;
        let calls = if arguments.again {
            planned(&Tuning { measured: measured(arguments)?.into_iter().collect(), ..stored.clone() })?
        } else {
            planned(&stored)?
        };
        return report::show(&calls, &stored.costs, arguments.json);
    }
    for (flag, given) in [("--again", arguments.again), ("--json", arguments.json)] {
        if given {
            return Err(Failure::unusable(format_args!("{flag}: only with --show")));
        }
    }
    let found = measured(arguments)?;
    let calls = planned(&Tuning { costs: Costs::CPU, measured: found.iter().copied().collect() })?;
    let mut progress = Progress::new();
    progress.show(format_args!("fitting costs to {} calls", calls.len()));
    let costs = tune::fit(&calls, &Costs::CPU);
    progress.clear();
    let tuning = Tuning { costs, measured: found.into_iter().collect() };
    let text = tuning::text(&tuning);
    let path = arguments.output.as_ref().expect("clap asks for it without --show");
    let mut output = Output::new();
    if path == Path::new("-") {
        output.text(&text)?;
        output.flush()?;
        return Ok(Outcome::Done);
    }
    written::whole(path, text.as_bytes())?;
    output.text(&report::costs(&costs))?;
    output.text(&report::summary("before", &calls, &Costs::CPU))?;
    output.text(&report::summary("after", &calls, &costs))?;
    output.flush()?;
    let name = input::name_of(path);
    remark(format_args!("{name} holds what was found; RINGSMITH_TUNING={name} has it used"));
    Ok(Outcome::Done)
}

fn read(path: &Path) -> Result<Tuning> {
    let text = path.to_string_lossy();
    tuning::read(&text)
        .map_err(|detail| Failure::unusable(format_args!("{}: {detail}", input::name_of(path))))
}

/// What calls take now.
fn measured(arguments: &TuneArguments) -> Result<Vec<ringsmith_compiler::plan::Measurement>> {
    let TuneArguments { min, max, .. } = *arguments;
    if min > max {
        return Err(Failure::unusable(format_args!("--min {min} is above --max {max}")));
    }
    if max > MAX_BYTES {
        return Err(Failure::unusable(format_args!(
            "--max {max}: calls are measured up to {MAX_BYTES} bytes"
        )));
    }
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let ranks = arguments.ranks.unwrap_or(2);
    if ranks > cores {
        remark(format_args!(
            "warning: {ranks} ranks on {}: what is measured is mostly how they take turns",
            crate::verify::counted(cores as usize, "core")
        ));
    }
    let hosts = crate::site::of_hosts(ranks, 1, Some(cores))?;
    let plain = Tuning { costs: Costs::CPU, measured: Default::default() }.applied_to(hosts);
    measure::all(arguments, &plain)
}

/// The plans of measured calls, ready to be simulated.
fn planned(tuning: &Tuning) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    for measured in tuning.measured.all() {
        let hosts = crate::site::of_hosts(measured.ranks, 1, Some(measured.cores))?;
        let machine = Machine { shared_memory: measured.shared_memory, ..hosts };
        let call = Call::new(*measured, &machine).map_err(|mistakes| {
            crate::draw::mistakes_without_text(measured.algorithm.name, &mistakes);
            Failure::unusable(format_args!("{} cannot be planned here", measure::name(measured)))
        })?;
        calls.push(call);
    }
    Ok(calls)
}
