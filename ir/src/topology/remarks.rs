//! What of a topology is assumed or odd, in sentences: what people must know before they believe a
//! plan that was made for it.

use super::bandwidth::Doubt;
use super::{Kind, Machine, Topology, bandwidth};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that is assumed about a topology, one sentence each: what its reader said first, then
/// what follows from the description.
pub fn remarks(topology: &Topology) -> Vec<String> {
    let mut all = topology.assumed.clone();
    for machine in &topology.machines {
        let of = if topology.machines.len() > 1 { format!("{}: ", machine.name) } else { String::new() };
        all.extend(of_machine(machine).into_iter().map(|remark| format!("{of}{remark}")));
    }
    all
}

fn of_machine(machine: &Machine) -> Vec<String> {
    let mut remarks = Vec::new();
    let gpus = machine.gpus();
    let unlisted: Vec<String> = gpus
        .iter()
        .enumerate()
        .filter(|(_, gpu)| matches!(&machine.devices[**gpu].kind, Kind::Gpu(facts) if !facts.listed))
        .map(|(index, _)| format!("g{index}"))
        .collect();
    if !unlisted.is_empty() {
        remarks.push(format!(
            "{} known by PCIe class 0x0302 alone: NVLink and compute capability are unknown, and only PCIe is planned with",
            are(&unlisted, "GPU", "GPUs")
        ));
    }
    links(machine, &mut remarks);
    ports(machine, &mut remarks);
    let mut seen = BTreeMap::new();
    for pci in machine.devices.values().filter_map(|data| data.pci.as_ref()) {
        *seen.entry(pci.bus.as_str()).or_insert(0u32) += 1;
    }
    remarks.extend(
        seen.into_iter()
            .filter(|(_, count)| *count > 1)
            .map(|(bus, count)| format!("{count} devices have the address {bus}: both are kept")),
    );
    remarks
}

/// PCIe links whose numbers are not believed.
fn links(machine: &Machine, remarks: &mut Vec<String>) {
    let mut unknown = Vec::new();
    for (device, data) in &machine.devices {
        let Some((_, Some(doubt))) = bandwidth::above(machine, device) else { continue };
        let Some(pci) = &data.pci else { continue };
        match doubt {
            Doubt::Unknown => unknown.push(pci.bus.clone()),
            Doubt::Absurd => remarks.push(format!(
                "{}: its link says {} x{}, which cannot be what it has: {} is assumed",
                pci.bus,
                pci.speed,
                pci.width,
                bandwidth::ASSUMED_PCIE
            )),
        }
    }
    if !unknown.is_empty() {
        remarks.push(format!(
            "PCIe links without speed and width: {}; {} is assumed of each",
            some_of(&unknown),
            bandwidth::ASSUMED_PCIE
        ));
    }
}

/// Ports whose speed is not known or not believed.
fn ports(machine: &Machine, remarks: &mut Vec<String>) {
    let (mut unknown, mut rates) = (Vec::new(), BTreeSet::new());
    for port in machine.ports() {
        let (rate, assumed) = bandwidth::of_port(machine, port);
        if !assumed {
            continue;
        }
        let name = machine.port_name(port);
        let said = match &machine.devices[port.0].kind {
            Kind::Nic(nic) => nic.ports.get(port.1).map_or(0, |port| port.speed_mbit_per_s),
            Kind::Cpu(_) | Kind::Bridge | Kind::Gpu(_) | Kind::Switch | Kind::Other => 0,
        };
        if said > 0 {
            remarks.push(format!("{name}: {said} Mbit/s cannot be: {rate} is assumed, as its PCIe link has"));
        } else {
            unknown.push(name);
            rates.insert(rate);
        }
    }
    if !unknown.is_empty() {
        let rates: Vec<String> = rates.iter().map(ToString::to_string).collect();
        remarks.push(format!(
            "network ports without a speed: {}; as much as the card's PCIe link has is assumed ({})",
            some_of(&unknown),
            rates.join(", ")
        ));
    }
}

/// The first few of many names.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0..=SHOWN => names.join(", "),
        all => format!("{} and {} more", names[..SHOWN].join(", "), all - SHOWN),
    }
}

fn are(names: &[String], one: &str, several: &str) -> String {
    if names.len() == 1 {
        format!("{one} {} is", names[0])
    } else {
        format!("{several} {} are", some_of(names))
    }
}
