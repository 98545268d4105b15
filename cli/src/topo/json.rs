//! A topology as programs read it: one object.

use ringsmith_compiler::channels::{Channel, Channels, Within};
use ringsmith_compiler::import::Graphs;
use ringsmith_ir::topology::paths::{Path, PathKind, Paths};
use ringsmith_ir::topology::{Kind, Machine, Rate, Topology, bandwidth, remarks};
use serde::Serialize;

/// All of it.
#[derive(Serialize)]
pub(super) struct Whole {
    topology: String,
    nodes: u32,
    gpus: u64,
    machines: Vec<OneMachine>,
    rings: usize,
    ring_gbs: f64,
    trees: usize,
    tree_gbs: f64,
    assumed: Vec<String>,
}

#[derive(Serialize)]
struct OneMachine {
    name: String,
    nodes: u32,
    hosts: usize,
    cpus: usize,
    gpus: Vec<OneGpu>,
    ports: Vec<OnePort>,
    links: Vec<OneLink>,
    paths: Vec<OnePath>,
    rings: Vec<OneChannel>,
    trees: Vec<OneChannel>,
    rails: Vec<OneRail>,
    unused: Vec<String>,
}

#[derive(Serialize)]
struct OneGpu {
    name: String,
    bus: Option<String>,
    sm: Option<u32>,
    gcn: Option<String>,
    listed: bool,
}

#[derive(Serialize)]
struct OnePort {
    name: String,
    bus: Option<String>,
    bandwidth_gbs: f64,
    assumed: bool,
}

#[derive(Serialize)]
struct OneLink {
    kind: &'static str,
    from: String,
    to: String,
    count: u32,
    bandwidth_gbs: f64,
}

#[derive(Serialize)]
struct OnePath {
    from: String,
    to: String,
    kind: &'static str,
    bandwidth_gbs: f64,
    latency_us: f64,
    hops: u32,
    through: Option<String>,
}

#[derive(Serialize)]
struct OneChannel {
    gpus: Vec<String>,
    port: Option<String>,
    kind: &'static str,
    port_kind: Option<&'static str>,
}

#[derive(Serialize)]
struct OneRail {
    gpu: String,
    ports: Vec<String>,
    kind: &'static str,
    bandwidth_gbs: f64,
}

fn gbs(rate: Rate) -> f64 {
    rate.0 as f64 / 1000.0
}

/// The object of a topology.
pub(super) fn of(topology: &Topology, channels: &Channels) -> Whole {
    let machine = |(index, machine): (usize, &Machine)| {
        let of_it = topology.nodes.iter().filter(|nodes| nodes.machine == index);
        of_machine(machine, of_it.map(|nodes| nodes.count).sum(), &channels.machines[index])
    };
    Whole {
        topology: topology.name.clone(),
        nodes: topology.node_count(),
        gpus: topology.gpu_count(),
        machines: topology.machines.iter().enumerate().map(machine).collect(),
        rings: channels.ring_count(),
        ring_gbs: gbs(channels.ring_rate),
        trees: channels.tree_count(),
        tree_gbs: gbs(channels.tree_rate),
        assumed: remarks(topology),
    }
}

fn of_machine(machine: &Machine, nodes: u32, within: &Within) -> OneMachine {
    let paths = Paths::of(machine);
    let bus = |device| machine.devices[device].pci.as_ref().map(|pci| pci.bus.clone());
    let name = machine.names();
    let gpus = paths.gpus.iter().map(|&gpu| {
        let facts = match &machine.devices[gpu].kind {
            Kind::Gpu(facts) => facts.clone(),
            Kind::Cpu(_) | Kind::Bridge | Kind::Nic(_) | Kind::Switch | Kind::Other => Default::default(),
        };
        OneGpu { name: name[&gpu].clone(), bus: bus(gpu), sm: facts.sm, gcn: facts.gcn, listed: facts.listed }
    });
    let ports = paths.ports.iter().map(|&port| {
        let (rate, assumed) = bandwidth::of_port(machine, port);
        OnePort { name: machine.port_name(port), bus: bus(port.0), bandwidth_gbs: gbs(rate), assumed }
    });
    let links = machine.links.iter().map(|link| OneLink {
        kind: link.kind.name(),
        from: name[&link.from].clone(),
        to: name[&link.to].clone(),
        count: link.count,
        bandwidth_gbs: gbs(bandwidth::of_link(machine, link)),
    });
    let rails = within.rails.iter().map(|rail| OneRail {
        gpu: format!("g{}", rail.gpu),
        ports: rail.ports.iter().map(|port| machine.port_name(paths.ports[*port])).collect(),
        kind: rail.kind.name(),
        bandwidth_gbs: gbs(rail.rate),
    });
    OneMachine {
        name: machine.name.clone(),
        nodes,
        hosts: machine.hosts().len(),
        cpus: machine.cpus().len(),
        gpus: gpus.collect(),
        ports: ports.collect(),
        links: links.collect(),
        paths: all_paths(machine, &paths),
        rings: within.rings.iter().map(|ring| of_channel(machine, ring)).collect(),
        trees: within.trees.iter().map(|tree| of_channel(machine, tree)).collect(),
        rails: rails.collect(),
        unused: within.unused.clone(),
    }
}

fn of_channel(machine: &Machine, channel: &Channel) -> OneChannel {
    OneChannel {
        gpus: channel.gpus.iter().map(|gpu| format!("g{gpu}")).collect(),
        port: channel.port.map(|port| machine.port_name(machine.ports()[port])),
        kind: channel.kind.name(),
        port_kind: channel.port_kind.map(PathKind::name),
    }
}

fn all_paths(machine: &Machine, paths: &Paths) -> Vec<OnePath> {
    let mut all = Vec::new();
    let mut push = |from: usize, to: String, path: Option<&Path>| {
        let Some(path) = path.filter(|path| path.kind != PathKind::Loc) else { return };
        all.push(OnePath {
            from: format!("g{from}"),
            to,
            kind: path.kind.name(),
            bandwidth_gbs: gbs(path.rate),
            latency_us: f64::from(path.latency_ns) / 1000.0,
            hops: path.hops,
            through: path.through.map(|gpu| format!("g{gpu}")),
        });
    };
    for from in 0..paths.gpus.len() {
        for to in 0..paths.gpus.len() {
            push(from, format!("g{to}"), paths.between(from, to));
        }
        for (port, &place) in paths.ports.iter().enumerate() {
            push(from, machine.port_name(place), paths.to_port(from, port));
        }
    }
    all
}

/// The object of a graph file.
#[derive(Serialize)]
pub(super) struct AllGraphs {
    graphs: Vec<OneGraph>,
}

#[derive(Serialize)]
struct OneGraph {
    id: u32,
    pattern: u32,
    shape: &'static str,
    channels: Vec<Vec<String>>,
}

pub(super) fn of_graphs(graphs: &Graphs) -> AllGraphs {
    let graph = |graph: &ringsmith_compiler::import::Graph| OneGraph {
        id: graph.id,
        pattern: graph.pattern,
        shape: graph.shape(),
        channels: graph
            .channels
            .iter()
            .map(|stops| stops.iter().map(ToString::to_string).collect())
            .collect(),
    };
    AllGraphs { graphs: graphs.graphs.iter().map(graph).collect() }
}
