//! What this host is made of, as Linux tells it below /sys and /proc: CPUs, the tree of PCIe, GPUs, and
//! network ports.
//!
//! Where a description of a machine comes from if nobody gives one. It never fails: a container may see
//! nothing and a virtual machine nonsense, and planning goes on with what is assumed, which the topology
//! says. What values mean, and which of them are not believed, is decided where every description goes
//! through ([`ringsmith_ir::topology`]); nothing here opens a device. What only a driver knows, NVLink and compute
//! capability, is an argument. The tree follows
//! NCCL's reading of sysfs (`src/graph/xml.cc`): root ports and the lower ports of switches are not
//! devices of their own.

mod pcie;
mod sysfs;

use crate::device::nvml::{self, Listed};
use pcie::{Found, Place};
use ringsmith_ir::diagnostic::Span;
use ringsmith_ir::topology::{
    Builder, Built, Cpu, Device, Kind, LinkKind, Nic, Port, Said, Target, Topology,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use sysfs::Tree;

/// Where to look, and on what.
#[derive(Clone, Debug)]
pub struct Host {
    /// The folder that holds `sys` and `proc`: `/`, or a made tree in tests.
    pub root: PathBuf,
    /// The architecture, as Rust calls it.
    pub arch: String,
    /// The GPUs that the driver lists; a GPU that it does not list is known by its class alone.
    pub listed: Vec<Listed>,
}

impl Host {
    /// This one, with the GPUs that NVIDIA's driver lists.
    pub fn here() -> Self {
        Self { root: PathBuf::from("/"), arch: std::env::consts::ARCH.to_owned(), listed: nvml::gpus() }
    }
}

/// Where everything is found that has no place in a text.
const NOWHERE: Span = Span { start: 0, end: 0 };

/// The host as a cluster of one node.
pub fn topology(host: &Host) -> Topology {
    let tree = Tree::of(&host.root);
    let name = tree.text("proc/sys/kernel/hostname").unwrap_or_else(|| "this host".to_owned());
    let built = build(&tree, host, &name).unwrap_or_else(|why| {
        let mut builder = Builder::new(&name);
        builder.add(None, Kind::Cpu(Cpu { numa: 0, ..cpu(&tree, host) }), None, NOWHERE);
        builder.remark(format!("what sysfs tells is no machine ({why}): one CPU without GPUs is assumed"));
        builder.finish(NOWHERE).expect("one CPU is a machine")
    });
    let mut topology = Topology::of(built.machine);
    topology.assumed = built.remarks;
    topology
}

fn build(tree: &Tree, host: &Host, name: &str) -> Result<Built, String> {
    let mut builder = Builder::new(name);
    let found = pcie::scan(tree);
    for remark in &found.remarks {
        builder.remark(remark);
    }
    let mut numas = nodes(tree);
    if numas.is_empty() {
        builder.remark("the host does not tell its NUMA nodes: one is assumed");
        numas.push(0);
    }
    // Devices of no node, or of one that is not there, hang below the first.
    let home = |place: &Place| if numas.contains(&place.numa) { place.numa } else { numas[0] };
    let astray: BTreeSet<&str> = found
        .places
        .iter()
        .filter(|(_, place)| place.is_leaf() && numas.len() > 1 && !numas.contains(&place.numa))
        .map(|(_, place)| place.pci.bus.as_str())
        .collect();
    if !astray.is_empty() {
        let list: Vec<&str> = astray.iter().copied().take(4).collect();
        let more = if astray.len() > 4 { ", …" } else { "" };
        builder.remark(format!(
            "{}{more}: the host does not tell their NUMA node: node {} is assumed",
            list.join(", "),
            numas[0]
        ));
    }
    let facts = cpu(tree, host);
    let mut gpus = 0;
    let mut at_bus: BTreeMap<String, Device> = BTreeMap::new();
    for &numa in &numas {
        let map = tree.text(&format!("sys/devices/system/node/node{numa}/cpumap"));
        let carried = map.into_iter().map(|map| ("affinity".to_owned(), map)).collect();
        let above = builder.add(None, Kind::Cpu(Cpu { numa, carried, ..facts.clone() }), None, NOWHERE);
        let Some(above) = above else { break };
        below(&mut builder, above, &found, |place| home(place) == numa, &mut gpus);
        at_bus.extend(builder.machine().gpus().into_iter().filter_map(|gpu| {
            Some((builder.machine().devices[gpu].pci.as_ref()?.bus.to_ascii_lowercase(), gpu))
        }));
        if numa == numas[0] {
            lone_port(tree, &mut builder, above, &found);
        }
    }
    for gpu in &host.listed {
        list(&mut builder, gpu, &at_bus);
    }
    if builder.machine().gpus().is_empty() {
        builder.remark("no GPU was found on PCIe: a plan for GPUs would be without their links");
    }
    builder
        .finish(NOWHERE)
        .map_err(|wrong| wrong.first().map_or_else(String::new, |first| first.message.clone()))
}

/// Adds the devices of a NUMA node, each right after what it hangs below.
fn below(
    builder: &mut Builder,
    cpu: Device,
    found: &Found,
    is_here: impl Fn(&Place) -> bool,
    gpus: &mut u32,
) {
    let mut known: BTreeMap<&[String], Device> = BTreeMap::new();
    for (path, place) in found.places.iter().filter(|(_, place)| is_here(place)) {
        let above = path[..path.len() - 1].as_ref();
        let parent = known.get(above).copied().unwrap_or(cpu);
        let mut kind = place.kind.clone();
        if let Kind::Gpu(gpu) = &mut kind {
            gpu.dev = Some(*gpus);
            *gpus += 1;
        }
        if let Some(device) = builder.add(Some(parent), kind, Some(place.pci.clone()), NOWHERE) {
            known.insert(path.as_slice(), device);
        }
    }
}

/// Adds what the driver tells of a GPU: its architecture, and its NVLinks, those to one place together.
fn list(builder: &mut Builder, listed: &Listed, at_bus: &BTreeMap<String, Device>) {
    let Some(&from) = at_bus.get(&listed.bus) else {
        builder
            .remark(format!("{}: the driver lists this GPU, and sysfs does not: it is left out", listed.bus));
        return;
    };
    if let Kind::Gpu(gpu) = &mut builder.device_mut(from).kind {
        (gpu.sm, gpu.listed) = (Some(listed.sm), true);
    }
    let mut counts: BTreeMap<(&str, bool), u32> = BTreeMap::new();
    for link in &listed.links {
        *counts.entry((&link.bus, link.is_switch)).or_default() += 1;
    }
    for ((bus, is_switch), count) in counts {
        // The class of an NVSwitch, or of a GPU.
        let class = if is_switch { 0x06_80_00 } else { 0x03_02_00 };
        let to = Target::Bus { bus: bus.to_owned(), class };
        builder.link(Said {
            kind: LinkKind::Nvlink,
            from,
            to,
            count,
            each: None,
            both: false,
            span: NOWHERE,
        });
    }
}

/// Where no network card is on PCIe, the first interface that looks like a way out.
fn lone_port(tree: &Tree, builder: &mut Builder, cpu: Device, found: &Found) {
    if found.places.values().any(|place| matches!(place.kind, Kind::Nic(_))) {
        return;
    }
    const INNER: [&str; 8] = ["lo", "docker", "br-", "virbr", "veth", "tun", "tap", "ifb"];
    let names = tree.names("sys/class/net");
    let usable = names.iter().filter(|name| !INNER.iter().any(|inner| name.starts_with(inner)));
    let up = |name: &&String| {
        let state = tree.text(&format!("sys/class/net/{name}/operstate"));
        state.as_deref() != Some("down")
    };
    match usable.into_iter().find(up) {
        Some(name) => {
            let speed_mbit_per_s = pcie::speed_of(tree, &format!("sys/class/net/{name}"));
            let port = Port { name: name.clone(), dev: Some(0), speed_mbit_per_s, ..Port::default() };
            builder.remark(format!("{name} is no card on PCIe: it is taken to be beside the first CPU"));
            builder.add(Some(cpu), Kind::Nic(Nic { ports: vec![port] }), None, NOWHERE);
        }
        None => builder.remark("no network port was found: the host is planned by itself"),
    }
}

/// The numbers of the NUMA nodes.
fn nodes(tree: &Tree) -> Vec<i32> {
    let names = tree.names("sys/devices/system/node");
    let mut nodes: Vec<i32> = names
        .iter()
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .filter(|node| *node >= 0)
        // A node of memory alone has no cores and no PCIe.
        .filter(|node| tree.text(&format!("sys/devices/system/node/node{node}/cpulist")).is_some())
        .collect();
    nodes.sort_unstable();
    nodes
}

/// What the processors are, by the first of them.
fn cpu(tree: &Tree, host: &Host) -> Cpu {
    let arch = match host.arch.as_str() {
        "aarch64" => "arm64",
        "powerpc64" => "ppc64",
        other => other,
    };
    let about = tree.text("proc/cpuinfo").unwrap_or_default();
    let of = |key: &str| {
        let line =
            about.lines().find(|line| line.split(':').next().is_some_and(|word| word.trim() == key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let number = |key| of(key).and_then(|text: String| text.parse().ok()).unwrap_or(0);
    let vendor = of("vendor_id").unwrap_or_else(|| if arch == "arm64" { "ARM" } else { "" }.to_owned());
    Cpu {
        arch: arch.to_owned(),
        vendor,
        family: number("cpu family"),
        model: number("model"),
        ..Cpu::default()
    }
}
