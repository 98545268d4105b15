//! What every rank of a run knows before it meets the others: arguments, settings, and the program or
//! schedule of `--schedule`. Whatever can be refused without the other ranks is refused here.

use super::arguments::{Device, InPlace, RunArguments};
use super::cases::{self, Case};
use super::rank::failure;
use super::settings;
use crate::choice::{self, Wanted};
use crate::expand::{self, Request};
use crate::input::{Input, name_of};
use crate::outcome::{Failure, Outcome, Result};
use crate::output::remark;
use crate::values::OneOrAll;
use crate::verify::{self, Answer, counted};
use ringsmith_compiler::plan::{self, Options};
use ringsmith_ir::expand::Arguments;
use ringsmith_ir::program::{ItemKind, Program};
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text::{self, File};
use ringsmith_ir::types::{Collective, ReduceOp};
use ringsmith_runtime::bootstrap::interface;
use ringsmith_runtime::communicator::{check_network, machine_of};
use ringsmith_runtime::config::{Config, Warning};
use ringsmith_runtime::launcher::Launch;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::thread;

/// What every rank knows.
pub(crate) struct Job<'a> {
    arguments: &'a RunArguments,
    config: Config,
    warnings: Vec<Warning>,
    schedule: Option<UserSchedule>,
}

/// What `--schedule` names.
struct UserSchedule {
    input: Input,
    own: Own,
}

/// What the user wants to run in place of a planned schedule.
pub(crate) enum Own {
    /// A program and the values of its parameters.
    Program(Box<Program>, BTreeMap<String, i64>),
    /// A schedule, which is for one number of ranks and one root.
    Schedule(Box<Schedule>),
}

impl Own {
    fn collective(&self) -> Option<(Collective, Option<ReduceOp>)> {
        match self {
            Self::Schedule(schedule) => Some((schedule.collective, schedule.op)),
            Self::Program(program, _) => program.items.iter().find_map(|item| match &item.kind {
                ItemKind::Collective(line) => Some((line.collective, line.op)),
                _ => None,
            }),
        }
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Program(program, _) => format!("program @{}", program.name.text),
            Self::Schedule(schedule) => format!("schedule @{}", schedule.name),
        }
    }

    /// What a file holds, in a word.
    fn what(&self) -> &'static str {
        match self {
            Self::Program(..) => "program",
            Self::Schedule(_) => "schedule",
        }
    }
}

/// What came of reading the arguments.
pub(crate) enum Read<'a> {
    /// They can be used.
    Job(Box<Job<'a>>),
    /// They cannot, and the user has been told.
    Refused(Outcome),
}

impl<'a> Job<'a> {
    /// Reads settings and files and holds the arguments against each other. A rank that the first process of a
    /// run has started has the text of `--schedule` from it, `passed_on`.
    pub(crate) fn read(arguments: &'a RunArguments, passed_on: Option<String>) -> Result<Read<'a>> {
        arguments.roots()?;
        if arguments.one_gpu && arguments.device == Device::Cpu {
            return Err(Failure::unusable("--one-gpu and --device cpu contradict each other; leave one out"));
        }
        if let Some(folder) = &arguments.bundle {
            if !arguments.one_gpu && arguments.device != Device::Cuda {
                return Err(Failure::unusable(
                    "--bundle: kernels of a bundle are for GPUs; give --device cuda or --one-gpu too",
                ));
            }
            if folder.to_str().is_none() {
                let name = name_of(folder);
                return Err(Failure::unusable(format_args!("--bundle {name}: the name is no UTF-8")));
            }
        }
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
                let input = match passed_on {
                    Some(text) => Input::passed_on(path, text),
                    None => {
                        check_shared(arguments, path, &config)?;
                        Input::read(path)?
                    }
                };
                match own(&input, arguments, set)? {
                    Some(own) => Some(UserSchedule { input, own }),
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

    /// What the user wants to run in place of a planned schedule.
    pub(crate) fn own(&self) -> Option<&Own> {
        self.schedule.as_ref().map(|schedule| &schedule.own)
    }

    /// The text of the user's own schedule.
    pub(crate) fn schedule_text(&self) -> Option<&str> {
        self.schedule.as_ref().map(|schedule| schedule.input.text.as_str())
    }

    /// The number of ranks that the user's own schedule is for.
    pub(crate) fn own_ranks(&self) -> Option<u32> {
        match self.own() {
            Some(Own::Schedule(schedule)) => Some(schedule.ranks),
            Some(Own::Program(..)) | None => None,
        }
    }

    /// The root or roots of the run: as asked for, that of the user's own schedule, or rank 0.
    pub(crate) fn roots(&self) -> Result<OneOrAll<u32>> {
        let of_schedule = match self.own() {
            Some(Own::Schedule(schedule)) => schedule.root.map(|root| root.as_u32()),
            Some(Own::Program(..)) | None => None,
        };
        Ok(self.arguments.roots()?.0.unwrap_or(OneOrAll::One(of_schedule.unwrap_or(0))))
    }

    /// Refuses what cannot be run by so many ranks, wherever they are. `said` is who says how many.
    pub(crate) fn check(&self, ranks: u32, said: impl fmt::Display) -> Result<()> {
        self.cases(ranks)?;
        check_network(&self.config).map_err(failure)?;
        self.check_interfaces()?;
        let Some(UserSchedule { input, own }) = &self.schedule else {
            // GPUs have algorithms of their own, and refuse for themselves.
            if self.arguments.device == Device::Cuda {
                return Ok(());
            }
            return self.options(ranks).map(|_| ());
        };
        let lanes = match own {
            Own::Schedule(schedule) => {
                let root = match self.roots()? {
                    OneOrAll::All if schedule.collective.rooted() && ranks > 1 => {
                        return Err(Failure::unusable(format_args!(
                            "--root all: {} holds a schedule, which is for one root",
                            input.name
                        )));
                    }
                    OneOrAll::One(root) if schedule.collective.rooted() => Some(root),
                    OneOrAll::One(_) | OneOrAll::All => None,
                };
                if schedule.ranks != ranks {
                    return Err(Failure::unusable(format_args!(
                        "{said}, but {} holds a schedule for {}; only a program can be expanded for another number",
                        input.name,
                        counted(schedule.ranks as usize, "rank")
                    )));
                }
                expand::fits(input, schedule, &Request { ranks: None, root, set: BTreeMap::new() })?;
                schedule.lanes_per_lane
            }
            Own::Program(program, set) => {
                let root = expand::rooted(program).then_some(0);
                let arguments = Arguments { ranks, root, set: set.clone() };
                // What does not expand is reported where it is proved.
                ringsmith_ir::expand::expand(program, &arguments).map_or(1, |s| s.lanes_per_lane)
            }
        };
        if lanes != 1 {
            return Err(Failure::unusable(format_args!(
                "--schedule {}: `lanes {lanes}` is for devices with many blocks; the CPU runs one slice of a lane: leave that line out",
                input.name
            )));
        }
        Ok(())
    }

    /// Refuses a list of interfaces that leaves none of this host's.
    fn check_interfaces(&self) -> Result<()> {
        let Ok(found) = interface::list() else { return Ok(()) };
        if found.is_empty() || !interface::order(&found, &self.config.interfaces).is_empty() {
            return Ok(());
        }
        let mut names: Vec<&str> = found.iter().map(|interface| interface.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        Err(Failure::unusable(format_args!(
            "RINGSMITH_SOCKET_IFNAME={}: no interface of this host is left; there are {}",
            self.config.interfaces,
            names.join(", ")
        )))
    }

    fn options(&self, ranks: u32) -> Result<Options> {
        let wanted = Wanted::of(&self.config, &self.arguments.selection);
        choice::options(&wanted, self.arguments.collective, ranks)
    }

    /// Refuses sizes that nothing can do which the settings leave, for ranks of this host.
    pub(crate) fn check_plans(&self, ranks: u32) -> Result<()> {
        let collective = self.arguments.collective;
        if self.schedule.is_some() || plan::candidates(collective).is_empty() {
            return Ok(());
        }
        let cores = thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX));
        let machine = machine_of(vec![0; ranks as usize], cores, &self.config);
        let options = self.options(ranks)?;
        let root = self.cases(ranks)?.first().and_then(|case| case.root).unwrap_or(0);
        let refused = |reason| Failure::unusable(format_args!("{reason}"));
        let stretches = plan::choose_range(collective, root, &machine, &options).map_err(refused)?;
        for case in self.cases(ranks)? {
            let bytes = case.bytes();
            if plan::stretch_at(&stretches, bytes).is_none() {
                let request = plan::Request { collective, root, bytes };
                plan::choose(request, &machine, &options).map_err(refused)?;
            }
        }
        Ok(())
    }

    /// Proves the user's own program where mistakes can be drawn: before ranks are started, each of
    /// which proves it again.
    pub(crate) fn prove(&self, ranks: u32) -> Result {
        let Some(UserSchedule { input, own }) = &self.schedule else { return Ok(Outcome::Done) };
        let slots = self.config.slots;
        let answer = match own {
            Own::Schedule(schedule) => verify::flat(Schedule::clone(schedule), slots, &input.name),
            Own::Program(program, set) => {
                let root = match self.roots()? {
                    OneOrAll::One(root) if expand::rooted(program) => OneOrAll::One(root),
                    _ => OneOrAll::All,
                };
                verify::prove(program, ranks, root, set, slots, &input.name)
            }
        };
        let Answer::Wrong { mistakes, unusable, .. } = answer else { return Ok(Outcome::Done) };
        input.draw(&mistakes);
        let what = if unusable { "cannot be expanded or proved" } else { "refuted" };
        let ranks = counted(ranks as usize, "rank");
        remark(format_args!("error: --schedule {}: {what} for {ranks}", input.name));
        Ok(if unusable { Outcome::Unusable } else { Outcome::No })
    }

    /// Every case of the run.
    ///
    /// Errors: arguments that do not fit each other or the number of ranks.
    pub(crate) fn cases(&self, ranks: u32) -> Result<Vec<Case>> {
        cases::cases(self.arguments, self.roots()?, ranks)
    }
}

/// Refuses a schedule from standard input for a rank that others have been started beside: each would have
/// to read it.
fn check_shared(arguments: &RunArguments, path: &Path, config: &Config) -> Result<()> {
    if path != Path::new("-") {
        return Ok(());
    }
    if arguments.rank.is_none() && Launch::detect(config).map_err(failure)?.is_none() {
        return Ok(());
    }
    Err(Failure::unusable(
        "--schedule -: every rank reads the schedule, and ranks that are started one by one cannot share standard input; name a file",
    ))
}

/// What the file of `--schedule` holds. Mistakes of the text are drawn; then there is nothing.
fn own(input: &Input, arguments: &RunArguments, set: BTreeMap<String, i64>) -> Result<Option<Own>> {
    let refuse = |text: String| Err(Failure::unusable(format_args!("--schedule {}: {text}", input.name)));
    let collective = arguments.collective;
    if matches!(collective, Collective::AllToAllV | Collective::SendRecv) {
        return refuse(format!("`{collective}` is exchanged message by message and follows no schedule"));
    }
    let own = match text::parse(&input.text) {
        Ok(File::Program(program)) => {
            expand::check_values(&program, &set)?;
            Own::Program(Box::new(program), set)
        }
        Ok(File::Schedule(schedule)) => {
            expand::fits(input, &schedule, &Request { ranks: None, root: None, set })?;
            Own::Schedule(Box::new(schedule))
        }
        Err(mistakes) => {
            input.draw(&mistakes);
            return Ok(None);
        }
    };
    let what = own.what();
    match own.collective() {
        Some((other, _)) if other != collective => {
            refuse(format!("this {what} is for `{other}`, not for `{collective}`"))
        }
        Some((_, Some(op))) if arguments.op != OneOrAll::One(op) => {
            refuse(format!("this {what} is for the operation {op}; use --op {op}"))
        }
        _ => Ok(Some(own)),
    }
}
