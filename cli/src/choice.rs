//! What lists of algorithms and protocols leave to the planner, checked against the collective and the
//! number of ranks before any rank is started.

use crate::arguments::Selection;
use crate::outcome::{Failure, Result};
use ringsmith_compiler::plan::{self, Algorithm, Filter, Options};
use ringsmith_ir::types::Collective;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::config::grammar::NameFilter;
use ringsmith_runtime::config::table::PROTOCOLS;
use ringsmith_runtime::shown::shown;

/// What may be chosen.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The algorithms; none means all.
    pub(crate) algorithms: Option<NameFilter>,
    /// That list as a flag gave it, for the collective at hand; none where a variable did, for all.
    pub(crate) flag: Option<String>,
    /// The protocols; none means all.
    pub(crate) protocols: Option<NameFilter>,
    /// That list as a flag gave it, for the collective at hand.
    pub(crate) protocol_flag: Option<String>,
    /// The fewest channels.
    pub(crate) min_channels: u32,
    /// The most channels.
    pub(crate) max_channels: u32,
}

impl Wanted {
    /// What the settings of a run say, and its `--algo` and `--proto`.
    pub(crate) fn of(config: &Config, selection: &Selection) -> Self {
        let (least, most) = config.channels();
        Self {
            algorithms: config.algorithms.clone(),
            flag: selection.algo.clone(),
            protocols: config.protocols.clone(),
            protocol_flag: selection.proto.clone(),
            min_channels: least.unwrap_or(1),
            max_channels: most.unwrap_or(u32::MAX),
        }
    }

    /// The list of algorithms as it was given.
    fn named(&self, filter: &NameFilter) -> String {
        match &self.flag {
            Some(list) => format!("--algo {}", shown(list)),
            None => format!("RINGSMITH_ALGO={filter}"),
        }
    }
}

/// The same as the planner takes it.
///
/// Errors: nothing is left for this collective and number of ranks; says what there is.
pub(crate) fn options(wanted: &Wanted, collective: Collective, ranks: u32) -> Result<Options> {
    Ok(Options {
        algorithms: algorithms(wanted, collective, ranks)?,
        protocols: protocols(wanted, collective)?,
        min_channels: wanted.min_channels,
        max_channels: wanted.max_channels,
    })
}

fn algorithms(wanted: &Wanted, collective: Collective, ranks: u32) -> Result<Filter> {
    let all = plan::candidates(collective);
    let Some(filter) = &wanted.algorithms else { return Ok(Filter::Any) };
    if all.is_empty() {
        return match &wanted.flag {
            None => Ok(Filter::Any),
            Some(list) => Err(Failure::unusable(format_args!(
                "--algo {list}: {collective} is exchanged message by message, without an algorithm; leave it out"
            ))),
        };
    }
    let names = |a: &Algorithm| a.aliases.iter().copied().chain([a.name]).collect::<Vec<_>>();
    let permits = |a: &&Algorithm| names(a).iter().any(|name| filter.permits(collective.name(), name));
    let left: Vec<&Algorithm> = all.iter().filter(permits).collect();
    if left.is_empty() {
        let own: Vec<&str> = all.iter().flat_map(names).collect();
        if wanted.flag.is_none() && filter.names_others(collective.name(), &own) {
            // The list was written with other collectives in mind; the run says that it is not applied.
            return Ok(Filter::Any);
        }
        return Err(Failure::unusable(format_args!(
            "{}: that leaves no algorithm of {collective}, which has {}",
            wanted.named(filter),
            listed(all.iter().filter(|a| a.applies.holds(ranks)))
        )));
    }
    if !left.iter().any(|a| a.applies.holds(ranks)) {
        let bounds: Vec<String> = left.iter().map(|a| format!("{} is for {}", a.name, a.applies)).collect();
        return Err(Failure::unusable(format_args!(
            "{}: {}, not {ranks}; for {ranks} there are {}",
            wanted.named(filter),
            bounds.join(", "),
            listed(all.iter().filter(|a| a.applies.holds(ranks)))
        )));
    }
    Ok(Filter::Only(left.iter().map(|a| a.name.to_owned()).collect()))
}

/// Names of algorithms, those that filters may use for them too.
fn listed<'a>(algorithms: impl Iterator<Item = &'a Algorithm>) -> String {
    let with_aliases = |a: &Algorithm| match a.aliases {
        [] => a.name.to_owned(),
        aliases => format!("{} ({})", a.name, aliases.join(", ")),
    };
    algorithms.map(with_aliases).collect::<Vec<_>>().join(", ")
}

fn protocols(wanted: &Wanted, collective: Collective) -> Result<Filter> {
    let Some(filter) = &wanted.protocols else { return Ok(Filter::Any) };
    let candidates = plan::candidates(collective);
    if candidates.is_empty() {
        // What has no plan goes over one protocol; a list of its own without it was refused when it was read.
        return Ok(Filter::Any);
    }
    let has = |name: &&str| candidates.iter().any(|a| a.protocols().iter().any(|p| p.name() == *name));
    let own: Vec<&str> = PROTOCOLS.iter().copied().filter(has).collect();
    let left: Vec<String> = own
        .iter()
        .filter(|name| filter.permits(collective.name(), name))
        .map(|&name| name.to_owned())
        .collect();
    if left.is_empty() {
        if wanted.protocol_flag.is_none() && filter.names_others(collective.name(), &own) {
            // As for algorithms.
            return Ok(Filter::Any);
        }
        let all = own.join(", ");
        let given = match &wanted.protocol_flag {
            Some(list) => format!("--proto {}", shown(list)),
            None => format!("RINGSMITH_PROTO={filter}"),
        };
        return Err(Failure::unusable(format_args!(
            "{given}: that leaves no protocol of {collective}, which has {all}"
        )));
    }
    Ok(Filter::Only(left))
}
