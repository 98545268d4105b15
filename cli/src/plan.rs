//! `plan`: what would run on CPU ranks like those of this host, or on the GPUs of a topology, and why.

use crate::arguments::{PlanArguments, Selection};
use crate::choice::{self, Wanted};
use crate::draw;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress, remark};
use crate::run::sizes;
use crate::site::Site;
use crate::topo;
use crate::written;
use ringsmith_compiler::plan::{self, Choice, Instances, Request};
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text;
use ringsmith_ir::verify::{self, Verified};
use ringsmith_runtime::config::grammar::NameFilter;
use ringsmith_runtime::config::table::{algorithm_list, protocol_list};
use ringsmith_runtime::shown::shown;
use std::fmt;
use std::path::Path;

/// Up to this many ranks, an explanation proves the plan whole. Ours: that takes a moment.
const EXPLAINED_RANKS: u32 = 64;
/// Up to this many ranks, a schedule that is written is proved whole. Ours: more take many seconds and a GiB.
const WHOLE_RANKS: u32 = 1024;

/// Runs `plan`.
pub(crate) fn run(arguments: &PlanArguments) -> Result {
    let file = arguments.output.as_deref().filter(|path| *path != Path::new("-"));
    written::apart(&[("--output", file)], topo::files_of(&arguments.place.topo))?;
    let Some(site) = Site::of(&arguments.place, None, arguments.load.bytes)? else {
        return Ok(Outcome::Unusable);
    };
    let machine = site.machine();
    let ranks = machine.ranks();
    let collective = arguments.collective;
    let count = sizes::elements(collective, arguments.load.dtype, ranks, arguments.load.bytes);
    let bytes = sizes::bytes(collective, arguments.load.dtype, ranks, count);
    let request = Request { collective, root: arguments.root, bytes };
    let allowed = wanted(&arguments.selection)?;
    let choice = plan::choose(request, &machine, &choice::options(&allowed, collective, ranks)?)
        .map_err(Failure::unusable)?;
    let choice = Choice { rank_order: site.order(), ..choice };
    let mut output = Output::new();
    let wanted = arguments.output.is_some() || !arguments.explain;
    let Some(proof) = proved(&choice, arguments, wanted)? else { return Ok(Outcome::No) };
    if arguments.explain {
        if site.has_gpus() {
            output.line(format_args!("machine     {}", site.name()))?;
        }
        output.text(&plan::explain(&choice))?;
        output.line(format_args!("proof       {proof}"))?;
    } else if !matches!(proof, Proof::Whole(_)) {
        remark(format_args!("proof: {proof}"));
    }
    if let Some(schedule) = proof.schedule().filter(|_| wanted) {
        let text = text::print_schedule(schedule);
        match file {
            Some(path) => written::whole(path, text.as_bytes())?,
            None => output.text(&text)?,
        }
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// What flags allow to be chosen.
pub(crate) fn wanted(selection: &Selection) -> Result<Wanted> {
    let Selection { algo, proto, channels } = selection;
    type Read = fn(&str) -> std::result::Result<NameFilter, String>;
    let filter = |flag: &str, list: &Option<String>, read: Read| {
        let read = |list: &String| {
            read(list).map_err(|detail| Failure::unusable(format_args!("{flag} {}: {detail}", shown(list))))
        };
        list.as_ref().map(read).transpose()
    };
    Ok(Wanted {
        algorithms: filter("--algo", algo, algorithm_list)?,
        flag: algo.clone(),
        protocols: filter("--proto", proto, protocol_list)?,
        protocol_flag: proto.clone(),
        min_channels: channels.unwrap_or(1),
        max_channels: channels.unwrap_or(u32::MAX),
    })
}

/// How the plan of a choice was shown to be right.
enum Proof {
    /// This very schedule was proved.
    Whole(Verified<Schedule>),
    /// The same program was, for fewer ranks; of this very schedule an outline was checked.
    Outline(Instances, Schedule),
    /// The same without this very schedule, which nobody wants.
    Instances(Instances),
}

impl Proof {
    fn schedule(&self) -> Option<&Schedule> {
        match self {
            Self::Whole(schedule) => Some(schedule),
            Self::Outline(_, schedule) => Some(schedule),
            Self::Instances(_) => None,
        }
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(_) => f.write_str("whole"),
            Self::Outline(instances, schedule) => write!(
                f,
                "{instances}; for {} ranks its form was checked, that it ends, and that every result has each \
                 contribution once, and not races or the order of reductions",
                schedule.ranks
            ),
            Self::Instances(instances) => instances.fmt(f),
        }
    }
}

/// Proves the plan of a choice: whole where that is quick, by instances beyond; there, this very schedule is
/// `made` for those who want it. Mistakes are drawn; then there is none.
fn proved(choice: &Choice, arguments: &PlanArguments, made: bool) -> Result<Option<Proof>> {
    let op = arguments.collective.reduces().then_some(arguments.load.op);
    let root = arguments.collective.rooted().then_some(arguments.root);
    let name = format!("the program {}_{}", choice.algorithm.name, arguments.collective);
    let mut progress = Progress::new();
    progress.show(format_args!("proving {name} for {} ranks", choice.ranks));
    let schedule = || {
        let schedule = plan::schedule(choice.algorithm, &choice.rank_order, root, choice.channels, op);
        schedule.map(|mut schedule| {
            schedule.protocol = choice.protocol;
            schedule
        })
    };
    let most = if made { WHOLE_RANKS } else { EXPLAINED_RANKS };
    let outcome = if choice.ranks <= most {
        schedule().and_then(verify::schedule).map(Proof::Whole)
    } else if made {
        plan::prove_instances(choice).and_then(|instances| {
            let schedule = schedule()?;
            verify::outline(&schedule)?;
            Ok(Proof::Outline(instances, schedule))
        })
    } else {
        plan::prove_instances(choice).map(Proof::Instances)
    };
    progress.clear();
    Ok(outcome.map_err(|mistakes| draw::mistakes_without_text(&name, &mistakes)).ok())
}
