//! The tree of PCIe below the CPUs: GPUs, network cards, and the switches above them.
//!
//! A device's path in sysfs names every port above it: a root port, and then an upper and a lower port
//! for each switch. Upper ports stand for their switches; the others are the far ends of links that the
//! devices below tell already.

use super::sysfs::Tree;
use ringsmith_ir::topology::{Gpu, Kind, Nic, Pci, Port, bandwidth};
use std::collections::BTreeMap;

/// The most names in a path that are believed. Ours: a switch behind a switch has six.
const MAX_DEPTH: usize = 32;

/// A device and what it is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) pci: Pci,
    /// Of the device, or of the first below it.
    pub(super) numa: i32,
}

impl Place {
    pub(super) fn is_leaf(&self) -> bool {
        !matches!(self.kind, Kind::Bridge)
    }
}

/// What is on PCIe.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// By the addresses from the first switch down, so that what hangs below follows what it hangs on.
    pub(super) places: BTreeMap<Vec<String>, Place>,
    pub(super) remarks: Vec<String>,
}

const DEVICES: &str = "sys/bus/pci/devices";

/// Reads all GPUs and network cards, and the switches above them.
pub(super) fn scan(tree: &Tree) -> Found {
    let mut found = Found::default();
    let mut doubted = Vec::new();
    let mut down = Vec::new();
    let mut ports = 0;
    for bus in tree.names(DEVICES) {
        let Some(kind) = kind(tree, &bus, &mut ports, &mut down) else { continue };
        let mut above = tree
            .link(&format!("{DEVICES}/{bus}"), "pci")
            .map(|names| names.into_iter().skip(1).filter(|name| is_address(name)).collect::<Vec<_>>())
            .unwrap_or_default();
        if above.last() != Some(&bus) || above.len() > MAX_DEPTH {
            above = vec![bus.clone()];
        }
        above.pop();
        let numa = tree.number(&format!("{DEVICES}/{bus}/numa_node")).unwrap_or(-1);
        let numa = i32::try_from(numa).unwrap_or(-1);
        let port = above.last().cloned();
        // Root port, upper port, lower port, upper port, …
        let mut path: Vec<String> = Vec::new();
        for switch in above.into_iter().skip(1).step_by(2) {
            path.push(switch.clone());
            found.places.entry(path.clone()).or_insert_with(|| Place {
                kind: Kind::Bridge,
                pci: pci(tree, &switch),
                numa,
            });
        }
        path.push(bus.clone());
        let mut own = pci(tree, &bus);
        narrow(tree, &mut own, port.as_deref(), &mut doubted);
        found.places.insert(path, Place { kind, pci: own, numa });
    }
    if !doubted.is_empty() {
        doubted.sort();
        doubted.dedup();
        found.remarks.push(format!(
            "{}: ports that say 2.5 GT/s x1, which bridges of virtual machines do, are not believed; what the devices below say is taken",
            doubted.join(", ")
        ));
    }
    if !down.is_empty() {
        found.remarks.push(format!("{}: network ports that are down are left out", down.join(", ")));
    }
    found
}

/// Whether a name is an address on PCIe, such as `0000:18:00.0`.
fn is_address(name: &str) -> bool {
    let parts: Vec<&str> = name.split([':', '.']).collect();
    parts.len() == 4
        && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What a device is; none for what plans have no use for.
fn kind(tree: &Tree, bus: &str, ports: &mut u32, down: &mut Vec<String>) -> Option<Kind> {
    let class = tree.number(&format!("{DEVICES}/{bus}/class"))?;
    let driver = || tree.link(&format!("{DEVICES}/{bus}/driver"), "").and_then(|names| names.last().cloned());
    match class >> 8 {
        0x0302 => Some(Kind::Gpu(Gpu::default())),
        // Cards with a display, and AMD's without, if a driver for computing has them.
        0x0300 | 0x0380 | 0x1200 if driver().is_some_and(|name| name == "nvidia" || name == "amdgpu") => {
            Some(Kind::Gpu(Gpu::default()))
        }
        0x0200..=0x02ff => {
            let ports = self::ports(tree, bus, ports, down);
            (!ports.is_empty()).then_some(Kind::Nic(Nic { ports }))
        }
        _ => None,
    }
}

/// The ports of a card: InfiniBand's where there are some, else interfaces.
fn ports(tree: &Tree, bus: &str, count: &mut u32, down: &mut Vec<String>) -> Vec<Port> {
    let mut ports = Vec::new();
    let mut push = |name: String, speed_mbit_per_s: u64, number: &str| {
        let carried = vec![("port".to_owned(), number.to_owned())];
        ports.push(Port { name, dev: Some(*count), speed_mbit_per_s, carried });
        *count += 1;
    };
    let device = format!("{DEVICES}/{bus}");
    for name in tree.names(&format!("{device}/infiniband")) {
        for number in tree.names(&format!("{device}/infiniband/{name}/ports")) {
            let port = format!("{device}/infiniband/{name}/ports/{number}");
            // "4: ACTIVE"
            if tree.text(&format!("{port}/state")).is_some_and(|state| !state.contains("ACTIVE")) {
                down.push(format!("{name}/{number}"));
                continue;
            }
            let rate = tree.text(&format!("{port}/rate")).and_then(|rate| mbit_per_s(&rate)).unwrap_or(0);
            push(name.clone(), rate, &number);
        }
    }
    if !tree.names(&format!("{device}/infiniband")).is_empty() {
        return ports;
    }
    // Those of a virtual card hang below its virtio device.
    let inner = tree.names(&device).into_iter().filter(|name| name.starts_with("virtio"));
    let folders = std::iter::once(device.clone()).chain(inner.map(|name| format!("{device}/{name}")));
    for folder in folders {
        for name in tree.names(&format!("{folder}/net")) {
            let interface = format!("{folder}/net/{name}");
            if tree.text(&format!("{interface}/operstate")).is_some_and(|state| state == "down") {
                down.push(name);
                continue;
            }
            push(name, speed_of(tree, &interface), "1");
        }
    }
    ports
}

/// What an interface says it carries, in Mbit/s; 0 if it does not say.
pub(super) fn speed_of(tree: &Tree, interface: &str) -> u64 {
    let said = tree.number(&format!("{interface}/speed")).unwrap_or(-1);
    // -1 as a signed or an unsigned number stands for unknown.
    u64::try_from(said).ok().filter(|speed| *speed < u64::from(u32::MAX)).unwrap_or(0)
}

/// Reads `400 Gb/sec (4X NDR)`.
fn mbit_per_s(rate: &str) -> Option<u64> {
    let number = rate.split_once(" Gb/sec")?.0.trim();
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let tenths: u64 = part.get(..1)?.parse().ok()?;
    Some(whole.parse::<u64>().ok().filter(|gbit| *gbit < 1_000_000)? * 1000 + tenths * 100)
}

/// What sysfs tells of a device's place.
fn pci(tree: &Tree, bus: &str) -> Pci {
    let text = |name: &str| tree.text(&format!("{DEVICES}/{bus}/{name}"));
    let known = ["vendor", "device", "subsystem_vendor", "subsystem_device"];
    Pci {
        bus: bus.to_owned(),
        class: tree
            .number(&format!("{DEVICES}/{bus}/class"))
            .and_then(|class| u32::try_from(class).ok())
            .unwrap_or(0)
            & 0xFF_FF_FF,
        speed: text("max_link_speed").filter(|speed| !speed.contains("nknown")).unwrap_or_default(),
        width: tree
            .number(&format!("{DEVICES}/{bus}/max_link_width"))
            .and_then(|width| u32::try_from(width).ok())
            .filter(|width| *width < 255)
            .unwrap_or(0),
        carried: known.iter().filter_map(|name| Some(((*name).to_owned(), text(name)?))).collect(),
    }
}

/// A link is as fast as the slower of its ends, as far as the far one is believed.
fn narrow(tree: &Tree, own: &mut Pci, port: Option<&str>, doubted: &mut Vec<String>) {
    let Some(bus) = port else { return };
    let far = pci(tree, bus);
    let Some(there) = bandwidth::pcie(&far.speed, far.width) else { return };
    let here = bandwidth::pcie(&own.speed, own.width);
    if far.width == 1 && far.speed.starts_with("2.5") && here.is_some_and(|here| here > there) {
        doubted.push(far.bus);
    } else if here.is_none_or(|here| here > there) {
        (own.speed, own.width) = (far.speed, far.width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_infiniband_are_read() {
        assert_eq!(mbit_per_s("400 Gb/sec (4X NDR)"), Some(400_000));
        assert_eq!(mbit_per_s("2.5 Gb/sec (1X SDR)"), Some(2_500));
        assert_eq!([mbit_per_s(""), mbit_per_s("fast"), mbit_per_s("-1 Gb/sec")], [None; 3]);
    }

    #[test]
    fn addresses_are_told_from_other_names() {
        assert!(is_address("0000:18:00.0") && is_address("10000:e1:00.0"));
        assert!(!is_address("pci0000:00") && !is_address("virtio0") && !is_address("0000:18:00"));
    }
}
