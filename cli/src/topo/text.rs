//! A topology as people read it: the tree of each machine, a table of paths, what is assumed.

use ringsmith_compiler::channels::Channels;
use ringsmith_compiler::import::Graphs;
use ringsmith_ir::topology::paths::{Path, PathKind, Paths};
use ringsmith_ir::topology::{Device, Kind, Machine, Topology, bandwidth, remarks};
use ringsmith_runtime::shown::escaped;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The most GPUs of which every pair is listed. Ours: a line of a terminal.
const TABLE_GPUS: usize = 16;

/// The most devices that are listed one by one. Ours: two screens.
const TREE_DEVICES: usize = 96;

/// The text of a topology.
pub(super) fn of(topology: &Topology, channels: &Channels) -> String {
    let mut text = String::new();
    let nodes = topology.node_count();
    let gpus = topology.gpu_count();
    let _ = writeln!(
        text,
        "{}: {}, {}",
        escaped(&topology.name),
        counted(nodes.into(), "node"),
        counted(gpus, "GPU")
    );
    for (index, machine) in topology.machines.iter().enumerate() {
        let of_it: u32 =
            topology.nodes.iter().filter(|nodes| nodes.machine == index).map(|nodes| nodes.count).sum();
        let _ = write!(text, "\nmachine m{index}");
        if machine.name != topology.name {
            let _ = write!(text, " {}", escaped(&machine.name));
        }
        let hosts = machine.hosts().len();
        let _ = write!(text, ", {}", counted(of_it.into(), "node"));
        if hosts > 1 {
            let _ = write!(text, " of {hosts} hosts");
        }
        text.push('\n');
        tree(&mut text, machine);
        links(&mut text, machine);
        paths(&mut text, machine);
    }
    super::channels::of(&mut text, topology, channels);
    let remarks = remarks(topology);
    if !remarks.is_empty() {
        text.push_str("\nassumed\n");
        for remark in remarks {
            let _ = writeln!(text, "  {}", escaped(&remark));
        }
    }
    text
}

/// `1 node`, `2 nodes`.
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn tree(text: &mut String, machine: &Machine) {
    if machine.devices.len() > TREE_DEVICES {
        let (cpus, gpus, ports) = (machine.cpus().len(), machine.gpus().len(), machine.ports().len());
        let _ = writeln!(
            text,
            "  {}, {}, {}; `--dump FILE.topo` lists every device",
            counted(cpus as u64, "CPU"),
            counted(gpus as u64, "GPU"),
            counted(ports as u64, "network port")
        );
        return;
    }
    let names = machine.names();
    let mut depth: BTreeMap<Device, usize> = BTreeMap::new();
    for (device, data) in &machine.devices {
        let at = data.parent.map_or(1, |parent| depth[&parent] + 1);
        depth.insert(device, at);
        let mut line = match &data.kind {
            Kind::Cpu(cpu) => {
                let mut line = format!("{} NUMA node {}", names[&device], cpu.numa);
                if !cpu.vendor.is_empty() {
                    let _ = write!(
                        line,
                        ", {} {} family {} model {}",
                        cpu.arch, cpu.vendor, cpu.family, cpu.model
                    );
                }
                if !cpu.host.is_empty() {
                    let _ = write!(line, ", host {}", cpu.host);
                }
                line
            }
            Kind::Gpu(gpu) => {
                let mut line = names[&device].clone();
                match (&gpu.gcn, gpu.sm) {
                    (Some(gcn), _) => {
                        let _ = write!(line, " GPU gfx{}", gcn.trim_start_matches("gfx"));
                    }
                    (None, Some(sm)) => {
                        let _ = write!(line, " GPU sm_{sm}");
                    }
                    (None, None) => line.push_str(" GPU"),
                }
                line
            }
            Kind::Nic(_) => "network card".to_owned(),
            Kind::Bridge => "bridge".to_owned(),
            Kind::Switch => format!("{} NVLink switch", names[&device]),
            Kind::Other => "device".to_owned(),
        };
        if let Some(pci) = &data.pci {
            let _ = write!(line, " at {}", pci.bus);
        }
        if data.pci.is_some()
            && let Some((rate, doubt)) = bandwidth::above(machine, device)
        {
            let _ = write!(line, ", PCIe {rate}{}", if doubt.is_some() { " (assumed)" } else { "" });
        }
        let _ = writeln!(text, "{}{}", "  ".repeat(at), escaped(&line));
        if let Kind::Nic(_) = data.kind {
            for port in machine.ports().into_iter().filter(|(nic, _)| *nic == device) {
                let (rate, assumed) = bandwidth::of_port(machine, port);
                let name = machine.port_name(port);
                let assumed = if assumed { " (assumed)" } else { "" };
                let _ = writeln!(text, "{}port {}, {rate}{assumed}", "  ".repeat(at + 1), escaped(&name));
            }
        }
    }
}

/// Links besides PCIe, those of one rate together.
fn links(text: &mut String, machine: &Machine) {
    if machine.links.is_empty() {
        return;
    }
    let names = machine.names();
    let mut alike: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for link in &machine.links {
        let pair = format!("{}-{}", names[&link.from], names[&link.to]);
        let key = (link.kind, std::cmp::Reverse(link.count), bandwidth::of_link(machine, link));
        alike.entry(key).or_default().push(pair);
    }
    for ((kind, count, rate), pairs) in alike {
        const SHOWN: usize = 16;
        let mut list = pairs[..pairs.len().min(SHOWN)].join(" ");
        if pairs.len() > SHOWN {
            let _ = write!(list, " and {} more", pairs.len() - SHOWN);
        }
        let _ = writeln!(text, "  {kind} x{}, {rate}: {list}", count.0);
    }
}

/// What every pair gets, or how many pairs get what.
fn paths(text: &mut String, machine: &Machine) {
    let paths = Paths::of(machine);
    let gpus = paths.gpus.len();
    let ports: Vec<String> = paths.ports.iter().map(|&port| machine.port_name(port)).collect();
    if gpus == 0 {
        return;
    }
    if gpus > TABLE_GPUS || ports.len() > TABLE_GPUS {
        summary(text, &paths);
        return;
    }
    let cell = |path: Option<&Path>| match path {
        None => "-".to_owned(),
        Some(path) if path.kind == PathKind::Loc => "LOC".to_owned(),
        Some(path) => {
            let rate = path.rate.to_string();
            format!("{} {}", path.kind, rate.trim_end_matches(" GB/s"))
        }
    };
    let mut rows = vec![
        std::iter::once("GB/s".to_owned())
            .chain((0..gpus).map(|g| format!("g{g}")))
            .chain(ports.iter().map(|name| escaped(name).into_owned()))
            .collect::<Vec<_>>(),
    ];
    for from in 0..gpus {
        let near = (0..gpus).map(|to| cell(paths.between(from, to)));
        let far = (0..ports.len()).map(|port| cell(paths.to_port(from, port)));
        rows.push(std::iter::once(format!("g{from}")).chain(near).chain(far).collect());
    }
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))
        .collect();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

fn summary(text: &mut String, paths: &Paths) {
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    let mut count = |what: &'static str, path: Option<&Path>| {
        let key = path.map(|path| (path.kind, path.rate));
        *kinds.entry((what, key)).or_default() += 1;
    };
    for from in 0..paths.gpus.len() {
        for to in (0..paths.gpus.len()).filter(|to| *to != from) {
            count("between GPUs", paths.between(from, to));
        }
        for port in 0..paths.ports.len() {
            count("from GPUs to ports", paths.to_port(from, port));
        }
    }
    for ((what, kind), pairs) in kinds {
        let _ = match kind {
            Some((kind, rate)) => writeln!(text, "  {pairs} paths {what}: {kind}, {rate}"),
            None => writeln!(text, "  {pairs} pairs {what}: no path"),
        };
    }
}

/// The text of a graph file.
pub(super) fn of_graphs(graphs: &Graphs) -> String {
    let mut text = String::from("rings and trees for NCCL (NCCL_GRAPH_FILE); no machine is described\n");
    for graph in &graphs.graphs {
        let _ = writeln!(
            text,
            "graph {}: {}, {} of {} GB/s ({}) within a node, {} GB/s ({}) between nodes",
            graph.id,
            graph.shape(),
            counted(graph.channels.len() as u64, "channel"),
            escaped(&graph.speed_intra),
            escaped(&graph.type_intra),
            escaped(&graph.speed_inter),
            escaped(&graph.type_inter)
        );
        for (index, channel) in graph.channels.iter().enumerate() {
            let stops: Vec<String> = channel.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "  {index}: {}", stops.join(" "));
        }
    }
    text
}
