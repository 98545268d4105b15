//! What a pair of devices of one machine gets: the kind of path between them, what it carries, its
//! latency and hops, and which links it uses.
//!
//! Kinds are NCCL's (`src/graph/paths.cc`). The tree of PCIe gives one path between two of its devices;
//! NVLink, xGMI and C2C are preferred to it, and a port that a GPU does not reach within its PCIe
//! switches is reached through a GPU that does, over NVLink (PXN). No GPU forwards for others otherwise.
//!
//! Links carry both directions at once. What one direction of a link carries is a [`Resource`], so that
//! a search can see what is left of it.

use super::bandwidth::{self, Rate};
use super::{Device, Kind, LinkKind, Machine};
use std::collections::BTreeMap;
use std::fmt;

/// How close two devices are, the closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathKind {
    /// The same device.
    Loc,
    /// NVLink or xGMI, direct or through switches.
    Nvl,
    /// A chip-to-chip link to the CPU, and PCIe from there.
    C2c,
    /// At most one PCIe bridge.
    Pix,
    /// Several PCIe bridges, and no CPU.
    Pxb,
    /// NVLink to a GPU that is close to the port, and PCIe from there.
    Pxn,
    /// Through a CPU.
    Phb,
    /// Through the link between two CPUs.
    Sys,
    /// Through a network.
    Net,
}

impl PathKind {
    /// NCCL's spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loc => "LOC",
            Self::Nvl => "NVL",
            Self::C2c => "C2C",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Pxn => "PXN",
            Self::Phb => "PHB",
            Self::Sys => "SYS",
            Self::Net => "NET",
        }
    }

    /// What a small message takes, in ns.
    ///
    /// NCCL's `hwLat` for rings with the LL protocol (`src/graph/tuning.cc`): 0.6 us over NVLink, 1 us
    /// over PCIe, 2.7 us over a network. C2C is counted as NVLink, PXN as NVLink and PCIe.
    pub const fn latency_ns(self) -> u32 {
        match self {
            Self::Loc => 0,
            Self::Nvl | Self::C2c => 600,
            Self::Pix | Self::Pxb | Self::Phb | Self::Sys => 1_000,
            Self::Pxn => 1_600,
            Self::Net => 2_700,
        }
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One direction of a link: an index into [`Paths::capacities`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resource(pub u32);

/// A way from one device to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// How close they are.
    pub kind: PathKind,
    /// What it carries if nothing else uses it.
    pub rate: Rate,
    /// What a small message takes.
    pub latency_ns: u32,
    /// Links that it crosses.
    pub hops: u32,
    /// The GPU that forwards, for [`PathKind::Pxn`].
    pub through: Option<usize>,
    /// The links it uses.
    pub uses: Vec<Resource>,
    /// How much of them it takes for each byte, in percent: 120 where a CPU cuts messages.
    pub cost_percent: u64,
}

/// All paths of a machine, between GPUs and from and to ports.
#[derive(Clone, Debug)]
pub struct Paths {
    /// What each direction of a link carries.
    pub capacities: Vec<Rate>,
    /// The GPUs, by number.
    pub gpus: Vec<Device>,
    /// The ports, by number.
    pub ports: Vec<(Device, usize)>,
    between: Vec<Option<Path>>,
    to_port: Vec<Option<Path>>,
    from_port: Vec<Option<Path>>,
    keys: Vec<Key>,
}

/// What a direction of a link is, so that each is counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// From a device to what it hangs below.
    Up(Device),
    /// Back.
    Down(Device),
    /// From a CPU to another.
    Between(Device, Device),
    /// From a GPU to all its switches together.
    ToSwitches(Device),
    /// Back.
    FromSwitches(Device),
    /// Along a link, in the direction it is written.
    Along(usize),
    /// Back.
    Against(usize),
    /// Out of a port.
    Sent(Device, usize),
    /// Into a port.
    Received(Device, usize),
}

struct Finder<'m> {
    machine: &'m Machine,
    known: BTreeMap<Key, Resource>,
    capacities: Vec<Rate>,
    /// Links between two GPUs, by their ends.
    direct: BTreeMap<(Device, Device), usize>,
    /// The switches that a GPU has links to, and what these carry together.
    switches: BTreeMap<Device, (Vec<Device>, Rate)>,
    /// The link of a GPU to its CPU.
    to_cpu: BTreeMap<Device, usize>,
}

/// A path that is being put together.
#[derive(Default)]
struct Steps {
    uses: Vec<Resource>,
    bridges: u32,
    through_cpu: bool,
    between_cpus: bool,
    chip_to_chip: bool,
    cut: bool,
}

impl Paths {
    /// Finds the paths of a machine.
    pub fn of(machine: &Machine) -> Self {
        let (gpus, ports) = (machine.gpus(), machine.ports());
        let mut finder = Finder::of(machine);
        let mut between = Vec::with_capacity(gpus.len() * gpus.len());
        for &from in &gpus {
            between.extend(gpus.iter().map(|&to| finder.between(from, to)));
        }
        let (mut to_port, mut from_port) = (Vec::new(), Vec::new());
        for &gpu in &gpus {
            for &port in &ports {
                let (there, back) = finder.port(gpu, port);
                to_port.push(there);
                from_port.push(back);
            }
        }
        let mut keys: Vec<(Key, Resource)> = finder.known.into_iter().collect();
        keys.sort_by_key(|(_, resource)| *resource);
        let keys = keys.into_iter().map(|(key, _)| key).collect();
        let mut paths =
            Self { capacities: finder.capacities, gpus, ports, between, to_port, from_port, keys };
        paths.through_others();
        paths
    }

    /// From a GPU to another, if there is a way inside the machine.
    pub fn between(&self, from: usize, to: usize) -> Option<&Path> {
        self.between[from * self.gpus.len() + to].as_ref()
    }

    /// From a GPU out of a port.
    pub fn to_port(&self, gpu: usize, port: usize) -> Option<&Path> {
        self.to_port[gpu * self.ports.len() + port].as_ref()
    }

    /// From a port to a GPU.
    pub fn from_port(&self, port: usize, gpu: usize) -> Option<&Path> {
        self.from_port[gpu * self.ports.len() + port].as_ref()
    }

    /// What to call each direction of a link, in the order of [`Paths::capacities`]; `machine` is the one
    /// that the paths were found for.
    pub fn names(&self, machine: &Machine) -> Vec<String> {
        let known = machine.names();
        let name = |device: Device| {
            let bus = || machine.devices[device].pci.as_ref().map(|pci| pci.bus.clone());
            known.get(&device).cloned().or_else(bus).unwrap_or_else(|| device.to_string())
        };
        let name_of = |key: &Key| match *key {
            Key::Up(device) => format!("{} to PCIe", name(device)),
            Key::Down(device) => format!("PCIe to {}", name(device)),
            Key::Between(from, to) => format!("{} to {}", name(from), name(to)),
            Key::ToSwitches(gpu) => format!("{} to switches", name(gpu)),
            Key::FromSwitches(gpu) => format!("switches to {}", name(gpu)),
            Key::Along(link) => {
                format!("{} to {}", name(machine.links[link].from), name(machine.links[link].to))
            }
            Key::Against(link) => {
                format!("{} to {}", name(machine.links[link].to), name(machine.links[link].from))
            }
            Key::Sent(nic, port) => format!("{} sends", machine.port_name((nic, port))),
            Key::Received(nic, port) => format!("{} receives", machine.port_name((nic, port))),
        };
        self.keys.iter().map(name_of).collect()
    }

    /// Reaches far ports through GPUs that are close to them.
    fn through_others(&mut self) {
        let far = |path: &Option<Path>| path.as_ref().is_none_or(|path| path.kind > PathKind::Pxb);
        for gpu in 0..self.gpus.len() {
            for port in 0..self.ports.len() {
                let at = gpu * self.ports.len() + port;
                if !far(&self.to_port[at]) {
                    continue;
                }
                let close = |&other: &usize| {
                    let near = self.to_port(other, port).filter(|path| path.kind <= PathKind::Pxb)?;
                    let link = self.between(gpu, other).filter(|path| path.kind == PathKind::Nvl)?;
                    Some((near.rate.min(link.rate), other))
                };
                let best =
                    (0..self.gpus.len()).filter(|other| *other != gpu).filter_map(|other| close(&other));
                let Some((_, other)) = best.max_by_key(|&(rate, other)| (rate, std::cmp::Reverse(other)))
                else {
                    continue;
                };
                let there = joined(self.between(gpu, other), self.to_port(other, port), other);
                let back = joined(self.from_port(port, other), self.between(other, gpu), other);
                (self.to_port[at], self.from_port[at]) = (there, back);
            }
        }
    }
}

/// Two paths one after the other, through a GPU.
fn joined(first: Option<&Path>, second: Option<&Path>, through: usize) -> Option<Path> {
    let (first, second) = (first?, second?);
    Some(Path {
        kind: PathKind::Pxn,
        rate: first.rate.min(second.rate),
        latency_ns: PathKind::Pxn.latency_ns(),
        hops: first.hops + second.hops,
        through: Some(through),
        uses: first.uses.iter().chain(&second.uses).copied().collect(),
        cost_percent: first.cost_percent.max(second.cost_percent),
    })
}

impl<'m> Finder<'m> {
    fn of(machine: &'m Machine) -> Self {
        let (mut direct, mut to_cpu) = (BTreeMap::new(), BTreeMap::new());
        let mut switches: BTreeMap<Device, (Vec<Device>, Rate)> = BTreeMap::new();
        for (index, link) in machine.links.iter().enumerate() {
            match machine.devices[link.to].kind {
                Kind::Gpu(_) => {
                    direct.insert((link.from, link.to), index);
                }
                Kind::Cpu(_) => {
                    to_cpu.insert(link.from, index);
                }
                Kind::Switch => {
                    let (known, rate) = switches.entry(link.from).or_default();
                    known.push(link.to);
                    rate.0 += bandwidth::of_link(machine, link).0;
                }
                Kind::Bridge | Kind::Nic(_) | Kind::Other => debug_assert_ne!(link.kind, LinkKind::Nvlink),
            }
        }
        Self { machine, known: BTreeMap::new(), capacities: Vec::new(), direct, switches, to_cpu }
    }

    fn resource(&mut self, key: Key) -> Resource {
        if let Some(&known) = self.known.get(&key) {
            return known;
        }
        let machine = self.machine;
        let rate = match key {
            Key::Up(device) | Key::Down(device) => {
                bandwidth::above(machine, device).map_or(bandwidth::ASSUMED_PCIE, |(rate, _)| rate)
            }
            Key::Between(from, to) => {
                let of = |device: Device| match &machine.devices[device].kind {
                    Kind::Cpu(cpu) => bandwidth::of_interconnect(cpu),
                    Kind::Bridge | Kind::Gpu(_) | Kind::Nic(_) | Kind::Switch | Kind::Other => Rate(0),
                };
                of(from).min(of(to))
            }
            Key::ToSwitches(gpu) | Key::FromSwitches(gpu) => {
                self.switches.get(&gpu).map_or(Rate(0), |(_, rate)| *rate)
            }
            Key::Along(link) | Key::Against(link) => bandwidth::of_link(machine, &machine.links[link]),
            Key::Sent(nic, port) | Key::Received(nic, port) => bandwidth::of_port(machine, (nic, port)).0,
        };
        let resource = Resource(self.capacities.len() as u32);
        self.capacities.push(rate);
        self.known.insert(key, resource);
        resource
    }

    fn between(&mut self, from: Device, to: Device) -> Option<Path> {
        if from == to {
            return Some(Path {
                kind: PathKind::Loc,
                rate: Rate(u64::MAX),
                latency_ns: 0,
                hops: 0,
                through: None,
                uses: Vec::new(),
                cost_percent: 100,
            });
        }
        let along = self.direct.get(&(from, to)).map(|&link| Key::Along(link));
        let against = || self.direct.get(&(to, from)).map(|&link| Key::Against(link));
        if let Some(key) = along.or_else(against) {
            let uses = vec![self.resource(key)];
            return Some(self.path(PathKind::Nvl, uses, 100));
        }
        if let (Some((near, _)), Some((far, _))) = (self.switches.get(&from), self.switches.get(&to))
            && near.iter().any(|switch| far.contains(switch))
        {
            let uses = vec![self.resource(Key::ToSwitches(from)), self.resource(Key::FromSwitches(to))];
            return Some(self.path(PathKind::Nvl, uses, 100));
        }
        let steps = self.steps(from, to)?;
        let cost = if steps.cut { 120 } else { 100 };
        Some(self.finish(steps, cost))
    }

    /// To a port, and back.
    fn port(&mut self, gpu: Device, (nic, port): (Device, usize)) -> (Option<Path>, Option<Path>) {
        let mut one = |from, to, key, first: bool| {
            let mut steps = self.steps(from, to)?;
            let own = self.resource(key);
            if first {
                steps.uses.insert(0, own);
            } else {
                steps.uses.push(own);
            }
            Some(self.finish(steps, 100))
        };
        (one(gpu, nic, Key::Sent(nic, port), false), one(nic, gpu, Key::Received(nic, port), true))
    }

    /// The way through PCIe and CPUs.
    fn steps(&mut self, from: Device, to: Device) -> Option<Steps> {
        let (up, down) = (self.ancestors(from), self.ancestors(to));
        let mut steps = Steps::default();
        let meet = up.iter().find(|device| down.contains(device)).copied();
        let is_cpu = |device: &Device| matches!(self.machine.devices[*device].kind, Kind::Cpu(_));
        let own_link = |device: Device| self.to_cpu.get(&device).copied();
        let goes_to_cpu = meet.is_none_or(|meet| is_cpu(&meet));
        let (from_link, to_link) = (own_link(from), own_link(to));
        let root = |all: &[Device]| all.last().copied().filter(is_cpu);
        let (near, far) = (root(&up)?, root(&down)?);
        if meet.is_none() && self.machine.host_of(near) != self.machine.host_of(far) {
            return None;
        }
        let end = |all: &[Device]| match meet {
            Some(meet) => all.iter().position(|device| *device == meet).unwrap_or(all.len()),
            None => all.len() - 1,
        };
        match from_link.filter(|_| goes_to_cpu) {
            Some(link) => {
                steps.chip_to_chip = true;
                steps.uses.push(self.resource(Key::Along(link)));
            }
            None => {
                for &device in &up[..end(&up)] {
                    steps.bridges += u32::from(device != from);
                    steps.uses.push(self.resource(Key::Up(device)));
                }
            }
        }
        if meet.is_none() {
            steps.between_cpus = true;
            steps.uses.push(self.resource(Key::Between(near, far)));
        }
        match to_link.filter(|_| goes_to_cpu) {
            Some(link) => {
                steps.chip_to_chip = true;
                steps.uses.push(self.resource(Key::Against(link)));
            }
            None => {
                for &device in down[..end(&down)].iter().rev() {
                    steps.bridges += u32::from(device != to);
                    steps.uses.push(self.resource(Key::Down(device)));
                }
            }
        }
        steps.through_cpu = goes_to_cpu;
        steps.bridges += u32::from(!goes_to_cpu);
        let cuts = |device: Device| match &self.machine.devices[device].kind {
            Kind::Cpu(cpu) => bandwidth::cuts_messages(cpu),
            Kind::Bridge | Kind::Gpu(_) | Kind::Nic(_) | Kind::Switch | Kind::Other => false,
        };
        steps.cut = goes_to_cpu && (cuts(near) || cuts(far));
        Some(steps)
    }

    fn finish(&self, steps: Steps, cost_percent: u64) -> Path {
        let kind = match &steps {
            Steps { between_cpus: true, .. } => PathKind::Sys,
            Steps { chip_to_chip: true, .. } => PathKind::C2c,
            Steps { through_cpu: true, .. } => PathKind::Phb,
            Steps { bridges: 0..=1, .. } => PathKind::Pix,
            _ => PathKind::Pxb,
        };
        self.path(kind, steps.uses, cost_percent)
    }

    fn path(&self, kind: PathKind, uses: Vec<Resource>, cost_percent: u64) -> Path {
        let least = uses.iter().map(|resource| self.capacities[resource.0 as usize].0).min().unwrap_or(0);
        Path {
            kind,
            rate: Rate(least / cost_percent * 100 + least % cost_percent * 100 / cost_percent),
            latency_ns: kind.latency_ns(),
            hops: uses.len() as u32,
            through: None,
            uses,
            cost_percent,
        }
    }

    /// A device and everything it hangs below, the outermost last.
    fn ancestors(&self, device: Device) -> Vec<Device> {
        let mut all = vec![device];
        let mut at = device;
        while let Some(parent) = self.machine.devices[at].parent {
            all.push(parent);
            at = parent;
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn paths(text: &str) -> Paths {
        let whole = format!("topology t {{\n machine m0 {{\n{text}\n }}\n nodes 1 m0\n}}\n");
        let topology = parse(&whole).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        Paths::of(&topology.machines[0])
    }

    const TWO_SOCKETS: &str = r#"
        cpu c0 numa=0 arch=x86_64 vendor=GenuineIntel family=6 model=85 {
          bridge bus=a class=0x060400 speed="8 GT/s" width=16 {
            gpu g0 bus=a0 speed="8 GT/s" width=16 sm=70
            bridge bus=b speed="8 GT/s" width=16 {
              gpu g1 bus=b0 speed="8 GT/s" width=8 sm=70
            }
            nic bus=n speed="8 GT/s" width=16 {
              port one speed=100000
            }
          }
          gpu g2 bus=c0 speed="8 GT/s" width=16 sm=70
        }
        cpu c1 numa=1 arch=x86_64 vendor=GenuineIntel family=6 model=85 {
          gpu g3 bus=d0 speed="8 GT/s" width=16 sm=70
          gpu g4 bus=e0 speed="8 GT/s" width=16 sm=70
        }
        nvlink g3 g0 count=2
        "#;

    #[test]
    fn every_kind_of_pcie_path_is_told_apart() {
        let paths = paths(TWO_SOCKETS);
        let look = |from, to| {
            let path = paths.between(from, to).expect("one host");
            (path.kind, path.rate.0, path.hops)
        };
        assert_eq!(look(0, 0).0, PathKind::Loc);
        assert_eq!(look(0, 1), (PathKind::Pxb, 6_000, 3), "the narrow link decides");
        assert_eq!(look(0, 2), (PathKind::Phb, 10_000, 3), "a CPU of Intel costs a fifth more");
        assert_eq!(look(1, 4), (PathKind::Sys, 5_000, 5));
        assert_eq!(look(2, 4), (PathKind::Sys, 8_333, 3), "10 GB/s between sockets, five sixths of it");
        assert_eq!(look(3, 0), (PathKind::Nvl, 40_000, 1), "two links of 20 GB/s, in both directions");
        assert_eq!(look(0, 3), look(3, 0));
        assert_eq!(paths.to_port(0, 0).map(|p| (p.kind, p.rate.0)), Some((PathKind::Pix, 12_000)));
        assert_eq!(paths.to_port(1, 0).map(|p| p.kind), Some(PathKind::Pxb));
        assert_eq!(paths.to_port(2, 0).map(|p| p.kind), Some(PathKind::Phb));
        let through = paths.to_port(3, 0).expect("through g0");
        assert_eq!((through.kind, through.through), (PathKind::Pxn, Some(0)));
        assert_eq!(paths.from_port(0, 4).map(|p| p.kind), Some(PathKind::Sys), "g4 has no NVLink");
    }

    #[test]
    fn hosts_of_one_machine_meet_over_switches_alone() {
        let paths = paths(
            r#"
            cpu c0 host=a { 
              gpu g0 bus=a0 sm=100
              nic { 
                port p speed=400000
              }
            }
            cpu c1 host=b { 
              gpu g1 bus=b0 sm=100
              gpu g2 bus=b1 sm=100
            }
            switch s0 bus=s
            nvlink g0 s0 count=18
            nvlink g1 s0 count=18
            c2c g0 c0 each=450
            "#,
        );
        let path = paths.between(0, 1).expect("over the switch");
        assert_eq!((path.kind, path.rate, path.hops), (PathKind::Nvl, Rate(18 * 40_100), 2));
        assert!(paths.between(0, 2).is_none(), "no way from one host to the other");
        assert_eq!(paths.to_port(0, 0).map(|p| p.kind), Some(PathKind::C2c));
        assert_eq!(paths.to_port(1, 0).map(|p| (p.kind, p.through)), Some((PathKind::Pxn, Some(0))));
        assert!(paths.to_port(2, 0).is_none());
    }
}
