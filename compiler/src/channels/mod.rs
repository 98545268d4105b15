//! Channels: the rings and trees that collectives run over, found for a cluster.
//!
//! A node's channels are found once for each machine that differs, whatever the number of its nodes:
//! each goes through all GPUs of the node, and enters and leaves it through one port of a network card,
//! the same one on every node, so that messages stay on their rail. Nodes follow each other in their
//! order. `rings` has the search, [`trees`] what is made of a ring's order for trees, `rails` which
//! port each GPU is best served by.
//!
//! Searches are bounded and iterative, and a function of their arguments. They follow NCCL's
//! (`src/graph/search.cc`): one rate for all channels, many rates tried, the greatest sum wins.

mod load;
mod rails;
mod rings;
pub mod trees;
mod walk;

pub use rails::Rail;

use load::Shares;
use ringsmith_ir::topology::paths::{PathKind, Paths};
use ringsmith_ir::topology::{Machine, Rate, Topology};

/// The most channels, unless there are more ports. NCCL has 64 (`MAXCHANNELS`), half of them for copies
/// of what its search finds.
pub const MAX_CHANNELS: usize = 32;

/// What was found for a cluster.
#[derive(Clone, Debug)]
pub struct Channels {
    /// For each machine of the topology, in its order. All have equally many rings, and equally many
    /// trees.
    pub machines: Vec<Within>,
    /// What each ring carries.
    pub ring_rate: Rate,
    /// What each tree carries up and down at once.
    pub tree_rate: Rate,
    /// The nodes, by their machines.
    nodes: Vec<(usize, u32)>,
}

/// The channels within one node.
#[derive(Clone, Debug, Default)]
pub struct Within {
    /// One for each ring.
    pub rings: Vec<Channel>,
    /// One for each tree.
    pub trees: Vec<Channel>,
    /// What serves each GPU towards other nodes.
    pub rails: Vec<Rail>,
    /// GPUs and ports that no ring uses, and why; and why there are no rings, if there are none.
    pub unused: Vec<String>,
}

/// A way through a node: from a port to the first GPU, through all of them, and from the last one to
/// the port. Without a port, a ring goes from the last GPU to the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// All GPUs of the node, by number.
    pub gpus: Vec<usize>,
    /// The port, by number; none in a cluster of one node.
    pub port: Option<usize>,
    /// The farthest path between its GPUs.
    pub kind: PathKind,
    /// The farther of its paths from and to the port.
    pub port_kind: Option<PathKind>,
}

/// A place of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: u32,
    /// The GPU of that node.
    pub gpu: usize,
}

impl Channels {
    /// Finds the channels of a cluster.
    pub fn of(topology: &Topology) -> Self {
        let several = topology.node_count() > 1;
        let mut steps = rings::MAX_ALL_STEPS;
        // Nodes of a cluster differ in names and are one machine otherwise.
        let mut shapes: Vec<Machine> = Vec::new();
        let mut found: Vec<(Within, Paths)> = Vec::new();
        let mut which: Vec<usize> = Vec::new();
        for machine in &topology.machines {
            let shape = machine.shape();
            let at = shapes.iter().position(|known| *known == shape).unwrap_or_else(|| {
                let paths = Paths::of(machine);
                found.push((rings::within(machine, &paths, several, &mut steps), paths));
                shapes.push(shape);
                shapes.len() - 1
            });
            which.push(at);
        }
        let rings = found.iter().map(|(within, _)| within.rings.len()).min().unwrap_or(0);
        let mut ring_rate = Rate(u64::MAX);
        let mut tree_rate = Rate(u64::MAX);
        for (within, paths) in &mut found {
            within.rings.truncate(rings);
            ring_rate = ring_rate.min(rings::each(paths, &within.rings));
        }
        let all: Vec<(&Paths, &[Channel])> =
            found.iter().map(|(within, paths)| (paths, within.rings.as_slice())).collect();
        let keep = trees::worth_keeping(&all, topology.node_count());
        for (within, paths) in &mut found {
            within.trees = keep.iter().map(|ring| within.rings[*ring].clone()).collect();
            tree_rate = tree_rate.min(trees::each(paths, &within.trees, topology.node_count()));
        }
        for (within, paths) in &mut found {
            within.rails = rails::of(paths);
        }
        let machines = topology.machines.iter().zip(which).map(|(machine, at)| {
            let (within, paths) = &found[at];
            let why = unused(machine, paths, within, ring_rate, several);
            let unused = within.unused.iter().cloned().chain(why).collect();
            Within { unused, ..within.clone() }
        });
        let none = |rate: Rate, count: usize| if count == 0 { Rate(0) } else { rate };
        Self {
            ring_rate: none(ring_rate, rings),
            tree_rate: none(tree_rate, keep.len()),
            machines: machines.collect(),
            nodes: topology.nodes.iter().map(|nodes| (nodes.machine, nodes.count)).collect(),
        }
    }

    /// How many rings there are.
    pub fn ring_count(&self) -> usize {
        self.machines.first().map_or(0, |within| within.rings.len())
    }

    /// How many trees there are.
    pub fn tree_count(&self) -> usize {
        self.machines.first().map_or(0, |within| within.trees.len())
    }

    /// What all rings carry together: what nccl-tests calls the bus bandwidth of an all_reduce.
    pub fn ring_sum(&self) -> Rate {
        Rate(self.ring_rate.0.saturating_mul(self.ring_count() as u64))
    }

    /// What all trees carry together.
    pub fn tree_sum(&self) -> Rate {
        Rate(self.tree_rate.0.saturating_mul(self.tree_count() as u64))
    }

    /// A ring through all GPUs of all nodes; the last is followed by the first.
    pub fn ring(&self, channel: usize) -> impl Iterator<Item = Place> + '_ {
        let machines = self.nodes.iter().flat_map(|&(machine, count)| (0..count).map(move |_| machine));
        machines.zip(0u32..).flat_map(move |(machine, node)| {
            let ring = &self.machines[machine].rings[channel];
            ring.gpus.iter().map(move |&gpu| Place { node, gpu })
        })
    }
}

/// Ports that no ring goes through, and why.
fn unused(machine: &Machine, paths: &Paths, within: &Within, rate: Rate, several: bool) -> Vec<String> {
    let ports = paths.ports.len();
    if within.rings.is_empty() || ports == 0 {
        return Vec::new();
    }
    if !several {
        let all = if ports == 1 { "its port is".to_owned() } else { format!("its {ports} ports are") };
        return vec![format!("{all} for several nodes: within one, nothing goes over the network")];
    }
    let mut whys = Vec::new();
    for port in 0..ports {
        if within.rings.iter().any(|ring| ring.port == Some(port)) {
            continue;
        }
        let name = machine.port_name(paths.ports[port]);
        let best = rings::best_of_port(paths, port);
        whys.push(match best {
            None => format!("{name}: no GPU reaches it"),
            Some(best) if best < rate => {
                format!("{name}: GPUs get {best} of it, and rings of that would carry less in all")
            }
            Some(_) => format!("{name}: what joins the GPUs carries no more rings"),
        });
    }
    whys
}

/// What a channel is like, for people.
fn channel(paths: &Paths, gpus: Vec<usize>, port: Option<usize>) -> Channel {
    let closing = match port {
        None => paths.between(gpus[gpus.len() - 1], gpus[0]),
        Some(_) => None,
    };
    let steps = gpus.windows(2).filter_map(|pair| paths.between(pair[0], pair[1]));
    let kind = steps.chain(closing).map(|path| path.kind).max().unwrap_or(PathKind::Loc);
    let port_kind = port.and_then(|port| {
        let into = paths.from_port(port, gpus[0])?.kind;
        let out = paths.to_port(gpus[gpus.len() - 1], port)?.kind;
        Some(into.max(out))
    });
    Channel { gpus, port, kind, port_kind }
}

/// What rings share of a machine's links.
fn ring_shares<'p>(paths: &'p Paths, rings: &[Channel]) -> Shares<'p> {
    let mut shares = Shares::of(paths);
    for Channel { gpus, port, .. } in rings {
        let (first, last) = (gpus[0], gpus[gpus.len() - 1]);
        let inside = gpus.windows(2).map(|pair| paths.between(pair[0], pair[1]));
        let ends = match port {
            None => [paths.between(last, first), None],
            Some(port) => [paths.from_port(*port, first), paths.to_port(last, *port)],
        };
        for path in inside.chain(ends).flatten() {
            shares.add(path, 1);
        }
    }
    shares
}
