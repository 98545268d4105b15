//! Ranks on the GPUs of a topology: links by the paths between them, and each GPU's memory.
//!
//! Rates and latencies are those of [`ringsmith_ir::topology`], which names their sources. Between nodes a
//! message leaves by the port that serves its GPU (`channels`' rails), and enters by the receiver's.

use super::network::{Part, Resource, Take, Unit};
use crate::channels::{Channels, Rail};
use crate::plan::{Costs, LinkClass, Machine, Measurements};
use ringsmith_ir::entity::LaneName;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::topology::paths::{self, PathKind, Paths};
use ringsmith_ir::topology::{Rate, Topology, bandwidth};
use std::fmt;

/// GPUs by rank, and how they are joined.
#[derive(Clone, Debug)]
pub(super) struct Gpus {
    kinds: Vec<Kind>,
    /// Of each node: its kind, and the number of its first resource.
    nodes: Vec<(usize, usize)>,
    ranks: Vec<Seat>,
}

/// A machine that nodes are of.
#[derive(Clone, Debug)]
struct Kind {
    paths: Paths,
    rails: Vec<Rail>,
}

/// Where a rank sits.
#[derive(Clone, Copy, Debug)]
struct Seat {
    node: usize,
    gpu: usize,
    /// The resource that is its memory.
    memory: usize,
}

/// Two GPUs that no path joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// The rank that sends.
    pub from: u32,
    /// The rank that receives.
    pub to: u32,
    /// Whether they sit on different nodes.
    pub over_network: bool,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.over_network {
            "they are on different nodes, and no network port serves both; describe the ports, or simulate one node"
        } else {
            "the topology joins their GPUs neither inside the node nor by network ports; describe what joins them"
        };
        write!(f, "rank {} cannot send to rank {}: {why}", self.from, self.to)
    }
}

impl std::error::Error for Unreachable {}

impl Gpus {
    pub(super) fn of(topology: &Topology, ranks: u32) -> Result<(Self, Vec<Resource>), Unreachable> {
        let channels = Channels::of(topology);
        let kinds: Vec<Kind> = topology
            .machines
            .iter()
            .zip(channels.machines)
            .map(|(machine, within)| Kind { paths: Paths::of(machine), rails: within.rails })
            .collect();
        let several = topology.node_count() > 1;
        let bytes =
            |name, Rate(mb_per_s)| Resource { name, unit: Unit::Bytes, per_ns: mb_per_s as f64 / 1e3 };
        let (mut resources, mut nodes, mut seats) = (Vec::new(), Vec::new(), Vec::new());
        for machine in topology.nodes.iter().flat_map(|row| (0..row.count).map(|_| row.machine)) {
            if seats.len() == ranks as usize {
                break;
            }
            let (node, paths) = (nodes.len(), &kinds[machine].paths);
            let prefix = if several { format!("n{node} ") } else { String::new() };
            nodes.push((machine, resources.len()));
            let names = paths.names(&topology.machines[machine]);
            let links = names.into_iter().zip(&paths.capacities);
            // What a topology says nothing of carries something, so that the run ends.
            resources
                .extend(links.map(|(name, rate)| bytes(format!("{prefix}{name}"), (*rate).max(Rate(1)))));
            for gpu in 0..paths.gpus.len() {
                if seats.len() < ranks as usize {
                    seats.push(Seat { node, gpu, memory: resources.len() });
                    resources.push(bytes(format!("{prefix}g{gpu} memory"), bandwidth::LOCAL));
                }
            }
        }
        let gpus = Self { kinds, nodes, ranks: seats };
        gpus.check()?;
        Ok((gpus, resources))
    }

    pub(super) fn ranks(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Looks for ranks that cannot reach each other: all pairs of a node, and who has no port.
    fn check(&self) -> Result<(), Unreachable> {
        let unreachable = |from: usize, to: usize, over_network| {
            Err(Unreachable { from: from as u32, to: to as u32, over_network })
        };
        for (from, seat) in self.ranks.iter().enumerate() {
            let has_port = |seat: &Seat| self.port(seat, 0).is_some();
            if let Some(to) = self.ranks.iter().position(|other| other.node != seat.node)
                && !has_port(seat)
            {
                return unreachable(from, to, true);
            }
            let near = self.ranks.iter().enumerate().filter(|(_, other)| other.node == seat.node);
            for (to, other) in near {
                let joined = self.inside(seat, other).is_some() || (has_port(seat) && has_port(other));
                if !joined {
                    return unreachable(from, to, false);
                }
            }
        }
        Ok(())
    }

    fn inside(&self, from: &Seat, to: &Seat) -> Option<&paths::Path> {
        let (kind, _) = self.nodes[from.node];
        (from.node == to.node).then(|| self.kinds[kind].paths.between(from.gpu, to.gpu)).flatten()
    }

    /// The port that serves a GPU on a channel.
    fn port(&self, seat: &Seat, channel: u32) -> Option<usize> {
        let rails = &self.kinds[self.nodes[seat.node].0].rails;
        let rail = rails.iter().find(|rail| rail.gpu == seat.gpu)?;
        rail.ports.get(channel as usize % rail.ports.len().max(1)).copied()
    }

    pub(super) fn latency_ns(&self, from: u32, to: u32) -> f64 {
        let (from, to) = (&self.ranks[from as usize], &self.ranks[to as usize]);
        let inside = self.inside(from, to).map(|path| path.latency_ns);
        f64::from(inside.unwrap_or(PathKind::Net.latency_ns()))
    }

    /// What the planner takes these GPUs for: ranks that send on all lanes together what the slowest path inside a
    /// node carries, and between nodes what a port does.
    pub(super) fn machine(&self, base: &Machine) -> Machine {
        let local = f64::from(bandwidth::LOCAL.0 as u32) * 1e6;
        let inside = self.kinds.iter().flat_map(|Kind { paths, .. }| {
            let gpus = 0..paths.gpus.len();
            gpus.clone().flat_map(move |from| gpus.clone().filter_map(move |to| paths.between(from, to)))
        });
        let slowest = inside.filter(|path| path.kind != PathKind::Loc).min_by_key(|path| path.rate);
        let class = |latency_ns: u32, Rate(mb_per_s)| LinkClass {
            latency_ns: f64::from(latency_ns.max(1)),
            // The latency holds what both ends do for a message.
            message_ns: 1.0,
            bytes_per_s: (mb_per_s.max(1) as f64 * 1e6).min(local),
        };
        let near = slowest.map_or(class(0, bandwidth::LOCAL), |path| class(path.latency_ns, path.rate));
        let rails = self.kinds.iter().flat_map(|kind| &kind.rails).map(|rail| rail.rate).min();
        let rail = rails.unwrap_or(Rate(1));
        let most = self.kinds.iter().map(|kind| kind.paths.gpus.len()).max().unwrap_or(1);
        let costs = Costs {
            shm: near,
            zone: LinkClass { bytes_per_s: near.bytes_per_s / Protocol::Ll.wire_bytes_per_byte(), ..near },
            socket: class(PathKind::Net.latency_ns(), rail),
            reduce_bytes_per_s: local,
            memory_bytes_per_s: local * most as f64,
            network_bytes_per_s: rail.0.max(1) as f64 * 1e6 * most as f64,
            // What was measured on CPUs says nothing here.
            cold: 1.0,
            ..base.costs
        };
        Machine {
            costs,
            measured: Measurements::default(),
            shared_memory: true,
            cores_per_host: u32::MAX,
            threads_per_rank: 1,
            ..base.clone()
        }
    }

    /// What every byte takes of the links on the way.
    fn way(&self, from: u32, to: u32, channel: u32) -> Vec<Take> {
        let (from, to) = (&self.ranks[from as usize], &self.ranks[to as usize]);
        let along = |node: usize, path: &paths::Path| {
            let (first, per_byte) = (self.nodes[node].1, path.cost_percent as f64 / 100.0);
            let take =
                |used: &paths::Resource| Take { resource: first + used.0 as usize, fixed: 0.0, per_byte };
            path.uses.iter().map(take).collect::<Vec<_>>()
        };
        if let Some(path) = self.inside(from, to) {
            return along(from.node, path);
        }
        let paths = |seat: &Seat| &self.kinds[self.nodes[seat.node].0].paths;
        let port = |seat: &Seat| self.port(seat, channel).expect("what has no port was refused");
        let out = paths(from).to_port(from.gpu, port(from)).map(|path| along(from.node, path));
        let into = paths(to).from_port(port(to), to.gpu).map(|path| along(to.node, path));
        out.into_iter().chain(into).flatten().collect()
    }

    /// What one part of an op takes.
    pub(super) fn takes(&self, protocol: Protocol, lane: LaneName, part: Part) -> Vec<Take> {
        let own = lane.rank.as_u32();
        let local = || vec![Take { resource: self.ranks[own as usize].memory, fixed: 0.0, per_byte: 1.0 }];
        let stretched = |mut way: Vec<Take>| {
            way.iter_mut().for_each(|take| take.per_byte *= protocol.wire_bytes_per_byte());
            way
        };
        match part {
            // The latency of a path holds what both ends do for a message.
            Part::Message(_) => Vec::new(),
            Part::Send(to) => stretched(self.way(own, to, lane.index)),
            Part::Read(from) => self.way(from, own, lane.index),
            Part::Receive(_) | Part::Store | Part::Combine => local(),
        }
    }
}
