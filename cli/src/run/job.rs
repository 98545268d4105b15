//! What every rank of a run knows before it meets the others: arguments, settings, and the program of
//! `--schedule`. Whatever can be refused without the other ranks is refused here.

use super::arguments::{InPlace, RunArguments};
use super::cases::{self, Case};
use super::settings;
use crate::expand;
use crate::input::Input;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::remark;
use crate::values::OneOrAll;
use crate::verify::{self, Answer};
use ringsmith_ir::program::{ItemKind, Program};
use ringsmith_ir::text::{self, File};
use ringsmith_ir::types::Collective;
use ringsmith_runtime::config::{Config, Warning};
use std::collections::BTreeMap;

/// What every rank knows.
pub(crate) struct Job<'a> {
    arguments: &'a RunArguments,
    config: Config,
    warnings: Vec<Warning>,
    schedule: Option<UserSchedule>,
}

/// The program of `--schedule`.
struct UserSchedule {
    input: Input,
    program: Program,
    set: BTreeMap<String, i64>,
}

/// What came of reading the arguments.
pub(crate) enum Read<'a> {
    /// They can be used.
    Job(Box<Job<'a>>),
    /// They cannot, and the user has been told.
    Refused(Outcome),
}

impl<'a> Job<'a> {
    /// Reads settings and files and holds the arguments against each other.
    pub(crate) fn read(arguments: &'a RunArguments) -> Result<Read<'a>> {
        arguments.roots()?;
        if arguments.inplace == InPlace::Yes && !cases::has_in_place(arguments.collective) {
            let text = format!("--inplace yes: `{}` cannot be done in place", arguments.collective);
            return Err(Failure::unusable(text));
        }
        let set = arguments.parameters.by_name()?;
        let (config, warnings) = settings::read(arguments)?;
        let schedule = match &arguments.schedule {
            None if set.is_empty() => None,
            None => {
                return Err(Failure::unusable(
                    "--set gives values to the program of --schedule, which is missing",
                ));
            }
            Some(path) => {
                let input = Input::read(path)?;
                match program(&input, arguments.collective)? {
                    Some(program) => Some(UserSchedule { input, program, set }),
                    None => return Ok(Read::Refused(Outcome::Unusable)),
                }
            }
        };
        Ok(Read::Job(Box::new(Self { arguments, config, warnings, schedule })))
    }

    /// The command line.
    pub(crate) fn arguments(&self) -> &RunArguments {
        self.arguments
    }

    /// The settings.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// What is worth saying about the settings.
    pub(crate) fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The user's own program and the values of its parameters.
    pub(crate) fn program(&self) -> Option<(&Program, &BTreeMap<String, i64>)> {
        self.schedule.as_ref().map(|schedule| (&schedule.program, &schedule.set))
    }

    /// Proves the user's own program where mistakes can be drawn: before ranks are started, each of
    /// which proves it again.
    pub(crate) fn prove(&self, ranks: u32) -> Result {
        let Some(UserSchedule { input, program, set }) = &self.schedule else { return Ok(Outcome::Done) };
        let root = match self.arguments.roots()?.0 {
            OneOrAll::One(root) if expand::rooted(program) => OneOrAll::One(root),
            _ => OneOrAll::All,
        };
        let Answer::Wrong { mistakes, unusable, .. } = verify::prove(program, ranks, root, set, &input.name)
        else {
            return Ok(Outcome::Done);
        };
        input.draw(&mistakes);
        let what = if unusable { "cannot be expanded" } else { "refuted" };
        remark(format_args!("error: --schedule {}: {what} for {ranks} ranks", input.name));
        Ok(if unusable { Outcome::Unusable } else { Outcome::No })
    }

    /// Every case of the run.
    ///
    /// Errors: arguments that do not fit each other or the number of ranks.
    pub(crate) fn cases(&self, ranks: u32) -> Result<Vec<Case>> {
        cases::cases(self.arguments, ranks)
    }
}

/// The program of `--schedule`. Mistakes of the text are drawn; then there is none.
fn program(input: &Input, collective: Collective) -> Result<Option<Program>> {
    let refuse = |text: String| Err(Failure::unusable(format_args!("--schedule {}: {text}", input.name)));
    if matches!(collective, Collective::AllToAllV | Collective::SendRecv) {
        return refuse(format!("`{collective}` is exchanged message by message and follows no schedule"));
    }
    let program = match text::parse(&input.text) {
        Ok(File::Program(program)) => program,
        Ok(File::Schedule(schedule)) => {
            return refuse(format!(
                "this is a schedule for {} ranks; `run` takes the program it came from",
                schedule.ranks
            ));
        }
        Err(mistakes) => {
            input.draw(&mistakes);
            return Ok(None);
        }
    };
    let own = program.items.iter().find_map(|item| match &item.kind {
        ItemKind::Collective(line) => Some(line.collective),
        _ => None,
    });
    match own {
        Some(own) if own != collective => {
            refuse(format!("this program is for `{own}`, not for `{collective}`"))
        }
        _ => Ok(Some(program)),
    }
}
