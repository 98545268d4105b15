//! The boundary between cases and the crates under test: one function, so that a change of an interface
//! touches this file alone.
//!
//! Whatever an action is, what it prints is read back and must be the same.

use crate::directive::{Action, Directive};
use ringsmith_compiler::lower::{self, Options};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{self, Arguments};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::program::{Item, ItemKind};
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text::{self, File};
use ringsmith_ir::verify;

/// What an action works on.
pub(crate) struct Input<'a> {
    /// The text.
    pub(crate) text: &'a str,
    /// Whether it is a kernel plan.
    pub(crate) is_plan: bool,
    /// How many ranks to expand for.
    pub(crate) ranks: Option<u32>,
    /// The root to expand for.
    pub(crate) root: Option<u32>,
    /// What else the directive says.
    pub(crate) directive: &'a Directive,
}

type Outcome = Result<String, Vec<Diagnostic>>;

/// Does one action: what it prints, or the diagnostics that it earns.
///
/// Errors: a case that asks for what cannot be done, or a promise that the crates break.
pub(crate) fn check(action: Action, input: &Input<'_>) -> Result<Outcome, String> {
    if input.is_plan {
        return check_plan(action, input);
    }
    Ok(match action {
        Action::Parse => text::parse(input.text).map(|_| String::new()),
        Action::Fmt => match text::format(input.text) {
            Ok(printed) if text::format(&printed).as_ref() != Ok(&printed) => {
                return Err("formatting the formatted text changes it again".to_owned());
            }
            outcome => outcome,
        },
        Action::Expand => match expanded(input)? {
            Ok(schedule) => Ok(printed_schedule(schedule)?),
            Err(found) => Err(found),
        },
        Action::Verify => expanded(input)?.and_then(verify::schedule).map(|_| String::new()),
        Action::Lower => {
            let options = Options {
                protocol: input.directive.protocol()?,
                slots: input.directive.slots.unwrap_or(Options::default().slots),
                ..Options::default()
            };
            let lowered =
                expanded(input)?.and_then(verify::schedule).and_then(|proved| lower::lower(&proved, options));
            match lowered {
                Ok(plan) => Ok(printed_plan(&plan)?),
                Err(found) => Err(found),
            }
        }
    })
}

/// Whether a text is a program of a collective with a root.
pub(crate) fn is_rooted(text: &str) -> bool {
    let Ok(File::Program(program)) = text::parse(text) else { return false };
    let rooted = |item: &Item| matches!(&item.kind, ItemKind::Collective(line) if line.collective.rooted());
    program.items.iter().any(rooted)
}

fn check_plan(action: Action, input: &Input<'_>) -> Result<Outcome, String> {
    if input.ranks.is_some() {
        return Err("a kernel plan has its own number of ranks".to_owned());
    }
    let parsed = text::parse_kernel_plan(input.text);
    Ok(match action {
        Action::Parse => parsed.map(|_| String::new()),
        Action::Fmt => match parsed {
            Ok(plan) => Ok(printed_plan(&plan)?),
            Err(found) => Err(found),
        },
        Action::Verify => parsed.and_then(verify::kernel_plan).map(|_| String::new()),
        Action::Expand | Action::Lower => return Err(format!("a kernel plan has no {action:?}")),
    })
}

/// The schedule of a text.
fn expanded(input: &Input<'_>) -> Result<Result<Schedule, Vec<Diagnostic>>, String> {
    let directive = input.directive;
    Ok(match (text::parse(input.text), input.ranks) {
        (Ok(File::Program(program)), Some(ranks)) => {
            expand::expand(&program, &Arguments { ranks, root: input.root, set: directive.set.clone() })
        }
        (Ok(File::Program(_)), None) => return Err("a program needs `ranks`".to_owned()),
        (Ok(File::Schedule(_)), Some(_)) => {
            return Err("a flat schedule has its own number of ranks".to_owned());
        }
        (Ok(File::Schedule(schedule)), None) => Ok(schedule),
        (Err(found), _) => Err(found),
    })
}

fn printed_schedule(schedule: Schedule) -> Result<String, String> {
    let printed = text::print_schedule(&schedule);
    let again =
        text::parse_schedule(&printed).map_err(|found| format!("printed text is refused: {found:?}"))?;
    if text::schedule_without_spans(again) == text::schedule_without_spans(schedule) {
        Ok(printed)
    } else {
        Err("the printed schedule reads back as another".to_owned())
    }
}

fn printed_plan(plan: &KernelPlan) -> Result<String, String> {
    let printed = text::print_kernel_plan(plan);
    let again =
        text::parse_kernel_plan(&printed).map_err(|found| format!("printed text is refused: {found:?}"))?;
    if again == *plan { Ok(printed) } else { Err("the printed kernel plan reads back as another".to_owned()) }
}
