//! What is simulated: a planned collective, or the program, schedule or kernel plan of a file.

use crate::arguments::SimulateArguments;
use crate::choice;
use crate::draw;
use crate::expand::{self, Request};
use crate::input::{Input, first_word};
use crate::outcome::{Failure, Outcome, Result};
use crate::plan::wanted;
use crate::run::sizes;
use crate::site::Site;
use crate::verify::{counted, outcome_of};
use ringsmith_compiler::lower::{self, Options};
use ringsmith_compiler::plan::{self, Choice, Machine};
use ringsmith_compiler::simulate::may_run;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::text;
use ringsmith_ir::types::Collective;
use ringsmith_ir::verify;
use std::path::Path;
use std::result::Result as StdResult;

/// A plan to simulate.
pub(super) struct Subject {
    /// What to call it.
    pub(super) name: String,
    /// The plan.
    pub(super) plan: KernelPlan,
    /// What the planner's cost model says it takes.
    pub(super) predicted_us: Option<f64>,
    /// What the verifier says of its signals, if it is a kernel plan that may hang.
    pub(super) doubts: Vec<Diagnostic>,
}

/// What the command line names.
pub(super) enum Named {
    /// Something to plan.
    Collective(Collective),
    /// A text that can be expanded.
    Program(Input),
    /// A text for one number of ranks.
    Schedule(Input, Box<Schedule>),
    /// A text that has been lowered.
    KernelPlan(Input, Box<KernelPlan>),
}

impl Named {
    /// How many ranks it is for, where it says so.
    pub(super) fn ranks(&self) -> Option<u32> {
        match self {
            Self::Collective(_) | Self::Program(_) => None,
            Self::Schedule(_, schedule) => Some(schedule.ranks),
            Self::KernelPlan(_, plan) => Some(plan.ranks),
        }
    }
}

/// Finds out what is named. How the command ends if a text is wrong, which has been told.
pub(super) fn named(arguments: &SimulateArguments) -> Result<StdResult<Named, Outcome>> {
    let path: &Path = &arguments.what;
    let name = path.to_string_lossy();
    let collective = Collective::ALL.into_iter().find(|collective| collective.name() == name);
    if let Some(collective) = collective {
        if let Some((key, _)) = arguments.parameters.set.first() {
            let text = format_args!("--set {key}: a planned collective has no parameters; give a program");
            return Err(Failure::unusable(text));
        }
        return Ok(Ok(Named::Collective(collective)));
    }
    if !name.contains(['/', '.']) && name != "-" && !path.exists() {
        let all: Vec<&str> = Collective::ALL.into_iter().map(Collective::name).collect();
        return Err(Failure::unusable(format_args!(
            "there is no collective {} and no file of that name; collectives are {}",
            crate::input::name_of(path),
            all.join(", ")
        )));
    }
    for (flag, given) in [
        ("--algo", arguments.selection.algo.is_some()),
        ("--channels", arguments.selection.channels.is_some()),
    ] {
        if given {
            let text = format_args!("{flag} chooses among planned algorithms; a file holds its own");
            return Err(Failure::unusable(text));
        }
    }
    let input = Input::read(path)?;
    let wrong = |input: &Input, mistakes: Vec<Diagnostic>| {
        input.draw(&mistakes);
        Ok(Err(outcome_of(&mistakes)))
    };
    match first_word(&input.text) {
        Some("kernel_plan") => match text::parse_kernel_plan(&input.text) {
            Ok(plan) => Ok(Ok(Named::KernelPlan(input, Box::new(plan)))),
            Err(mistakes) => wrong(&input, mistakes),
        },
        Some("schedule") => match text::parse_schedule(&input.text) {
            Ok(schedule) => Ok(Ok(Named::Schedule(input, Box::new(schedule)))),
            Err(mistakes) => wrong(&input, mistakes),
        },
        _ => Ok(Ok(Named::Program(input))),
    }
}

/// The plan of what is named, for the ranks of `site`. How the command ends if a text is
/// wrong, which has been told.
pub(super) fn of(
    named: Named,
    arguments: &SimulateArguments,
    site: &Site,
) -> Result<StdResult<Subject, Outcome>> {
    let machine = &site.machine();
    match named {
        Named::Collective(collective) => planned(collective, arguments, site, machine),
        Named::Program(input) => {
            let set = arguments.parameters.by_name()?;
            let request = Request { ranks: Some(machine.ranks()), root: arguments.root, set };
            match expand::schedule(&input, &request)? {
                Ok(schedule) => lowered(&input, schedule, arguments, machine),
                Err(outcome) => Ok(Err(outcome)),
            }
        }
        Named::Schedule(input, schedule) => {
            let set = arguments.parameters.by_name()?;
            let request = Request { ranks: arguments.place.ranks, root: arguments.root, set };
            expand::fits(&input, &schedule, &request)?;
            lowered(&input, *schedule, arguments, machine)
        }
        Named::KernelPlan(input, plan) => checked(&input, *plan, arguments),
    }
}

/// The planner's choice.
fn planned(
    collective: Collective,
    arguments: &SimulateArguments,
    site: &Site,
    machine: &Machine,
) -> Result<StdResult<Subject, Outcome>> {
    let ranks = machine.ranks();
    let count = sizes::elements(collective, arguments.load.dtype, ranks, arguments.load.bytes);
    let bytes = sizes::bytes(collective, arguments.load.dtype, ranks, count);
    let request = plan::Request { collective, root: arguments.root.unwrap_or(0), bytes };
    let allowed = wanted(&arguments.selection)?;
    let options = choice::options(&allowed, collective, ranks)?;
    let choice = plan::choose(request, machine, &options).map_err(Failure::unusable)?;
    let op = collective.reduces().then_some(arguments.load.op);
    let order = site.order();
    let root = collective.rooted().then_some(choice.request.root);
    let Choice { algorithm, channels, protocol, .. } = choice;
    let name =
        format!("{} {collective} over {protocol}, {}", algorithm.name, counted(channels as usize, "channel"));
    let options = Options { protocol, slots: machine.slots, slot_bytes: machine.slot_bytes };
    let lowered = plan::schedule(algorithm, &order, root, channels, op)
        .and_then(|mut schedule| {
            schedule.protocol = protocol;
            verify::schedule(schedule)
        })
        .and_then(|schedule| lower::lower(&schedule, options));
    Ok(match lowered {
        Ok(plan) => Ok(Subject {
            name,
            plan: plan.into_inner(),
            predicted_us: Some(choice.predicted.us),
            doubts: Vec::new(),
        }),
        Err(mistakes) => {
            draw::mistakes_without_text(&name, &mistakes);
            Err(outcome_of(&mistakes))
        }
    })
}

/// The kernel plan of a text's schedule.
fn lowered(
    input: &Input,
    schedule: Schedule,
    arguments: &SimulateArguments,
    machine: &Machine,
) -> Result<StdResult<Subject, Outcome>> {
    let protocol = protocol(arguments)?.unwrap_or(schedule.protocol);
    let options = Options { protocol, slots: machine.slots, slot_bytes: machine.slot_bytes };
    let name = format!("@{}, {}, over {protocol}", schedule.name, counted(schedule.ranks as usize, "rank"));
    Ok(match verify::schedule(schedule).and_then(|schedule| lower::lower(&schedule, options)) {
        Ok(plan) => Ok(Subject { name, plan: plan.into_inner(), predicted_us: None, doubts: Vec::new() }),
        Err(mistakes) => {
            input.draw(&mistakes);
            Err(outcome_of(&mistakes))
        }
    })
}

/// A text's kernel plan, if nothing is wrong with it but that it may hang.
fn checked(
    input: &Input,
    plan: KernelPlan,
    arguments: &SimulateArguments,
) -> Result<StdResult<Subject, Outcome>> {
    let name = format!("kernel plan @{}, {}", plan.name, counted(plan.ranks as usize, "rank"));
    if let Some(flag) =
        [("--proto", arguments.selection.proto.is_some()), ("--root", arguments.root.is_some())]
            .into_iter()
            .chain([("--set", !arguments.parameters.set.is_empty())])
            .find_map(|(flag, given)| given.then_some(flag))
    {
        return Err(Failure::unusable(format_args!(
            "{flag}: {} holds a kernel plan, which leaves nothing open",
            input.name
        )));
    }
    if let Some(ranks) = arguments.place.ranks.filter(|ranks| *ranks != plan.ranks) {
        return Err(Failure::unusable(format_args!(
            "--ranks {ranks}: {} holds a kernel plan for {}",
            input.name,
            counted(plan.ranks as usize, "rank")
        )));
    }
    let subject = Subject { name, plan: plan.clone(), predicted_us: None, doubts: Vec::new() };
    let Err(mistakes) = verify::kernel_plan(plan) else { return Ok(Ok(subject)) };
    // A run shows how far such a plan comes, and who waits for whom.
    if may_run(&mistakes) {
        return Ok(Ok(Subject { doubts: mistakes, ..subject }));
    }
    draw::mistakes_without_text(&input.name, &mistakes);
    Ok(Err(outcome_of(&mistakes)))
}

/// The protocol that a flag asks for, of a text's plan.
fn protocol(arguments: &SimulateArguments) -> Result<Option<Protocol>> {
    let Some(list) = &arguments.selection.proto else { return Ok(None) };
    let known = [Protocol::Simple, Protocol::Ll, Protocol::Ll128];
    match known.into_iter().find(|protocol| protocol.name() == list) {
        Some(protocol) => Ok(Some(protocol)),
        None => Err(Failure::unusable(format_args!(
            "--proto {}: a file's plan has one protocol: simple, ll or ll128",
            ringsmith_runtime::shown::shown(list)
        ))),
    }
}
