//! Writes a topology as NCCL's XML. [`super::read_topology`] reads the same machines and nodes back.
//!
//! Three attributes are ours, and NCCL passes over them: `node` of a `cpu` where there are several
//! nodes, `interconnect` of a `cpu` and `bw` of an `nvlink` or `xgmi` where a description gives them.

use super::MAX_ELEMENTS;
use ringsmith_ir::topology::{Carried, Device, Kind, LinkKind, Machine, Pci, Topology};
use std::fmt::{self, Write};

/// A topology with more elements than are read back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    /// How many it would have.
    pub elements: u64,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "as XML this topology would have some {} elements, and at most {MAX_ELEMENTS} are read; write it as .topo, which names equal nodes once",
            self.elements
        )
    }
}

impl std::error::Error for TooLarge {}

/// The XML of a topology. What is assumed stands in comments.
pub fn write_topology(topology: &Topology) -> Result<String, TooLarge> {
    let size = |machine: &Machine| (2 * machine.devices.len() + 2 * machine.links.len() + 1) as u64;
    let elements: u64 = topology
        .nodes
        .iter()
        .map(|nodes| u64::from(nodes.count) * size(&topology.machines[nodes.machine]))
        .sum();
    // Line ends between elements are counted by the reader as well.
    if elements * 3 > u64::from(MAX_ELEMENTS) {
        return Err(TooLarge { elements: elements * 3 });
    }
    let dialect = topology.machines.iter().any(|m| m.links.iter().any(|link| link.kind == LinkKind::Xgmi));
    let mut text = String::new();
    for assumed in &topology.assumed {
        let _ = writeln!(text, "<!-- assumed: {} -->", assumed.replace('-', "\u{2010}"));
    }
    let _ = writeln!(text, "<system version=\"{}\">", if dialect { 2 } else { 1 });
    let several = topology.node_count() > 1;
    let mut node = 0u32;
    for nodes in &topology.nodes {
        for _ in 0..nodes.count {
            write_machine(&mut text, &topology.machines[nodes.machine], several.then_some(node));
            node += 1;
        }
    }
    text.push_str("</system>\n");
    Ok(text)
}

fn write_machine(text: &mut String, machine: &Machine, node: Option<u32>) {
    let lists_ports =
        machine.devices.values().any(|data| matches!(&data.kind, Kind::Nic(nic) if !nic.ports.is_empty()));
    let mut open: Vec<(Device, &str)> = Vec::new();
    for (device, data) in &machine.devices {
        while open.last().map(|(device, _)| *device) != data.parent {
            let Some((_, tag)) = open.pop() else { break };
            let _ = writeln!(text, "{:indent$}</{tag}>", "", indent = 2 * open.len() + 2);
        }
        let depth = 2 * open.len() + 2;
        let mut tag = String::new();
        match &data.kind {
            Kind::Cpu(cpu) => {
                if let Some(node) = node {
                    attribute(&mut tag, "node", node);
                }
                if !cpu.host.is_empty() {
                    attribute(&mut tag, "host_hash", &cpu.host);
                }
                attribute(&mut tag, "numaid", cpu.numa);
                attribute(&mut tag, "arch", &cpu.arch);
                attribute(&mut tag, "vendor", &cpu.vendor);
                attribute(&mut tag, "familyid", cpu.family);
                attribute(&mut tag, "modelid", cpu.model);
                if let Some(rate) = cpu.interconnect {
                    attribute(&mut tag, "interconnect", rate.0);
                }
                carried(&mut tag, &cpu.carried);
                let _ = writeln!(text, "{:depth$}<cpu{tag}>", "");
                open.push((device, "cpu"));
            }
            Kind::Switch if data.parent.is_none() => (),
            kind => {
                if let Some(pci) = &data.pci {
                    write_pci(text, depth, pci);
                    open.push((device, "pci"));
                }
                let inner = if data.pci.is_some() { depth + 2 } else { depth };
                match kind {
                    Kind::Gpu(gpu) if gpu.listed => write_gpu(text, inner, machine, device),
                    // A card without ports among others with some would be read as no card.
                    Kind::Nic(nic) if lists_ports || data.pci.is_none() => {
                        let _ = writeln!(text, "{:inner$}<nic>", "");
                        for port in &nic.ports {
                            let mut tag = String::new();
                            attribute(&mut tag, "name", &port.name);
                            if let Some(dev) = port.dev {
                                attribute(&mut tag, "dev", dev);
                            }
                            attribute(&mut tag, "speed", port.speed_mbit_per_s);
                            carried(&mut tag, &port.carried);
                            let _ = writeln!(text, "{:indent$}<net{tag}/>", "", indent = inner + 2);
                        }
                        let _ = writeln!(text, "{:inner$}</nic>", "");
                    }
                    Kind::Cpu(_)
                    | Kind::Bridge
                    | Kind::Gpu(_)
                    | Kind::Nic(_)
                    | Kind::Switch
                    | Kind::Other => (),
                }
            }
        }
    }
    while let Some((_, tag)) = open.pop() {
        let _ = writeln!(text, "{:indent$}</{tag}>", "", indent = 2 * open.len() + 2);
    }
}

fn write_pci(text: &mut String, depth: usize, pci: &Pci) {
    let mut tag = String::new();
    attribute(&mut tag, "busid", &pci.bus);
    attribute(&mut tag, "class", format_args!("0x{:06x}", pci.class));
    carried(&mut tag, &pci.carried);
    attribute(&mut tag, "link_speed", &pci.speed);
    attribute(&mut tag, "link_width", pci.width);
    let _ = writeln!(text, "{:depth$}<pci{tag}>", "");
}

fn write_gpu(text: &mut String, depth: usize, machine: &Machine, device: Device) {
    let Kind::Gpu(gpu) = &machine.devices[device].kind else { return };
    let mut tag = String::new();
    let numbers = [("dev", gpu.dev), ("sm", gpu.sm), ("rank", gpu.rank)];
    for (key, number) in numbers {
        if let Some(number) = number {
            attribute(&mut tag, key, number);
        }
    }
    if let Some(gcn) = &gpu.gcn {
        attribute(&mut tag, "gcn", gcn);
    }
    carried(&mut tag, &gpu.carried);
    let _ = writeln!(text, "{:depth$}<gpu{tag}>", "");
    for link in machine.links.iter().filter(|link| link.from == device || link.to == device) {
        let other = if link.from == device { link.to } else { link.from };
        let mut tag = String::new();
        let far = &machine.devices[other];
        match (link.kind, &far.kind, &far.pci) {
            (LinkKind::C2c, _, _) => (),
            (_, Kind::Cpu(_), _) => {
                attribute(&mut tag, "target", "0000:00:00.0");
                attribute(&mut tag, "tclass", "0x068001");
            }
            (_, kind, pci) => {
                let (bus, class) = pci.as_ref().map_or(("", 0), |pci| (pci.bus.as_str(), pci.class));
                let class = if matches!(kind, Kind::Switch) { 0x06_80_00 } else { class };
                attribute(&mut tag, "target", bus);
                attribute(&mut tag, "tclass", format_args!("0x{class:06x}"));
            }
        }
        attribute(&mut tag, "count", link.count);
        if let Some(each) = link.each {
            attribute(&mut tag, "bw", each.0);
        }
        let _ = writeln!(text, "{:indent$}<{}{tag}/>", "", link.kind, indent = depth + 2);
    }
    let _ = writeln!(text, "{:depth$}</gpu>", "");
}

fn carried(tag: &mut String, carried: &Carried) {
    for (key, value) in carried {
        attribute(tag, key, value);
    }
}

fn attribute(tag: &mut String, key: &str, value: impl fmt::Display) {
    let _ = write!(tag, " {key}=\"");
    for c in value.to_string().chars() {
        match c {
            '&' => tag.push_str("&amp;"),
            '<' => tag.push_str("&lt;"),
            '"' => tag.push_str("&quot;"),
            // A reader would take these for spaces.
            '\n' | '\r' | '\t' => {
                let _ = write!(tag, "&#{};", u32::from(c));
            }
            // XML has no way to write other controls.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => tag.push('?'),
            c => tag.push(c),
        }
    }
    tag.push('"');
}
