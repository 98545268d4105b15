//! Where the ranks of a plan are: on the CPUs of hosts like this one, or on the GPUs of a topology.

use crate::arguments::Place;
use crate::outcome::{Failure, Result};
use crate::topo;
use crate::verify::counted;
use ringsmith_compiler::channels::Channels;
use ringsmith_compiler::plan::{self, MAX_RANKS, Machine, Order};
use ringsmith_compiler::simulate::Network;
use ringsmith_ir::topology::Topology;
use ringsmith_runtime::communicator::machine_of;
use ringsmith_runtime::config::Config;
use std::collections::HashSet;
use std::thread;

/// Where ranks are.
pub(crate) struct Site {
    /// Whose GPUs they are on; CPUs otherwise.
    topology: Option<Topology>,
    /// The hosts, with costs of CPUs.
    hosts: Machine,
    /// What is between them.
    pub(crate) network: Network,
}

impl Site {
    /// The place that is asked for, for `own` ranks if that many are given, and calls of `bytes` bytes. None if a
    /// description is wrong, which has been told.
    ///
    /// Errors: more ranks than there is room for; GPUs that nothing joins.
    pub(crate) fn of(place: &Place, own: Option<u32>, bytes: u64) -> Result<Option<Self>> {
        let topology = match &place.topo[..] {
            [] => None,
            paths => match topo::cluster(paths, place.nodes)? {
                Some(topology) => Some(topology),
                None => return Ok(None),
            },
        };
        let hosts = hosts(place, topology.as_ref(), own)?;
        let network = match &topology {
            Some(topology) => Network::of_topology(topology, hosts.ranks()).map_err(Failure::unusable)?,
            None => Network::of_hosts(&hosts, bytes),
        };
        Ok(Some(Self { topology, hosts, network }))
    }

    /// The same as the planner sees it.
    pub(crate) fn machine(&self) -> Machine {
        self.network.machine(&self.hosts)
    }

    /// The order of ranks in rings and trees: along a topology's first ring, or as hosts have them.
    pub(crate) fn order(&self) -> Order {
        ring_order(self.topology.as_ref(), self.hosts.ranks())
            .unwrap_or_else(|| plan::rank_order(&self.hosts))
    }

    /// The place in words.
    pub(crate) fn name(&self) -> String {
        described(self.topology.as_ref(), &self.hosts)
    }

    /// Whether ranks are on GPUs.
    pub(crate) fn has_gpus(&self) -> bool {
        self.topology.is_some()
    }
}

/// Hosts like this one, with the settings that a run would have.
pub(crate) fn of_hosts(ranks: u32, nodes: u32, cores: Option<u32>) -> Result<Machine> {
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

/// Hosts for as many ranks as there shall be; with a topology, its nodes.
fn hosts(place: &Place, topology: Option<&Topology>, own: Option<u32>) -> Result<Machine> {
    let refuse = |text: String| Err(Failure::unusable(text));
    let Some(topology) = topology else {
        let ranks = match (own, place.ranks) {
            // A schedule brings its number of ranks, over all hosts.
            (Some(own), None) if own.is_multiple_of(place.nodes) => own / place.nodes,
            (Some(own), None) => {
                return refuse(format!("{own} ranks cannot be dealt out evenly to --nodes {}", place.nodes));
            }
            (_, ranks) => ranks.unwrap_or(2),
        };
        return of_hosts(ranks, place.nodes, place.cores);
    };
    let gpus = topology.gpu_count();
    if gpus == 0 {
        return refuse(format!(
            "{} has no GPUs, and --topo is about ranks on GPUs; without --topo, ranks are on CPUs",
            topology.name
        ));
    }
    if let Some(wanted) = own.or(place.ranks).filter(|wanted| u64::from(*wanted) > gpus) {
        let (wanted, gpus) = (counted(wanted as usize, "rank"), counted(gpus as usize, "GPU"));
        return refuse(format!("{wanted}, and {} has {gpus}; give more --nodes", topology.name));
    }
    let ranks = own.or(place.ranks).map_or(gpus, u64::from);
    let Some(ranks) = u32::try_from(ranks).ok().filter(|ranks| *ranks <= MAX_RANKS) else {
        return refuse(format!(
            "{ranks} GPUs: at most {MAX_RANKS} ranks are planned for; give fewer --nodes, or --ranks"
        ));
    };
    let mut hosts = of_hosts(ranks, 1, Some(1))?;
    let per_node = topology
        .nodes
        .iter()
        .flat_map(|row| (0..row.count).map(|_| topology.machines[row.machine].gpus().len()));
    let of_ranks = per_node.zip(0u32..).flat_map(|(gpus, node)| (0..gpus).map(move |_| node));
    // Nodes without GPUs have no ranks.
    hosts.hosts = of_ranks.take(ranks as usize).collect();
    Ok(hosts)
}

/// Ranks in the order of the first ring through all GPUs, if all of them take part.
fn ring_order(topology: Option<&Topology>, ranks: u32) -> Option<Order> {
    let topology = topology.filter(|topology| topology.gpu_count() == u64::from(ranks))?;
    let channels = Channels::of(topology);
    if channels.ring_count() == 0 {
        return None;
    }
    let nodes = topology.nodes.iter().flat_map(|row| (0..row.count).map(|_| row.machine));
    let first: Vec<usize> = nodes
        .scan(0, |next, machine| {
            let first = *next;
            *next += topology.machines[machine].gpus().len();
            Some(first)
        })
        .collect();
    let order: Vec<u32> = channels.ring(0).map(|at| (first[at.node as usize] + at.gpu) as u32).collect();
    // GPUs that nothing joins are in no ring.
    let per_node = topology.nodes.first().map_or(1, |row| topology.machines[row.machine].gpus().len() as u32);
    let alike =
        topology.nodes.iter().all(|row| topology.machines[row.machine].gpus().len() as u32 == per_node);
    let per_node = if alike { per_node } else { 1 };
    (order.len() == ranks as usize).then_some(Order { ranks: order, per_node })
}

/// The machine in words.
fn described(topology: Option<&Topology>, hosts: &Machine) -> String {
    let nodes = hosts.hosts.iter().collect::<HashSet<_>>().len();
    let ranks = hosts.ranks() as usize;
    match topology {
        Some(topology) => {
            format!("{}, {} of {}", topology.name, counted(ranks, "GPU"), counted(nodes, "node"))
        }
        None => format!(
            "{} on CPUs, {} with {}{}",
            counted(ranks, "rank"),
            counted(nodes, "host"),
            counted(hosts.cores_per_host as usize, "core"),
            if nodes > 1 { " each" } else { "" },
        ),
    }
}
