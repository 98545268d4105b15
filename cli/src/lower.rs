//! `lower`: the kernel plan that would run, proved.

use crate::arguments::LowerArguments;
use crate::expand::{self, Request};
use crate::input::Input;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress};
use crate::run::sizes::elements;
use crate::verify::outcome_of;
use ringsmith_compiler::lower::{self, Options};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::text;
use ringsmith_ir::verify;

/// Runs `lower`.
pub(crate) fn run(arguments: &LowerArguments) -> Result {
    let slot_bytes = slot_bytes(arguments.slot_bytes)?;
    let input = Input::read(&arguments.file)?;
    let set = arguments.parameters.by_name()?;
    let request = Request { ranks: arguments.ranks, root: arguments.root, set };
    let schedule = match expand::schedule(&input, &request)? {
        Ok(schedule) => schedule,
        Err(outcome) => return Ok(outcome),
    };
    let mut progress = Progress::new();
    progress.show(format_args!("{}: proving", input.name));
    let proved = match verify::schedule(schedule) {
        Ok(proved) => proved,
        Err(mistakes) => {
            progress.clear();
            input.draw(&mistakes);
            return Ok(outcome_of(&mistakes));
        }
    };
    let protocol = arguments.proto.map_or(proved.protocol, Into::into);
    progress.show(format_args!("{}: proving the kernel plan, protocol {protocol}", input.name));
    let plan = match lower::lower(&proved, Options { protocol, slots: arguments.fifos.slots, slot_bytes }) {
        Ok(plan) => plan,
        Err(mistakes) => {
            progress.clear();
            input.draw(&mistakes);
            return Ok(outcome_of(&mistakes));
        }
    };
    progress.clear();
    let mut output = Output::new();
    output.text(&launch(&plan, arguments))?;
    output.text(&text::print_kernel_plan(&plan))?;
    output.flush()?;
    Ok(Outcome::Done)
}

fn slot_bytes(bytes: u64) -> Result<u64> {
    match bytes {
        1024..=0x400_0000 if bytes.is_multiple_of(128) => Ok(bytes),
        _ => Err(Failure::unusable(format_args!(
            "--slot-bytes {bytes}: expected 1K to 64M, a multiple of 128"
        ))),
    }
}

/// What the plan, which knows no sizes, becomes for the size at hand: a comment above it.
fn launch(plan: &KernelPlan, arguments: &LowerArguments) -> String {
    let count = elements(plan.collective, arguments.dtype, plan.ranks, arguments.bytes);
    let per_rank = if plan.collective.blocked() { " a rank" } else { "" };
    let dtype = arguments.dtype;
    let head = format!("// launch: {count} elements of {dtype}{per_rank}");
    if plan.chunks == 0 {
        return head + "\n";
    }
    let chunks = Chunks::new(plan.collective, dtype, count, plan.chunks_per_block());
    let largest = chunks.largest() * dtype.size_bytes() as u64;
    let slices = u64::from(plan.lanes_per_lane);
    let tiles = largest.div_ceil(slices).div_ceil(plan.slot_bytes).max(1);
    format!("{head}, {} chunks of at most {largest} bytes, tiles a chunk: {tiles}\n", plan.chunks)
}
