//! `expand`, and what other commands need of it: a file's schedule for a number of ranks and a root.

use crate::arguments::ExpandArguments;
use crate::input::Input;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::Output;
use crate::verify::{counted, outcome_of};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{self, Arguments};
use ringsmith_ir::program::{ItemKind, ParameterKind, Program};
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text::{self, File};
use std::collections::BTreeMap;

/// What a program is to be expanded for, as flags say it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    /// Number of ranks; a schedule brings its own.
    pub(crate) ranks: Option<u32>,
    /// Root of a rooted collective; rank 0 where nothing is said.
    pub(crate) root: Option<u32>,
    /// Values of parameters.
    pub(crate) set: BTreeMap<String, i64>,
}

/// Runs `expand`.
pub(crate) fn run(arguments: &ExpandArguments) -> Result {
    let input = Input::read(&arguments.file)?;
    let set = arguments.parameters.by_name()?;
    let request = Request { ranks: Some(arguments.ranks), root: arguments.root, set };
    let schedule = match schedule(&input, &request)? {
        Ok(schedule) => schedule,
        Err(outcome) => return Ok(outcome),
    };
    let mut output = Output::new();
    output.text(&text::print_schedule(&schedule))?;
    output.flush()?;
    Ok(Outcome::Done)
}

/// The schedule that a file holds or expands to, or how the command ends where there is none: then the
/// mistakes of the text have been drawn.
///
/// Errors: flags that do not fit the file.
pub(crate) fn schedule(input: &Input, request: &Request) -> Result<std::result::Result<Schedule, Outcome>> {
    let expanded = match text::parse(&input.text) {
        Ok(File::Schedule(schedule)) => {
            fits(input, &schedule, request)?;
            return Ok(Ok(schedule));
        }
        Ok(File::Program(program)) => expand(input, &program, request)?,
        Err(mistakes) => Err(mistakes),
    };
    Ok(expanded.map_err(|mistakes| {
        input.draw(&mistakes);
        outcome_of(&mistakes)
    }))
}

fn expand(
    input: &Input,
    program: &Program,
    request: &Request,
) -> Result<std::result::Result<Schedule, Vec<Diagnostic>>> {
    check_values(program, &request.set)?;
    let Some(ranks) = request.ranks else {
        let text = format_args!("{} holds a program: say for how many ranks with --ranks N", input.name);
        return Err(Failure::unusable(text));
    };
    let root = request.root.or_else(|| rooted(program).then_some(0));
    Ok(expand::expand(program, &Arguments { ranks, root, set: request.set.clone() }))
}

/// Holds flags against a flat schedule, which leaves nothing open.
pub(crate) fn fits(input: &Input, schedule: &Schedule, request: &Request) -> Result<()> {
    let name = &input.name;
    let refuse = |text: String| Err(Failure::unusable(text));
    if let Some(ranks) = request.ranks.filter(|&n| n != schedule.ranks) {
        return refuse(format!(
            "--ranks {ranks}: {name} holds a schedule for {}; only a program can be expanded for another number",
            counted(schedule.ranks as usize, "rank")
        ));
    }
    if let Some(root) = request.root.filter(|&r| schedule.root.map(|r| r.as_u32()) != Some(r)) {
        return refuse(match schedule.root {
            Some(own) => format!("--root {root}: {name} holds a schedule whose root is {own}"),
            None => format!("--root {root}: `{}`, which {name} holds, has no root", schedule.collective),
        });
    }
    match request.set.keys().next() {
        Some(key) => refuse(format!("--set {key}: {name} holds a schedule, which has no parameters")),
        None => Ok(()),
    }
}

/// Refuses values for parameters that have a flag of their own.
pub(crate) fn check_values(program: &Program, set: &BTreeMap<String, i64>) -> Result<()> {
    let kind = |name: &str| program.parameters.iter().find(|p| p.name.text == name).map(|p| p.kind);
    for (name, value) in set {
        let (what, flag) = match kind(name) {
            Some(ParameterKind::Ranks) => ("the number of ranks", "--ranks"),
            Some(ParameterKind::Root) => ("the root", "--root"),
            Some(ParameterKind::Integer { .. }) | None => continue,
        };
        let of = &program.name.text;
        return Err(Failure::unusable(format_args!(
            "--set {name}={value}: `{name}` is {what} of @{of}; use {flag} {value}"
        )));
    }
    Ok(())
}

/// Whether a program is for a rooted collective.
pub(crate) fn rooted(program: &Program) -> bool {
    program
        .items
        .iter()
        .any(|item| matches!(&item.kind, ItemKind::Collective(line) if line.collective.rooted()))
}
