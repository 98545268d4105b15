//! `show`: what a file holds, and what can be proved of it.

mod bundle;

use crate::arguments::ShowArguments;
use crate::draw;
use crate::expand;
use crate::input::{Input, first_word, name_of};
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress};
use crate::values::{OneOrAll, Ranks};
use crate::verify::{self, Answer, counted, outcome_of, proof};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::kernel_plan::{KernelOpKind, KernelPlan};
use ringsmith_ir::program::{Item, ItemKind, LaneItem, ParameterKind, Program, Statement, StatementKind};
use ringsmith_ir::schedule::{OpKind, Order, Schedule};
use ringsmith_ir::text::{self, File};
use ringsmith_ir::types::{Collective, ReduceOp};
use std::collections::BTreeMap;

/// Runs `show`.
pub(crate) fn run(arguments: &ShowArguments) -> Result {
    if arguments.file.is_dir() {
        if arguments.ranks.is_some() || !arguments.parameters.set.is_empty() {
            let flag = if arguments.ranks.is_some() { "--ranks" } else { "--set" };
            let name = name_of(&arguments.file);
            return Err(Failure::unusable(format_args!(
                "{flag}: {name} is a bundle and holds no program, so there is nothing to choose"
            )));
        }
        return bundle::show(&arguments.file);
    }
    let input = Input::read(&arguments.file)?;
    let set = arguments.parameters.by_name()?;
    let mut output = Output::new();
    let read = if first_word(&input.text) == Some("kernel_plan") {
        text::parse_kernel_plan(&input.text).map(Held::KernelPlan)
    } else {
        text::parse(&input.text).map(|file| match file {
            File::Program(program) => Held::Program(program),
            File::Schedule(schedule) => Held::Schedule(schedule),
        })
    };
    let held = match read {
        Ok(held) => held,
        Err(mistakes) => {
            input.draw(&mistakes);
            return Ok(Outcome::Unusable);
        }
    };
    let flat = !matches!(held, Held::Program(_));
    if flat && (arguments.ranks.is_some() || !set.is_empty()) {
        let flag = if arguments.ranks.is_some() { "--ranks" } else { "--set" };
        return Err(Failure::unusable(format_args!(
            "{flag}: {} holds no program, so there is nothing to choose",
            input.name
        )));
    }
    let outcome = match held {
        Held::Program(program) => {
            let ranks = arguments.ranks.unwrap_or(verify::DEFAULT_RANKS);
            show_program(&input, &program, ranks, &set, arguments.fifos.slots, &mut output)?
        }
        Held::Schedule(schedule) => show_schedule(&input, schedule, arguments.fifos.slots, &mut output)?,
        Held::KernelPlan(plan) => show_kernel_plan(&input, plan, &mut output)?,
    };
    output.flush()?;
    Ok(outcome)
}

/// What a file holds.
enum Held {
    Program(Program),
    Schedule(Schedule),
    KernelPlan(KernelPlan),
}

/// Prints `name: value` with the values in one column.
fn field(output: &mut Output, name: &str, value: impl std::fmt::Display) -> Result<()> {
    output.line(format_args!("  {:<11} {value}", format!("{name}:")))
}

fn computes(collective: Collective, op: Option<ReduceOp>, order: Order) -> String {
    let op = match op {
        Some(op) => format!(" ({op})"),
        None if collective.reduces() => " (any operation)".to_owned(),
        None => String::new(),
    };
    let order = match order {
        Order::Any => ", ranks may add in different orders",
        Order::Same if collective.reduces() => ", every rank adds in the same order",
        Order::Same => "",
    };
    format!("{collective}{op}{order}")
}

fn show_program(
    input: &Input,
    program: &Program,
    ranks: Ranks,
    set: &BTreeMap<String, i64>,
    slots: u32,
    output: &mut Output,
) -> Result {
    expand::check_values(program, set)?;
    output.line(format_args!("program @{}", program.name.text))?;
    if let Some(line) = program.items.iter().find_map(|item| match &item.kind {
        ItemKind::Collective(line) => Some(line),
        _ => None,
    }) {
        field(output, "computes", computes(line.collective, line.op, line.order))?;
    }
    let parameters: Vec<String> =
        program.parameters.iter().map(|p| parameter(&p.name.text, p.kind)).collect();
    field(
        output,
        "parameters",
        if parameters.is_empty() { "none".to_owned() } else { parameters.join(", ") },
    )?;
    let lanes = program.items.iter().filter(|item| matches!(item.kind, ItemKind::Lane(_))).count();
    let ops: usize = program.items.iter().map(ops_in_item).sum();
    field(output, "text", format_args!("{} in {}", counted(ops, "op"), families(lanes)))?;
    for n in ranks.first..=ranks.last {
        match verify::prove(program, n, OneOrAll::All, set, slots, &input.name) {
            Answer::Proved { schedule, roots } => field(output, "proof", proof(&schedule, roots))?,
            Answer::Wrong { mistakes, root, unusable } => {
                input.draw(&mistakes);
                if unusable {
                    return Ok(Outcome::Unusable);
                }
                let at = root.map_or_else(String::new, |r| format!(", root {r}"));
                let count = counted(mistakes.len(), "mistake");
                field(
                    output,
                    "proof",
                    format_args!("{}{at}: refuted, {count}", counted(n as usize, "rank")),
                )?;
                return Ok(Outcome::No);
            }
        }
        output.flush()?;
    }
    Ok(Outcome::Done)
}

fn families(lanes: usize) -> String {
    if lanes == 1 { "1 family of lanes".to_owned() } else { format!("{lanes} families of lanes") }
}

fn parameter(name: &str, kind: ParameterKind) -> String {
    match kind {
        ParameterKind::Ranks => format!("{name} (number of ranks)"),
        ParameterKind::Root => format!("{name} (root)"),
        ParameterKind::Integer { default } => format!("{name} = {default} (--set {name}=…)"),
    }
}

fn ops_in_item(item: &Item) -> usize {
    match &item.kind {
        ItemKind::Lane(LaneItem { body, .. }) => ops_in(&body.statements),
        ItemKind::Collective(_)
        | ItemKind::Chunks(_)
        | ItemKind::Lanes(_)
        | ItemKind::Protocol(_)
        | ItemKind::Let(_)
        | ItemKind::Buffer(_)
        | ItemKind::Link(_) => 0,
    }
}

/// Lines that are ops. The reader bounds how deeply blocks are nested.
fn ops_in(statements: &[Statement]) -> usize {
    let of = |statement: &Statement| match &statement.kind {
        StatementKind::Let(_) => 0,
        StatementKind::Op { .. } => 1,
        StatementKind::For { body, .. } => ops_in(&body.statements),
        StatementKind::If { branches, otherwise } => {
            let chosen: usize = branches.iter().map(|b| ops_in(&b.body.statements)).sum();
            chosen + otherwise.as_ref().map_or(0, |block| ops_in(&block.statements))
        }
    };
    statements.iter().map(of).sum()
}

fn show_schedule(input: &Input, schedule: Schedule, slots: u32, output: &mut Output) -> Result {
    output.line(format_args!("schedule @{}", schedule.name))?;
    field(output, "computes", computes(schedule.collective, schedule.op, schedule.order))?;
    let root = schedule.root.map_or_else(String::new, |root| format!(", root {root}"));
    field(output, "ranks", format_args!("{}{root}", schedule.ranks))?;
    field(output, "chunks", format_args!("{}, {} a block", schedule.chunks, schedule.chunks_per_block()))?;
    field(output, "lanes", lanes(schedule.lanes.len(), schedule.lanes_per_lane))?;
    field(output, "links", format_args!("{}, protocol {}", schedule.links.len(), schedule.protocol))?;
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for op in schedule.lanes.values().flat_map(|lane| &lane.ops) {
        let word = match op.kind {
            OpKind::Put { .. } => "put",
            OpKind::Get { .. } => "get",
            OpKind::Signal { .. } => "signal",
            OpKind::Wait { .. } => "wait",
            OpKind::Reduce { .. } => "reduce",
            OpKind::Copy { .. } => "copy",
        };
        *words.entry(word).or_default() += 1;
    }
    field(output, "ops", tally(&words))?;
    let buffers = schedule.buffers.values().map(|b| format!("{}: {}[{}]", b.name, b.kind.name(), b.chunks));
    field(output, "buffers", buffers.collect::<Vec<_>>().join(", "))?;
    match verify::flat(schedule, slots, &input.name) {
        Answer::Proved { .. } => {
            field(output, "proof", format_args!("whole, and its kernel plan with {slots} slots"))?;
            Ok(Outcome::Done)
        }
        Answer::Wrong { mistakes, .. } => {
            input.draw(&mistakes);
            refused(&mistakes, output)
        }
    }
}

fn show_kernel_plan(input: &Input, plan: KernelPlan, output: &mut Output) -> Result {
    output.line(format_args!("kernel_plan @{}", plan.name))?;
    field(output, "computes", computes(plan.collective, plan.op, plan.order))?;
    let root = plan.root.map_or_else(String::new, |root| format!(", root {root}"));
    field(output, "ranks", format_args!("{}{root}", plan.ranks))?;
    field(output, "chunks", format_args!("{}, {} a block", plan.chunks, plan.chunks_per_block()))?;
    field(output, "lanes", lanes(plan.lanes.len(), plan.lanes_per_lane))?;
    let slots = format!("{} slots of {} bytes", plan.slots, plan.slot_bytes);
    field(output, "links", format_args!("{}, protocol {}, {slots}", plan.links.len(), plan.protocol))?;
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for op in plan.lanes.values().flat_map(|lane| &lane.ops) {
        let word = match op.kind {
            KernelOpKind::Wait(_) => "wait",
            KernelOpKind::Signal(_) => "signal",
            KernelOpKind::Move { .. } => "move",
        };
        *words.entry(word).or_default() += 1;
    }
    field(output, "ops", tally(&words))?;
    output.flush()?;
    let mut progress = Progress::new();
    progress.show(format_args!("{}: proving", input.name));
    let proved = ringsmith_ir::verify::kernel_plan(plan);
    progress.clear();
    match proved {
        Ok(_) => {
            field(output, "proof", "whole")?;
            Ok(Outcome::Done)
        }
        Err(mistakes) => {
            draw::mistakes_without_text(&input.name, &mistakes);
            refused(&mistakes, output)
        }
    }
}

/// The line about a proof that there is none of.
fn refused(mistakes: &[Diagnostic], output: &mut Output) -> Result {
    let outcome = outcome_of(mistakes);
    match outcome {
        Outcome::Unusable => field(output, "proof", "none: too large to be proved whole")?,
        _ => field(output, "proof", format_args!("refuted, {}", counted(mistakes.len(), "mistake")))?,
    }
    Ok(outcome)
}

fn lanes(lanes: usize, slices: u32) -> String {
    if slices == 1 { lanes.to_string() } else { format!("{lanes}, each over {slices} slices") }
}

fn tally(words: &BTreeMap<&str, usize>) -> String {
    let all: Vec<String> = words.iter().map(|(word, count)| format!("{count} {word}")).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
