//! Where the devices of a machine stand in its picture: the tree of PCIe from the CPUs down, GPUs and
//! network cards in one row.
//!
//! Hosts that look alike are laid out once, cards beside each other that are alike stand in one place,
//! and what has neither GPU nor card below is left out.

use ringsmith_ir::topology::{Device, Kind, Machine, Rate, bandwidth};
use std::collections::BTreeMap;

/// From one row to the next.
pub(super) const ROW: i64 = 74;
/// How wide GPUs and cards are.
const LEAF: i64 = 78;
/// How wide a CPU without any is.
const CPU: i64 = 150;
const BRIDGE: i64 = 56;
const GAP: i64 = 14;

/// CPUs with nothing below are drawn if there are no more than these. Ours.
const LONELY_CPUS: usize = 8;

/// Something to draw.
#[derive(Clone, Debug)]
pub(super) struct Spot {
    /// The device; of several cards, the first.
    pub(super) device: Device,
    /// The spot it hangs below, by its place in [`Tile::spots`].
    pub(super) parent: Option<usize>,
    /// Its middle.
    pub(super) x: i64,
    pub(super) width: i64,
    /// Counted from the CPUs.
    pub(super) row: i64,
    /// Ports, for cards: (card, port) as in [`Machine::ports`].
    pub(super) ports: Vec<(Device, usize)>,
}

/// A host's picture.
#[derive(Clone, Debug)]
pub(super) struct Tile {
    /// The first host that looks like this.
    pub(super) host: String,
    /// How many do.
    pub(super) count: usize,
    pub(super) spots: Vec<Spot>,
    pub(super) width: i64,
    /// The row of GPUs and cards.
    pub(super) last_row: i64,
}

/// The hosts of a machine, alike ones together.
pub(super) fn tiles(machine: &Machine) -> Vec<Tile> {
    let mut by_host: BTreeMap<&str, Vec<Device>> = BTreeMap::new();
    for device in machine.devices.keys() {
        if let Some(host) = machine.host_of(device) {
            by_host.entry(host).or_default().push(device);
        }
    }
    let mut tiles: Vec<(String, Tile)> = Vec::new();
    for host in machine.hosts() {
        let tile = tile(machine, host, &by_host[host]);
        let looks = looks(machine, &tile);
        match tiles.iter_mut().find(|(known, _)| *known == looks) {
            Some((_, known)) => known.count += 1,
            None => tiles.push((looks, tile)),
        }
    }
    tiles.into_iter().map(|(_, tile)| tile).collect()
}

/// Lays out the devices of a host, each of which comes after its parent.
fn tile(machine: &Machine, host: &str, devices: &[Device]) -> Tile {
    let mut keep: BTreeMap<Device, bool> = BTreeMap::new();
    for &device in devices.iter().rev() {
        let data = &machine.devices[device];
        let leaf = matches!(data.kind, Kind::Gpu(_) | Kind::Nic(_));
        let cpu = matches!(data.kind, Kind::Cpu(_)) && machine.cpus().len() <= LONELY_CPUS;
        let kept = leaf || cpu || keep.get(&device).copied().unwrap_or(false);
        keep.insert(device, kept);
        if let Some(parent) = data.parent.filter(|_| kept) {
            keep.insert(parent, true);
        }
    }
    let mut spots: Vec<Spot> = Vec::new();
    let mut places: BTreeMap<Device, usize> = BTreeMap::new();
    for &device in devices.iter().filter(|device| keep[device]) {
        let data = &machine.devices[device];
        let parent = data.parent.and_then(|parent| places.get(&parent).copied());
        let row = parent.map_or(0, |parent| spots[parent].row + 1);
        let ports: Vec<(Device, usize)> = match &data.kind {
            Kind::Nic(nic) => (0..nic.ports.len().max(1)).map(|port| (device, port)).collect(),
            Kind::Cpu(_) | Kind::Bridge | Kind::Gpu(_) | Kind::Switch | Kind::Other => Vec::new(),
        };
        if let Some(last) = spots
            .last_mut()
            .filter(|last| !ports.is_empty() && last.parent == parent && alike(machine, last, device, &ports))
        {
            last.ports.extend(ports);
            continue;
        }
        let width = match data.kind {
            Kind::Gpu(_) | Kind::Nic(_) => LEAF,
            Kind::Cpu(_) | Kind::Bridge | Kind::Switch | Kind::Other => BRIDGE,
        };
        places.insert(device, spots.len());
        spots.push(Spot { device, parent, x: 0, width, row, ports });
    }
    let is_leaf = |spot: &Spot| matches!(machine.devices[spot.device].kind, Kind::Gpu(_) | Kind::Nic(_));
    let last_row =
        spots.iter().map(|spot| if is_leaf(spot) { spot.row } else { spot.row + 1 }).max().unwrap_or(0);
    let mut has_child = vec![false; spots.len()];
    for parent in spots.iter().filter_map(|spot| spot.parent) {
        has_child[parent] = true;
    }
    let (mut at, mut cpu, mut begun) = (GAP, 0, GAP);
    for index in 0..=spots.len() {
        // A CPU is wider than a single GPU: what hangs below it stands in the middle.
        if spots.get(index).is_none_or(|spot| spot.parent.is_none()) {
            let more = if cpu < index { (begun + CPU + GAP - at).max(0) } else { 0 };
            spots[cpu..index].iter_mut().for_each(|spot| spot.x += more / 2);
            at += more;
            (cpu, begun) = (index, at);
        }
        let Some(spot) = spots.get_mut(index) else { break };
        if is_leaf(spot) {
            spot.row = last_row;
        }
        if !has_child[index] {
            let width = if is_leaf(spot) { LEAF } else { CPU };
            spot.x = at + width / 2;
            at += width + GAP;
        }
    }
    let mut spans: Vec<Option<(i64, i64)>> = vec![None; spots.len()];
    for index in (0..spots.len()).rev() {
        if let Some((left, right)) = spans[index] {
            spots[index].x = (left + right) / 2;
        }
        let x = spots[index].x;
        if matches!(machine.devices[spots[index].device].kind, Kind::Cpu(_)) {
            spots[index].width = spans[index].map_or(CPU, |(left, right)| (right - left + LEAF).max(CPU));
        } else if let Some(parent) = spots[index].parent {
            let (left, right) = spans[parent].unwrap_or((x, x));
            spans[parent] = Some((left.min(x), right.max(x)));
        }
    }
    Tile { host: host.to_owned(), count: 1, spots, width: at.max(200), last_row }
}

/// Whether a card can stand where another one stands.
fn alike(machine: &Machine, spot: &Spot, device: Device, ports: &[(Device, usize)]) -> bool {
    let rate = |port: &(Device, usize)| bandwidth::of_port(machine, *port);
    let link = |device: Device| bandwidth::above(machine, device);
    let Some(first) = spot.ports.first() else { return false };
    link(spot.device) == link(device) && ports.iter().all(|port| rate(port) == rate(first))
}

/// What a tile looks like, names apart.
fn looks(machine: &Machine, tile: &Tile) -> String {
    let of = |spot: &Spot| {
        let kind = match &machine.devices[spot.device].kind {
            Kind::Cpu(cpu) => format!("cpu {} {}", cpu.vendor, cpu.model),
            Kind::Bridge => "bridge".to_owned(),
            Kind::Gpu(gpu) => format!("gpu {:?} {:?} {}", gpu.sm, gpu.gcn, links(machine, spot.device)),
            Kind::Nic(_) => {
                format!("nic {:?}", spot.ports.first().map(|port| bandwidth::of_port(machine, *port)))
            }
            Kind::Switch => "switch".to_owned(),
            Kind::Other => "device".to_owned(),
        };
        format!("{kind} {:?} {} {}\n", spot.parent, spot.ports.len(), rate(machine, spot.device).0)
    };
    tile.spots.iter().map(of).collect()
}

/// What a GPU's links carry in all.
fn links(machine: &Machine, gpu: Device) -> u64 {
    let own = machine.links.iter().filter(|link| link.from == gpu || link.to == gpu);
    own.map(|link| bandwidth::of_link(machine, link).0).sum()
}

/// What the link above a device carries.
pub(super) fn rate(machine: &Machine, device: Device) -> Rate {
    bandwidth::above(machine, device).map_or(Rate(0), |(rate, _)| rate)
}
