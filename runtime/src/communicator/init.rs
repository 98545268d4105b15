//! Initialisation, in four phases: arguments, topology, connections, plans. Each is timed, has the
//! deadline of the settings, and names the ranks it waits for.

use super::planning::{self, Plans};
use super::ready::Shelf;
use super::{Communicator, State};
use crate::bootstrap::{Bootstrap, Member};
use crate::config::{Config, Net};
use crate::device::cpu::execute::Links;
use crate::device::cpu::wait::Policy;
use crate::error::Error;
use crate::memory::fork;
use crate::memory::scratch::Scratch;
use crate::transport::{Connections, Geometry, Options, TransportKind};
use crate::unique_id::UniqueId;
use ringsmith_compiler::plan::Machine;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// FIFOs per ordered pair of ranks where the settings do not say. Each costs address space, and memory
/// once it is used.
const CHANNELS: u32 = 8;
/// Cells of an epoch zone per parity and pair: enough for a ring of 16 ranks in both of its phases.
const ZONE_CELLS: u32 = 32;
/// Largest message of a zone. Measured: benches/all_reduce on two cores (docs/performance.md): from
/// here on slots of a FIFO are as fast.
const ZONE_CELL_BYTES: u64 = 16 << 10;
/// Ours: what a number of ranks is checked against before anything is allocated for it.
const MAX_WORLD: u32 = 16 << 10;

/// How long each phase of initialisation took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Arguments and device.
    pub arguments: Duration,
    /// Bootstrap, topology, and the comparison of settings and plans.
    pub topology: Duration,
    /// Transports chosen, memory mapped, patterns verified.
    pub connections: Duration,
    /// Progress threads started and memory of the executor looked up.
    pub proxies: Duration,
}

impl Timings {
    /// All phases.
    pub fn total(&self) -> Duration {
        self.arguments + self.topology + self.connections + self.proxies
    }

    pub(super) fn tell(&self, rank: u32, world: u32) {
        tracing::info!(
            target: "ringsmith::init",
            "rank {rank} of {world}: init complete in {:.3} s (arguments {:.3}, topology {:.3}, connections {:.3}, proxies {:.3})",
            self.total().as_secs_f64(),
            self.arguments.as_secs_f64(),
            self.topology.as_secs_f64(),
            self.connections.as_secs_f64(),
            self.proxies.as_secs_f64()
        );
    }
}

/// Measures one phase after the other.
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn lap(&mut self) -> Duration {
        let lap = self.0.elapsed();
        self.0 = Instant::now();
        lap
    }
}

/// See [`Communicator::init`].
pub(super) fn init(id: &UniqueId, rank: u32, world: u32, config: &Config) -> Result<Communicator, Error> {
    let clock = Clock::start();
    check_arguments(rank, world)?;
    over(config, clock, world, || Bootstrap::connect(id, rank, world, config))
}

/// See [`Communicator::over`].
pub(super) fn init_over(bootstrap: Bootstrap, config: &Config) -> Result<Communicator, Error> {
    let clock = Clock::start();
    let world = bootstrap.world();
    check_arguments(bootstrap.rank(), world)?;
    over(config, clock, world, || Ok(bootstrap))
}

/// The phases, with ranks that `connect` brings together.
fn over(
    config: &Config,
    mut clock: Clock,
    world: u32,
    connect: impl FnOnce() -> Result<Bootstrap, Error>,
) -> Result<Communicator, Error> {
    let mut timings = Timings::default();
    check_network(config)?;
    fork::remember();
    let geometry = geometry(world, config);
    timings.arguments = clock.lap();

    let bootstrap = connect()?;
    let rank = bootstrap.rank();
    agree_on_settings(&bootstrap, config, [("geometry of links", format!("{geometry:?}"))])?;
    let cores = smallest_core_count(&bootstrap)?;
    timings.topology = clock.lap();

    let fault = bootstrap.fault().clone();
    let options = Options::from_config(config, bootstrap.is_on_loopback())?;
    let connections = Connections::connect(&bootstrap, &options, geometry, Arc::new(fault.clone()))
        .map_err(|source| connecting(rank, source))?;
    timings.connections = clock.lap();

    let machine = config.tuned(machine(&bootstrap, &connections, &geometry, cores)?);
    let mut planned = vec![("machine", format!("{machine:?}"))];
    planned.extend(planning::fingerprint(&machine, config));
    bootstrap.agree("plans", &planned)?;
    let local = bootstrap.local_ranks().len();
    let policy = Policy { spin: local <= cores as usize, stall: config.stall, timeout: config.timeout };
    let links = Links::new(&connections, geometry);
    timings.proxies = clock.lap();

    timings.tell(rank, world);
    let state = State {
        links,
        scratch: Scratch::new(rank),
        plans: Plans::default(),
        shelf: Shelf::default(),
        number: 0,
        has_exchanged: false,
        connections,
    };
    Ok(Communicator {
        rank,
        world,
        config: config.clone(),
        has_sockets: !machine.all_share_memory(),
        machine,
        bootstrap,
        fault,
        policy,
        timings,
        state: Mutex::new(state),
    })
}

/// Refuses a network that this version does not have: what initialisation begins with, for those who want
/// to know before ranks are started.
///
/// Errors: `Unsupported`, naming the setting.
pub fn check_network(config: &Config) -> Result<(), Error> {
    match config.net {
        None | Some(Net::Socket) => Ok(()),
        Some(Net::Ib) => Err(Error::Unsupported {
            operation: "init".to_owned(),
            detail: "RINGSMITH_NET=ib (NCCL_NET): there is no InfiniBand in this version; leave it unset or say socket"
                .to_owned(),
        }),
    }
}

pub(super) fn check_arguments(rank: u32, world: u32) -> Result<(), Error> {
    let refuse = |detail: String| Err(Error::Argument { operation: "init", detail });
    if world == 0 || world > MAX_WORLD {
        return refuse(format!("a communicator of {world} ranks; there must be 1 to {MAX_WORLD}"));
    }
    if rank >= world {
        return refuse(format!("rank {rank} of {world}; ranks are 0 to {}", world - 1));
    }
    Ok(())
}

/// The machine that a communicator would plan for, were its ranks on these hosts and its settings
/// `config`: for planning without one. `hosts` has the host of each rank, numbered from 0; `cores` is the
/// number of cores of the smallest host.
pub fn machine_of(hosts: Vec<u32>, cores: u32, config: &Config) -> Machine {
    let shared_memory = config.shm && config.net.is_none();
    let geometry = geometry(hosts.len() as u32, config);
    config.tuned(planning::machine(hosts, &geometry, cores, shared_memory))
}

fn geometry(world: u32, config: &Config) -> Geometry {
    let (least, most) = config.channels();
    Geometry {
        ranks: world,
        channels: most.unwrap_or(CHANNELS).max(least.unwrap_or(1)),
        slots: config.slots,
        slot_bytes: u64::from(config.slot_bytes).next_multiple_of(64),
        zone_cells: ZONE_CELLS,
        zone_cell_bytes: ZONE_CELL_BYTES,
    }
}

fn connecting(rank: u32, source: crate::transport::LinkError) -> Error {
    Error::Connections { rank, source: Box::new(source) }
}

/// Every rank must be of one version, read the same settings, and have the same of something special.
pub(super) fn agree_on_settings<const N: usize>(
    bootstrap: &Bootstrap,
    config: &Config,
    special: [(&str, String); N],
) -> Result<(), Error> {
    let mut values: Vec<(String, String)> =
        vec![("version of ringsmith".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    values.extend(special.map(|(name, value)| (name.to_owned(), value)));
    values.extend(config.agreement().into_iter().map(|(name, value)| (format!("RINGSMITH_{name}"), value)));
    // What is special follows from settings: where one of those differs, that is what to mend.
    values.rotate_left(1 + N);
    bootstrap.agree("settings", &values)
}

fn smallest_core_count(bootstrap: &Bootstrap) -> Result<u32, Error> {
    let own = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let all = bootstrap.all_gather("cores", &own.to_le_bytes())?;
    let read = |bytes: &Vec<u8>| bytes.as_slice().try_into().map_or(1, u32::from_le_bytes);
    Ok(all.iter().map(read).min().unwrap_or(1).max(1))
}

/// What the planner may know, from what every rank has said: the same on all of them.
fn machine(
    bootstrap: &Bootstrap,
    connections: &Connections,
    geometry: &Geometry,
    cores: u32,
) -> Result<Machine, Error> {
    let row: Vec<u8> = (0..geometry.ranks)
        .map(|peer| match connections.transport(peer) {
            TransportKind::Local | TransportKind::Shm => 0,
            TransportKind::Socket => 1,
        })
        .collect();
    let rows = bootstrap.all_gather("transports", &row)?;
    let hosts = hosts(bootstrap.members());
    // What the planner counts as memory that is shared must be so between every two ranks of a host.
    let pairs =
        rows.iter().enumerate().flat_map(|(rank, row)| row.iter().enumerate().map(move |p| (rank, p)));
    let shared = pairs.into_iter().all(|(rank, (peer, kind))| hosts[rank] != hosts[peer] || *kind == 0);
    Ok(planning::machine(hosts, geometry, cores, shared))
}

/// The host of each rank, numbered in order of first ranks.
fn hosts(members: &[Member]) -> Vec<u32> {
    let mut numbers: BTreeMap<[u8; 16], u32> = BTreeMap::new();
    let number = |member: &Member| {
        let next = numbers.len() as u32;
        *numbers.entry(member.host_key).or_insert(next)
    };
    members.iter().map(number).collect()
}
