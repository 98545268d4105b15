//! Prints a topology as text. [`super::parse`] is the inverse.

use super::{Carried, Cpu, Device, Kind, Machine, Pci, Port, Rate, Topology};
use std::fmt::Write;

/// Attributes that a line has of its own; others are carried.
pub(super) const CPU_KEYS: [&str; 7] = ["host", "numa", "arch", "vendor", "family", "model", "interconnect"];
pub(super) const PCI_KEYS: [&str; 4] = ["bus", "class", "speed", "width"];
pub(super) const GPU_KEYS: [&str; 9] =
    ["bus", "class", "speed", "width", "dev", "sm", "gcn", "rank", "listed"];
pub(super) const PORT_KEYS: [&str; 2] = ["dev", "speed"];
pub(super) const LINK_KEYS: [&str; 2] = ["count", "each"];
/// Attributes that files are known to have, and that are carried under their own names.
pub(super) const CPU_KNOWN: [&str; 1] = ["affinity"];
pub(super) const PCI_KNOWN: [&str; 4] = ["vendor", "device", "subsystem_vendor", "subsystem_device"];
pub(super) const GPU_KNOWN: [&str; 3] = ["gdr", "arch", "mlopart"];
pub(super) const PORT_KNOWN: [&str; 12] =
    ["port", "latency", "guid", "maxconn", "gdr", "coll", "rail", "plane", "net", "gin", "rma", "keep"];

/// The text of a topology.
pub fn print(topology: &Topology) -> String {
    let mut text = format!("topology {} {{\n", value(&topology.name));
    for assumed in &topology.assumed {
        line(&mut text, 1, &format!("assumed {}", quoted(assumed)));
    }
    for (index, machine) in topology.machines.iter().enumerate() {
        line(&mut text, 1, &format!("machine m{index} {} {{", value(&machine.name)));
        print_machine(&mut text, machine);
        line(&mut text, 1, "}");
    }
    for nodes in &topology.nodes {
        line(&mut text, 1, &format!("nodes {} m{}", nodes.count, nodes.machine));
    }
    text.push_str("}\n");
    text
}

fn line(text: &mut String, depth: usize, words: &str) {
    text.extend(std::iter::repeat_n("  ", depth));
    text.push_str(words);
    text.push('\n');
}

fn print_machine(text: &mut String, machine: &Machine) {
    let names = machine.names();
    // Blocks that are open, innermost last.
    let mut open: Vec<Device> = Vec::new();
    let has_children: Vec<bool> = {
        let mut has = vec![false; machine.devices.len()];
        for parent in machine.devices.values().filter_map(|data| data.parent) {
            has[parent.0 as usize] = true;
        }
        has
    };
    for (device, data) in &machine.devices {
        while open.last() != data.parent.as_ref() && open.pop().is_some() {
            line(text, open.len() + 2, "}");
        }
        let depth = open.len() + 2;
        let mut words = String::new();
        if let Some(name) = names.get(&device) {
            words = format!(" {name}");
        }
        let pci = data.pci.as_ref();
        let (word, ports): (&str, &[Port]) = match &data.kind {
            Kind::Cpu(cpu) => {
                print_cpu(&mut words, cpu);
                ("cpu", &[])
            }
            Kind::Gpu(gpu) => {
                print_pci(&mut words, pci);
                number(&mut words, "dev", gpu.dev);
                number(&mut words, "sm", gpu.sm);
                if let Some(gcn) = &gpu.gcn {
                    let _ = write!(words, " gcn={}", value(gcn));
                }
                number(&mut words, "rank", gpu.rank);
                if !gpu.listed {
                    words.push_str(" listed=no");
                }
                print_carried(&mut words, &gpu.carried, &GPU_KEYS, &GPU_KNOWN);
                for (key, said) in pci.iter().flat_map(|pci| &pci.carried) {
                    let _ = write!(words, " pci.{key}={}", value(said));
                }
                ("gpu", &[])
            }
            Kind::Nic(nic) => {
                print_pci_and_carried(&mut words, pci);
                ("nic", &nic.ports)
            }
            Kind::Bridge => {
                print_pci_and_carried(&mut words, pci);
                ("bridge", &[])
            }
            Kind::Switch => {
                print_pci_and_carried(&mut words, pci);
                ("switch", &[])
            }
            Kind::Other => {
                print_pci_and_carried(&mut words, pci);
                ("device", &[])
            }
        };
        let block = has_children[device.0 as usize];
        let brace = if block || !ports.is_empty() { " {" } else { "" };
        line(text, depth, &format!("{word}{words}{brace}"));
        for port in ports {
            print_port(text, depth + 1, port);
        }
        if block {
            open.push(device);
        } else if !ports.is_empty() {
            line(text, depth, "}");
        }
    }
    while open.pop().is_some() {
        line(text, open.len() + 2, "}");
    }
    for link in &machine.links {
        let mut words =
            format!("{} {} {} count={}", link.kind, names[&link.from], names[&link.to], link.count);
        rate(&mut words, "each", link.each);
        line(text, 2, &words);
    }
}

fn print_cpu(words: &mut String, cpu: &Cpu) {
    if !cpu.host.is_empty() {
        let _ = write!(words, " host={}", value(&cpu.host));
    }
    let _ = write!(words, " numa={}", cpu.numa);
    for (key, said) in [("arch", &cpu.arch), ("vendor", &cpu.vendor)] {
        if !said.is_empty() {
            let _ = write!(words, " {key}={}", value(said));
        }
    }
    let _ = write!(words, " family={} model={}", cpu.family, cpu.model);
    rate(words, "interconnect", cpu.interconnect);
    print_carried(words, &cpu.carried, &CPU_KEYS, &CPU_KNOWN);
}

fn print_pci(words: &mut String, pci: Option<&Pci>) {
    let Some(pci) = pci else { return };
    let _ = write!(words, " bus={} class=0x{:06x}", value(&pci.bus), pci.class);
    if !pci.speed.is_empty() {
        let _ = write!(words, " speed={}", value(&pci.speed));
    }
    if pci.width > 0 {
        let _ = write!(words, " width={}", pci.width);
    }
}

fn print_pci_and_carried(words: &mut String, pci: Option<&Pci>) {
    print_pci(words, pci);
    if let Some(pci) = pci {
        print_carried(words, &pci.carried, &PCI_KEYS, &PCI_KNOWN);
    }
}

fn print_port(text: &mut String, depth: usize, port: &Port) {
    let mut words = format!("port {}", value(&port.name));
    number(&mut words, "dev", port.dev);
    let _ = write!(words, " speed={}", port.speed_mbit_per_s);
    print_carried(&mut words, &port.carried, &PORT_KEYS, &PORT_KNOWN);
    line(text, depth, &words);
}

/// Attributes that are carried, marked with `x.` unless a reader would know them.
fn print_carried(words: &mut String, carried: &Carried, own: &[&str], known: &[&str]) {
    for (key, said) in carried {
        let plain = known.contains(&key.as_str()) && !own.contains(&key.as_str());
        let mark = if plain { "" } else { "x." };
        let _ = write!(words, " {mark}{key}={}", value(said));
    }
}

fn number(words: &mut String, key: &str, number: Option<u32>) {
    if let Some(number) = number {
        let _ = write!(words, " {key}={number}");
    }
}

/// A rate in GB/s, with all its digits.
fn rate(words: &mut String, key: &str, rate: Option<Rate>) {
    if let Some(Rate(mb)) = rate {
        let digits = format!("{}.{:03}", mb / 1000, mb % 1000);
        let _ = write!(words, " {key}={}", digits.trim_end_matches('0').trim_end_matches('.'));
    }
}

/// A word, in quotes where it would not be read as one.
fn value(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | ',' | '+');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            // What a terminal would obey, and line ends of every kind.
            c if c.is_control()
                || matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                let _ = write!(quoted, "\\u{{{:x}}}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
