//! Which plan a request runs: chosen by the planner, or the user's own program; lowered, proved and
//! resolved once, then kept.
//!
//! Every rank plans for itself from the same machine and settings, which initialisation has compared, so
//! every rank makes the same plan.

use super::Request;
use crate::config::Config;
use crate::config::selection::{Left, Selection};
use crate::device::cpu::local::LocalPlan;
use crate::error::Error;
use crate::transport::Geometry;
use crate::transport::geometry::INLINE_BYTES;
use ringsmith_compiler::lower;
use ringsmith_compiler::plan::{self, Filter, Machine, NothingLeft, Options, Stretch};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::partition::Chunks;
use ringsmith_ir::program::Program;
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::text;
use ringsmith_ir::types::Collective;
use ringsmith_ir::verify::{self, Verified};
use sha2::{Digest, Sha256};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The machine as the planner sees it: hosts in order of their first rank, links of this geometry.
pub(super) fn machine(hosts: Vec<u32>, geometry: &Geometry, cores: u32, shared_memory: bool) -> Machine {
    Machine {
        shared_memory,
        slots: geometry.slots,
        slot_bytes: geometry.slot_bytes,
        zone_cells: geometry.zone_cells,
        zone_cell_bytes: geometry.zone_cell_bytes.max(INLINE_BYTES),
        channels: geometry.channels,
        ..Machine::cpu(hosts, cores)
    }
}

/// A user's program or flat schedule, to be run instead of planned ones.
#[derive(Clone, Debug)]
pub(super) struct UserProgram {
    source: UserSource,
    /// What ranks compare.
    identity: String,
}

#[derive(Clone, Debug)]
enum UserSource {
    Program(Box<Program>, BTreeMap<String, i64>),
    Schedule(Box<Schedule>),
}

impl UserProgram {
    /// Takes a program and the values of its named integers.
    pub(super) fn new(program: &Program, set: BTreeMap<String, i64>) -> Self {
        let values: Vec<String> = set.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        let text = format!("{} with {}", text::print_program(program).trim_end(), values.join(", "));
        Self { source: UserSource::Program(Box::new(program.clone()), set), identity: identity(text) }
    }

    /// Takes a flat schedule.
    pub(super) fn flat(schedule: &Schedule) -> Self {
        let text = text::print_schedule(schedule);
        Self { source: UserSource::Schedule(Box::new(schedule.clone())), identity: identity(text) }
    }

    /// What ranks compare.
    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// The schedule for a number of ranks and a root.
    fn schedule(&self, ranks: u32, root: u32, rooted: bool) -> Result<Verified<Schedule>, Error> {
        match &self.source {
            UserSource::Program(program, set) => {
                let arguments = Arguments { ranks, root: rooted.then_some(root), set: set.clone() };
                let refused = |diagnostics| rejected(&program.name.text, diagnostics);
                expand(program, &arguments).and_then(verify::schedule).map_err(refused)
            }
            UserSource::Schedule(schedule) => {
                let of = schedule.root.map(|r| r.as_u32());
                let unfit = if schedule.ranks != ranks {
                    Some(format!("it is for {} ranks, the communicator has {ranks}", schedule.ranks))
                } else if rooted && of != Some(root) {
                    Some(format!("its root is rank {}, the call's is {root}", of.unwrap_or(0)))
                } else {
                    None
                };
                if let Some(detail) = unfit {
                    let operation = format!("schedule @{}", schedule.name);
                    return Err(Error::Unsupported { operation, detail });
                }
                let refused = |diagnostics| rejected(&schedule.name, diagnostics);
                verify::schedule(Schedule::clone(schedule)).map_err(refused)
            }
        }
    }

    /// The root that it is written for, where it is written for one.
    fn own_root(&self) -> Option<u32> {
        match &self.source {
            UserSource::Program(..) => None,
            UserSource::Schedule(schedule) => schedule.root.map(|r| r.as_u32()),
        }
    }
}

/// What stands for a text when ranks compare it: the text, which shows where it differs, or a digest of a
/// long one, since every rank hears from every other.
fn identity(text: String) -> String {
    const MOST_BYTES: usize = 64 << 10;
    if text.len() <= MOST_BYTES {
        return text;
    }
    let digest = hexadecimal(&Sha256::digest(&text));
    format!("a text of {} bytes with SHA-256 {digest}", text.len())
}

/// What makes two requests run the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    collective: Collective,
    /// The planner's algorithm; none for a user's program.
    algorithm: Option<&'static str>,
    protocol: Protocol,
    channels: u32,
    root: u32,
}

/// Plans made so far.
#[derive(Default)]
pub(super) struct Plans {
    made: HashMap<Key, Arc<LocalPlan>>,
    user: BTreeMap<Collective, UserProgram>,
    /// The choice for every size, by collective and root.
    choices: HashMap<(Collective, u32), Vec<Stretch>>,
}

impl Plans {
    /// Runs `user` for its collective from now on.
    ///
    /// Errors: `Rejected` when it does not expand or is refuted, `Unsupported` when it does not fit.
    pub(super) fn use_program(
        &mut self,
        user: UserProgram,
        machine: &Machine,
        geometry: &Geometry,
        rank: u32,
    ) -> Result<(), Error> {
        // The collective is not known before a program is expanded; a root is asked for where there is one.
        let ranks = machine.ranks();
        let root = user.own_root().unwrap_or(0);
        let first = match user.schedule(ranks, root, false) {
            Err(Error::Rejected { diagnostics, .. }) if wants_root(&diagnostics) => {
                user.schedule(ranks, 0, true)?
            }
            other => other?,
        };
        let collective = first.collective;
        let plan = resolve(&first, Protocol::Simple, geometry, rank)?;
        let mut made = std::mem::take(&mut self.made);
        made.retain(|key, _| key.collective != collective);
        let key = Key { collective, algorithm: None, protocol: Protocol::Simple, channels: 1, root };
        made.insert(key, Arc::new(plan));
        self.made = made;
        self.user.insert(collective, user);
        Ok(())
    }

    /// The plan of a request.
    ///
    /// Errors: `Unsupported` when the filters leave nothing, or a plan does not fit.
    pub(super) fn plan(
        &mut self,
        machine: &Machine,
        config: &Config,
        geometry: &Geometry,
        rank: u32,
        request: &Request,
    ) -> Result<Arc<LocalPlan>, Error> {
        let collective = request.collective;
        let root = if collective.rooted() { request.root } else { 0 };
        if let Some(user) = self.user.get(&collective) {
            let schedule = user.schedule(machine.ranks(), root, collective.rooted())?;
            let protocol = fitting_protocol(&schedule, machine, request);
            let key = Key { collective, algorithm: None, protocol, channels: 1, root };
            return self.keep(key, || resolve(&schedule, protocol, geometry, rank));
        }
        let Stretch { algorithm, protocol, channels, .. } = self.choice(machine, config, request, root)?;
        let key = Key { collective, algorithm: Some(algorithm.name), protocol, channels, root };
        self.keep(key, || {
            let order = plan::rank_order(machine);
            let schedule = plan::schedule(algorithm, &order, Some(root), channels, None)
                .and_then(verify::schedule)
                .map_err(|diagnostics| rejected(algorithm.name, diagnostics))?;
            let mut plan = resolve(&schedule, protocol, geometry, rank)?;
            // An algorithm may take several links from one rank to another in each channel.
            plan.channels = channels;
            Ok(plan)
        })
    }

    /// The planner's choice for a request's size.
    fn choice(
        &mut self,
        machine: &Machine,
        config: &Config,
        request: &Request,
        root: u32,
    ) -> Result<Stretch, Error> {
        let bytes = request.whole_bytes(machine.ranks())?;
        let stretches = match self.choices.entry((request.collective, root)) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => {
                let options = options(config, request.collective);
                let made = plan::choose_range(request.collective, root, machine, &options)
                    .map_err(|e| nothing_left(request.collective, e))?;
                place.insert(made)
            }
        };
        match plan::stretch_at(stretches, bytes) {
            Some(stretch) => Ok(*stretch),
            // Says what keeps every algorithm from this size.
            None => Err(choose(machine, config, request).err().unwrap_or_else(|| Error::Unsupported {
                operation: request.collective.to_string(),
                detail: format!("no plan was made for {bytes} bytes"),
            })),
        }
    }

    fn keep(
        &mut self,
        key: Key,
        make: impl FnOnce() -> Result<LocalPlan, Error>,
    ) -> Result<Arc<LocalPlan>, Error> {
        if let Some(plan) = self.made.get(&key) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(make()?);
        self.made.insert(key, plan.clone());
        Ok(plan)
    }
}

/// Whether all that is wrong with an expansion is that it has no root.
fn wants_root(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().all(|d| d.code == ringsmith_ir::text::codes::ROOT)
}

/// The protocol a user's program asks for, or `Simple` where its messages do not fit into a zone.
fn fitting_protocol(schedule: &Schedule, machine: &Machine, request: &Request) -> Protocol {
    let cut = Chunks::new(schedule.collective, request.dtype, request.count, schedule.chunks_per_block());
    let largest = if schedule.chunks == 0 { 0 } else { cut.largest() };
    let bytes = largest.saturating_mul(request.dtype.size_bytes() as u64);
    if machine.all_share_memory() && bytes <= machine.zone_cell_bytes {
        schedule.protocol
    } else {
        Protocol::Simple
    }
}

/// Lowers, proves and resolves.
fn resolve(
    schedule: &Verified<Schedule>,
    protocol: Protocol,
    geometry: &Geometry,
    rank: u32,
) -> Result<LocalPlan, Error> {
    let options = lower::Options { protocol, slots: geometry.slots, slot_bytes: geometry.slot_bytes };
    let kernel = lower::lower(schedule, options).map_err(|d| rejected(&schedule.name, d))?;
    LocalPlan::new(kernel, rank, geometry)
}

fn rejected(name: &str, diagnostics: Vec<Diagnostic>) -> Error {
    Error::Rejected { schedule: format!("@{name}"), diagnostics }
}

/// What the settings allow for a collective. Where a list is not applied, that is said.
fn options(config: &Config, collective: Collective) -> Options {
    let (algorithms, protocols) = left(config, collective);
    limited(config, algorithms.told(), protocols.told())
}

/// What lists leave of a collective's algorithms and protocols.
fn left(config: &Config, collective: Collective) -> (Left, Left) {
    let candidates = plan::candidates(collective);
    let names: Vec<Vec<&str>> =
        candidates.iter().map(|a| [a.name].into_iter().chain(a.aliases.iter().copied()).collect()).collect();
    let protocols = candidates.iter().flat_map(|a| a.protocols().iter().copied());
    let selection = Selection::of(config);
    (selection.algorithms(collective, &names), selection.protocols(collective, protocols))
}

fn limited(config: &Config, algorithms: Filter, protocols: Filter) -> Options {
    let (least, most) = config.channels();
    Options {
        algorithms,
        protocols,
        min_channels: least.unwrap_or(1),
        max_channels: most.unwrap_or(u32::MAX),
    }
}

/// Up to this many ranks, ranks compare what they plan when they come together; beyond, what they plan from. Ours:
/// planning for more takes a rank longer than coming together does.
const COMPARED_RANKS: u32 = 32;

/// What every rank must make of the same machine and settings, in names and values for a comparison: the programs
/// that names of algorithms stand for, and which is chosen for all_reduce at every size. Ranks that differ here
/// and nowhere else run different builds.
pub(super) fn fingerprint(machine: &Machine, config: &Config) -> Vec<(&'static str, String)> {
    let mut found = vec![(PROGRAMS, programs())];
    if machine.ranks() <= COMPARED_RANKS {
        found.push((
            "plan of all_reduce (the same build of ringsmith plans the same)",
            all_reduce(machine, config),
        ));
    }
    found
}

/// How a comparison calls the built-in programs.
pub(super) const PROGRAMS: &str =
    "SHA-256 of the built-in programs (the same build of ringsmith has the same)";

/// What stands for the built-in programs.
pub(super) fn programs() -> String {
    let mut digest = Sha256::new();
    for text in plan::texts() {
        digest.update((text.len() as u64).to_le_bytes());
        digest.update(text);
    }
    hexadecimal(&digest.finalize())
}

/// The choice for every size, in words.
fn all_reduce(machine: &Machine, config: &Config) -> String {
    let collective = Collective::AllReduce;
    let (algorithms, protocols) = left(config, collective);
    let options = limited(config, algorithms.filter, protocols.filter);
    let stretches = match plan::choose_range(collective, 0, machine, &options) {
        Ok(stretches) => stretches,
        // Which is said when it is called for.
        Err(_) => return "none".to_owned(),
    };
    let each = |s: &Stretch| {
        format!("{} {} x{} from {} bytes", s.algorithm.name, s.protocol, s.channels, s.first_bytes)
    };
    stretches.iter().map(each).collect::<Vec<_>>().join(", ")
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn nothing_left(collective: Collective, reason: NothingLeft) -> Error {
    Error::Unsupported { operation: collective.to_string(), detail: reason.to_string() }
}

fn choose(machine: &Machine, config: &Config, request: &Request) -> Result<plan::Choice, Error> {
    let bytes = request.whole_bytes(machine.ranks())?;
    let wanted = plan::Request { collective: request.collective, root: request.root, bytes };
    plan::choose(wanted, machine, &options(config, request.collective))
        .map_err(|e| nothing_left(request.collective, e))
}

/// The planner's choice for a request, in words.
pub(super) fn explain(machine: &Machine, config: &Config, request: &Request) -> Result<String, Error> {
    Ok(plan::explain(&choose(machine, config, request)?))
}

/// What the planner's choice for a request should take, in microseconds.
pub(super) fn predict_us(machine: &Machine, config: &Config, request: &Request) -> Result<f64, Error> {
    Ok(choose(machine, config, request)?.predicted.us)
}

/// A plan in a few words: `ring_all_reduce simple, 2 channels`.
pub(super) fn name(local: &LocalPlan) -> String {
    let plan = local.plan();
    let plural = if local.channels == 1 { "channel" } else { "channels" };
    format!("{} {}, {} {plural}", plan.name, plan.protocol, local.channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_plan_differently_differ_in_what_they_compare() {
        let machine = |cores| Machine::cpu(vec![0; 4], cores);
        let config = |name: &str, value: &str| {
            Config::from_vars([(name.to_owned(), value.to_owned())]).expect("it is right").0
        };
        let plain = fingerprint(&machine(4), &Config::default());
        assert_eq!(plain, fingerprint(&machine(4), &Config::default()));
        let [(programs, digest), (name, plan)] = &plain[..] else { panic!("{plain:?}") };
        assert!(programs.contains("programs") && digest.len() == 64, "{plain:?}");
        assert!(name.contains("all_reduce") && plan.contains("from 0 bytes"), "{plain:?}");
        for other in [config("NCCL_ALGO", "ring"), config("NCCL_PROTO", "simple")] {
            assert_ne!(plain, fingerprint(&machine(4), &other));
        }
        assert!(fingerprint(&machine(4), &config("NCCL_ALGO", "all_reduce:pat"))[1].1 == "none");
        // Many ranks compare what they plan from.
        assert_eq!(fingerprint(&Machine::cpu(vec![0; 33], 4), &Config::default()), plain[..1]);
    }

    #[test]
    fn a_long_text_is_compared_by_its_digest() {
        assert_eq!(identity("short".to_owned()), "short");
        let [one, other] = ["a", "b"].map(|end| identity("x".repeat(1 << 21) + end));
        assert!(one != other && one.len() < 200, "{one}");
    }
}
