//! `plan`: what would run on CPU ranks like those of this host, and why.

use crate::arguments::{PlanArguments, Selection};
use crate::choice::{self, Wanted};
use crate::draw;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress};
use crate::run::sizes;
use crate::written;
use ringsmith_compiler::plan::{self, Choice, Machine, Request, Shape};
use ringsmith_ir::expand;
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text;
use ringsmith_ir::verify::{self, Verified};
use ringsmith_runtime::communicator::machine_of;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::config::grammar::NameFilter;
use ringsmith_runtime::config::table::{algorithm_list, protocol_list};
use ringsmith_runtime::shown::shown;
use std::thread;

/// Up to this many ranks, an explanation has the whole schedule proved, and instances of its program beyond. Ours:
/// proving takes a moment there and minutes for thousands.
const PROVED_RANKS: u32 = 64;

/// Runs `plan`.
pub(crate) fn run(arguments: &PlanArguments) -> Result {
    let machine = hosts(arguments.ranks, arguments.nodes, arguments.cores)?;
    let ranks = machine.ranks();
    let collective = arguments.collective;
    let count = sizes::elements(collective, arguments.load.dtype, ranks, arguments.load.bytes);
    let bytes = sizes::bytes(collective, arguments.load.dtype, ranks, count);
    let request = Request { collective, root: arguments.root, bytes };
    let allowed = wanted(&arguments.selection)?;
    let choice = plan::choose(request, &machine, &choice::options(&allowed, collective, ranks)?)
        .map_err(Failure::unusable)?;
    let mut output = Output::new();
    let wanted = arguments.output.is_some() || !arguments.explain;
    let schedule = if wanted || ranks <= PROVED_RANKS { proved(&choice, arguments)? } else { None };
    if wanted && schedule.is_none() {
        return Ok(Outcome::No);
    }
    if arguments.explain {
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

/// Hosts like this one, with the settings that a run would have.
pub(crate) fn hosts(ranks: u32, nodes: u32, cores: Option<u32>) -> Result<Machine> {
    let all = ranks.checked_mul(nodes).filter(|&all| all <= plan::MAX_RANKS);
    if all.is_none() {
        let most = plan::MAX_RANKS;
        return Err(Failure::unusable(format_args!(
            "--ranks {ranks} on each of --nodes {nodes}: at most {most} ranks are planned for"
        )));
    }
    let here =
        || thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX));
    let cores = cores.unwrap_or_else(here);
    let hosts = (0..nodes).flat_map(|node| (0..ranks).map(move |_| node)).collect();
    let (config, _) = Config::from_env().map_err(Failure::unusable)?;
    Ok(machine_of(hosts, cores, &config))
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
    let shape = Shape { ranks: choice.ranks, per_node: choice.rank_order.per_node, root: arguments.root };
    let (program, values) = plan::instantiate(choice.algorithm, shape, choice.channels, op);
    let name = format!("the program {}", program.name.text);
    let mut progress = Progress::new();
    progress.show(format_args!("proving {name} for {} ranks", choice.ranks));
    let verified = expand::expand(&program, &values).and_then(|mut schedule| {
        schedule.protocol = choice.protocol;
        verify::schedule(schedule)
    });
    progress.clear();
    Ok(verified.map_err(|mistakes| draw::mistakes_without_text(&name, &mistakes)).ok())
}
