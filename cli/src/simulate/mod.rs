//! `simulate`: what a plan takes on a machine, where the time goes, and whether it ends at all.
//!
//! Finds the plan and the network, has the compiler run one on the other, and shows what comes out:
//! [`text`] for people, [`json`] for programs, [`trace`] for Perfetto, [`page`] for a browser.

mod json;
mod page;
mod subject;
mod text;
mod trace;

use crate::arguments::SimulateArguments;
use crate::draw;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress, remark};
use crate::run::sizes;
use crate::site::Site;
use crate::topo;
use crate::written;
use ringsmith_compiler::simulate::{self, Launch, Start, Timeline};
use ringsmith_ir::kernel_plan::KernelPlan;
use std::collections::HashSet;
use subject::Subject;

/// The most ops that a trace or a page holds. Ours: some 100 MB, which browsers still open.
const SHOWN_OPS: usize = 400_000;

/// What was simulated, and what came out.
struct Simulated<'a> {
    subject: &'a Subject,
    machine: String,
    bytes: u64,
    arguments: &'a SimulateArguments,
    timeline: &'a Timeline,
}

impl Simulated<'_> {
    fn plan(&self) -> &KernelPlan {
        &self.subject.plan
    }

    fn total_us(&self) -> f64 {
        self.timeline.total_ns / 1e3
    }

    fn algbw_gbs(&self) -> f64 {
        sizes::bandwidth_gbs(self.bytes, self.total_us())
    }

    fn busbw_gbs(&self) -> f64 {
        self.algbw_gbs() * sizes::bus_factor(self.plan().collective, self.plan().ranks)
    }

    /// Whether each op lies on the critical path.
    fn critical(&self) -> HashSet<u32> {
        self.timeline.critical.iter().copied().collect()
    }
}

/// Runs `simulate`.
pub(crate) fn run(arguments: &SimulateArguments) -> Result {
    let files = [("--trace", arguments.trace.as_deref()), ("--html", arguments.html.as_deref())];
    let reads = topo::files_of(&arguments.place.topo).chain([arguments.what.as_path()]);
    written::apart(&files, reads)?;
    let named = match subject::named(arguments)? {
        Ok(named) => named,
        Err(outcome) => return Ok(outcome),
    };
    let Some(site) = Site::of(&arguments.place, named.ranks(), arguments.load.bytes)? else {
        return Ok(Outcome::Unusable);
    };
    let subject = match subject::of(named, arguments, &site)? {
        Ok(subject) => subject,
        Err(outcome) => return Ok(outcome),
    };
    let plan = &subject.plan;
    let count = sizes::elements(plan.collective, arguments.load.dtype, plan.ranks, arguments.load.bytes);
    let launch = Launch { dtype: arguments.load.dtype, count, calls: 1 };
    let start = Start {
        within_ns: arguments.seed.map_or(0.0, |_| f64::from(arguments.skew) * 1e3),
        seed: arguments.seed.unwrap_or(0),
    };
    let mut progress = Progress::new();
    progress.show(format_args!("simulating {}", subject.name));
    let run = simulate::simulate(plan, launch, &site.network, start);
    progress.clear();
    let mut output = Output::new();
    let timeline = match run {
        Ok(timeline) => timeline,
        Err(simulate::Failure::Hang(hang)) => {
            if arguments.json {
                output.json(&json::of_hang(&hang, &subject.name))?;
                output.flush()?;
            }
            let help = "`ringsmith show` tells which rules a kernel plan breaks";
            remark(format_args!("error: {}: {hang}\n  {help}", subject.name));
            return Ok(Outcome::No);
        }
        Err(failure @ simulate::Failure::TooLong { .. }) => {
            return Err(Failure::unusable(format_args!(
                "{}: {failure} (--bytes, RINGSMITH_SLOT_BYTES)",
                subject.name
            )));
        }
    };
    if !subject.doubts.is_empty() {
        // It came to its end once, and is wrong all the same.
        draw::mistakes_without_text(&subject.name, &subject.doubts);
        return Ok(Outcome::No);
    }
    let machine = site.name();
    let bytes = sizes::bytes(plan.collective, arguments.load.dtype, plan.ranks, count);
    let simulated = Simulated { subject: &subject, machine, bytes, arguments, timeline: &timeline };
    write(&simulated)?;
    if arguments.json {
        output.json(&json::of(&simulated))?;
    } else {
        output.text(&text::of(&simulated))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// Writes the files that were asked for.
fn write(simulated: &Simulated<'_>) -> Result<()> {
    let (arguments, ops) = (simulated.arguments, simulated.timeline.records.len());
    for (flag, path) in [("--trace", &arguments.trace), ("--html", &arguments.html)] {
        if let Some(path) = path {
            if ops > SHOWN_OPS {
                return Err(Failure::unusable(format_args!(
                    "{flag}: {ops} ops are more than a time line shows ({SHOWN_OPS}); give fewer --bytes or ranks"
                )));
            }
            let text = if flag == "--trace" { trace::of(simulated) } else { page::of(simulated) };
            written::whole(path, text.as_bytes())?;
        }
    }
    Ok(())
}
