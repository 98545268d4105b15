//! `plan`: what would run on CPU ranks like those of this host, or on the GPUs of a topology, and why.

use crate::arguments::{PlanArguments, Selection};
use crate::choice::{self, Wanted};
use crate::draw;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress};
use crate::run::sizes;
use crate::site::Site;
use crate::written;
use ringsmith_compiler::plan::{self, Choice, Request};
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text;
use ringsmith_ir::verify::{self, Verified};
use ringsmith_runtime::config::grammar::NameFilter;
use ringsmith_runtime::config::table::{algorithm_list, protocol_list};
use ringsmith_runtime::shown::shown;

/// Up to this many ranks, an explanation has the whole schedule proved, and instances of its program beyond. Ours:
/// proving takes a moment there and minutes for thousands.
const PROVED_RANKS: u32 = 64;

/// Runs `plan`.
pub(crate) fn run(arguments: &PlanArguments) -> Result {
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
    let schedule = if wanted || ranks <= PROVED_RANKS { proved(&choice, arguments)? } else { None };
    if wanted && schedule.is_none() {
        return Ok(Outcome::No);
    }
    if arguments.explain {
        if site.has_gpus() {
            output.line(format_args!("machine     {}", site.name()))?;
        }
        output.text(&plan::explain(&choice))?;
        match &schedule {
            Some(_) => output.line("proof       whole")?,
            None => match plan::prove_instances(&choice) {
                Ok(instances) => output.line(format_args!("proof       {instances}"))?,
                Err(mistakes) => {
                    draw::mistakes_without_text(choice.algorithm.name, &mistakes);
                    return Ok(Outcome::No);
                }
            },
        }
    }
    match (&arguments.output, schedule) {
        (Some(path), Some(schedule)) => written::whole(path, text::print_schedule(&schedule).as_bytes())?,
        (None, Some(schedule)) if !arguments.explain => output.text(&text::print_schedule(&schedule))?,
        _ => (),
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
        has_protocol_flag: proto.is_some(),
        min_channels: channels.unwrap_or(1),
        max_channels: channels.unwrap_or(u32::MAX),
    })
}

/// The schedule of a choice, proved. Mistakes are drawn; then there is none.
fn proved(choice: &Choice, arguments: &PlanArguments) -> Result<Option<Verified<Schedule>>> {
    let op = arguments.collective.reduces().then_some(arguments.load.op);
    let root = arguments.collective.rooted().then_some(arguments.root);
    let name = format!("the program {}_{}", choice.algorithm.name, arguments.collective);
    let mut progress = Progress::new();
    progress.show(format_args!("proving {name} for {} ranks", choice.ranks));
    let schedule = plan::schedule(choice.algorithm, &choice.rank_order, root, choice.channels, op);
    let verified = schedule.and_then(|mut schedule| {
        schedule.protocol = choice.protocol;
        verify::schedule(schedule)
    });
    progress.clear();
    Ok(verified.map_err(|mistakes| draw::mistakes_without_text(&name, &mistakes)).ok())
}
