//! Machines and what joins them: GPUs, NUMA nodes, PCIe bridges, NICs, NVLink switches, and the links
//! between, as weighted graphs.
//!
//! The first thing that planning needs. Descriptions come from texts ([`parse`]), from NCCL's XML
//! (the compiler's `import`), from discovery (the runtime) or from a table of known machines; all of
//! them go through [`Builder`], which checks. What a link carries follows from what is written of it
//! ([`bandwidth`]); what a pair of devices gets follows from the links between ([`paths`]). Nothing
//! here finds anything out about this machine.
//!
//! The vocabulary follows NCCL's `src/graph/topo.h`, so that its files mean the same here.

pub mod bandwidth;
mod build;
pub mod codes;
pub mod paths;

mod line;
mod print;
mod read;
mod remarks;
mod tokens;

pub use bandwidth::Rate;
pub use build::{Builder, Built, MAX_COUNT, MAX_DEVICES, MAX_GPUS, MAX_PORTS, Said, Target};
pub use line::is_key;
pub use print::print;
pub use read::{MAX_BYTES, MAX_DEPTH, parse};
pub use remarks::remarks;

use cranelift_entity::{PrimaryMap, entity_impl};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The most nodes of a topology. Ours: what a plan's ranks can be spread over.
pub const MAX_NODES: u32 = 1 << 16;

/// The most machines of a topology that differ. Ours: every new one is compared with those before it.
pub const MAX_MACHINES: usize = 4096;

/// One device of a machine. Written `d3` in dumps; people see names such as `g0`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Device(u32);
entity_impl!(Device, "d");

/// Names and values that are kept and written back, and mean nothing here.
pub type Carried = Vec<(String, String)>;

/// A cluster: the machines it is made of, and how many there are of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// What to call it.
    pub name: String,
    /// What was taken for granted when it was made, one sentence each.
    pub assumed: Vec<String>,
    /// Machines that differ from each other.
    pub machines: Vec<Machine>,
    /// The nodes in their order.
    pub nodes: Vec<Nodes>,
}

/// A row of nodes that are all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Which machine, by its place in [`Topology::machines`].
    pub machine: usize,
    /// How many of it.
    pub count: u32,
}

impl Topology {
    /// A cluster of one node.
    pub fn of(machine: Machine) -> Self {
        let (name, machines) = (machine.name.clone(), vec![machine]);
        Self { name, assumed: Vec::new(), machines, nodes: vec![Nodes { machine: 0, count: 1 }] }
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> u32 {
        self.nodes.iter().map(|nodes| nodes.count).sum()
    }

    /// How many GPUs there are in all.
    pub fn gpu_count(&self) -> u64 {
        let gpus = |nodes: &Nodes| u64::from(nodes.count) * self.machines[nodes.machine].gpus().len() as u64;
        self.nodes.iter().map(gpus).sum()
    }

    /// The same cluster, every node of it `times` over: all of the cluster, and then all of it again.
    ///
    /// Errors: the number of nodes, if there would be more than [`MAX_NODES`].
    pub fn times(mut self, times: u32) -> Result<Self, u64> {
        let all = u64::from(self.node_count()) * u64::from(times);
        if all > u64::from(MAX_NODES) {
            return Err(all);
        }
        match &mut self.nodes[..] {
            [one] => one.count *= times,
            several => self.nodes = several.repeat(times as usize),
        }
        Ok(self)
    }

    /// Adds a node, which shares its description with those that are the same.
    pub fn push(&mut self, machine: Machine, count: u32) {
        let index = self.machines.iter().position(|known| *known == machine).unwrap_or_else(|| {
            self.machines.push(machine);
            self.machines.len() - 1
        });
        match self.nodes.last_mut() {
            Some(last) if last.machine == index => last.count += count,
            _ => self.nodes.push(Nodes { machine: index, count }),
        }
    }
}

/// What is joined without a network: usually one host, or the hosts of one NVLink domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// What to call it.
    pub name: String,
    /// Its devices. Parents come before their children, and a device's children right after it.
    pub devices: PrimaryMap<Device, DeviceData>,
    /// Links besides those of the PCIe tree, in the order of their ends.
    pub links: Vec<Link>,
}

/// A device and where it hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceData {
    /// What it hangs below; none for CPUs and NVLink switches.
    pub parent: Option<Device>,
    /// What it is.
    pub kind: Kind,
    /// Its place on PCIe; none for CPUs, and for NICs of which only the ports are known.
    pub pci: Option<Pci>,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A NUMA node: cores, memory and a root of PCIe.
    Cpu(Cpu),
    /// A PCIe bridge or switch.
    Bridge,
    /// A GPU.
    Gpu(Gpu),
    /// A network card.
    Nic(Nic),
    /// A switch of NVLinks.
    Switch,
    /// Some other PCIe device.
    Other,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cpu {
    /// Which host of the machine it belongs to: equal names are one host.
    pub host: String,
    /// Its number, -1 where the host does not say.
    pub numa: i32,
    /// Its architecture, such as `x86_64`.
    pub arch: String,
    /// Its maker, as the CPU spells it.
    pub vendor: String,
    /// The maker's family.
    pub family: u32,
    /// The maker's model.
    pub model: u32,
    /// What it carries to another NUMA node of its host, where that is known.
    pub interconnect: Option<Rate>,
    /// Further attributes.
    pub carried: Carried,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Gpu {
    /// Its number on its host.
    pub dev: Option<u32>,
    /// NVIDIA's compute capability times ten, such as 90. AMD's files give the number of compute
    /// units here, and `gcn` as well.
    pub sm: Option<u32>,
    /// AMD's architecture, such as `gfx942` or `908`.
    pub gcn: Option<String>,
    /// The rank that uses it.
    pub rank: Option<u32>,
    /// Whether it was listed as a GPU, and not only found by its PCIe class.
    pub listed: bool,
    /// Further attributes.
    pub carried: Carried,
}

/// A network card.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Nic {
    /// Its ports; none if only its PCIe class is known.
    pub ports: Vec<Port>,
}

/// A port of a network card: what a message can leave by.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Port {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// Its number among the host's ports.
    pub dev: Option<u32>,
    /// What it carries, in Mbit/s; 0 where nobody knows.
    pub speed_mbit_per_s: u64,
    /// Further attributes.
    pub carried: Carried,
}

/// A place on PCIe.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pci {
    /// Its address, such as `0000:18:00.0`.
    pub bus: String,
    /// Its class, such as 0x030200.
    pub class: u32,
    /// The speed of a lane of the link above it, as sysfs spells it; may be empty.
    pub speed: String,
    /// Lanes of that link; 0 where nobody knows.
    pub width: u32,
    /// Further attributes.
    pub carried: Carried,
}

/// What a link besides PCIe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LinkKind {
    /// NVIDIA's NVLink, between GPUs or to a switch.
    Nvlink,
    /// AMD's, between GPUs.
    Xgmi,
    /// Between a GPU and the CPU it hangs below.
    C2c,
}

impl LinkKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Nvlink, Self::Xgmi, Self::C2c];

    /// The word for it in texts and in XML.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvlink => "nvlink",
            Self::Xgmi => "xgmi",
            Self::C2c => "c2c",
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Links of one kind between two devices, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// What they are.
    pub kind: LinkKind,
    /// The GPU at one end; of two GPUs the one with the lower number.
    pub from: Device,
    /// The other end.
    pub to: Device,
    /// How many.
    pub count: u32,
    /// What one of them carries in each direction, where that is known.
    pub each: Option<Rate>,
}

impl Machine {
    /// The GPUs by their number: in the order of ranks where all have one of their own, else of their
    /// numbers on the host, else of the description.
    pub fn gpus(&self) -> Vec<Device> {
        let facts = |device: &Device| match &self.devices[*device].kind {
            Kind::Gpu(gpu) => Some((gpu.rank, gpu.dev)),
            Kind::Cpu(_) | Kind::Bridge | Kind::Nic(_) | Kind::Switch | Kind::Other => None,
        };
        let mut gpus: Vec<Device> = self.devices.keys().filter(|device| facts(device).is_some()).collect();
        let rank = |device: &Device| facts(device).and_then(|(rank, _)| rank);
        let dev = |device: &Device| facts(device).and_then(|(_, dev)| dev);
        if distinct(gpus.iter().map(rank)) {
            gpus.sort_by_key(rank);
        } else if distinct(gpus.iter().map(dev)) {
            gpus.sort_by_key(dev);
        }
        gpus
    }

    /// The CPUs in the order of the description.
    pub fn cpus(&self) -> Vec<Device> {
        self.devices.keys().filter(|device| matches!(self.devices[*device].kind, Kind::Cpu(_))).collect()
    }

    /// The switches of NVLinks that links lead to or that stand alone, in the order of the description.
    pub fn switches(&self) -> Vec<Device> {
        self.devices.keys().filter(|device| matches!(self.devices[*device].kind, Kind::Switch)).collect()
    }

    /// What GPUs, CPUs and switches are called in texts: `g0`, `c0`, `s0`.
    pub fn names(&self) -> BTreeMap<Device, String> {
        let numbered = |prefix: &'static str, devices: Vec<Device>| {
            devices.into_iter().enumerate().map(move |(index, device)| (device, format!("{prefix}{index}")))
        };
        numbered("g", self.gpus())
            .chain(numbered("c", self.cpus()))
            .chain(numbered("s", self.switches()))
            .collect()
    }

    /// The ports of all network cards, by their card and their place on it. A card of which only the
    /// class is known counts as one port.
    pub fn ports(&self) -> Vec<(Device, usize)> {
        let mut ports = Vec::new();
        for (device, data) in &self.devices {
            if let Kind::Nic(nic) = &data.kind {
                ports.extend((0..nic.ports.len().max(1)).map(|port| (device, port)));
            }
        }
        ports
    }

    /// A port's name: its own, or the address of its card.
    pub fn port_name(&self, (nic, port): (Device, usize)) -> String {
        let data = &self.devices[nic];
        let named = match &data.kind {
            Kind::Nic(facts) => facts.ports.get(port).map(|port| port.name.clone()),
            Kind::Cpu(_) | Kind::Bridge | Kind::Gpu(_) | Kind::Switch | Kind::Other => None,
        };
        let bus = || data.pci.as_ref().map_or_else(|| nic.to_string(), |pci| pci.bus.clone());
        named.filter(|name| !name.is_empty()).unwrap_or_else(bus)
    }

    /// The CPU that a device hangs below, itself included.
    pub fn cpu_of(&self, device: Device) -> Option<Device> {
        let mut at = device;
        // A child comes after its parent, so that this ends.
        while let Some(parent) = self.devices[at].parent {
            at = parent;
        }
        matches!(self.devices[at].kind, Kind::Cpu(_)).then_some(at)
    }

    /// The same machine without names, addresses and what is carried: machines of equal shape have equal
    /// paths.
    pub fn shape(&self) -> Self {
        let mut hosts = BTreeMap::new();
        let gpus: BTreeMap<Device, u32> = self.gpus().into_iter().zip(0..).collect();
        let mut shape = self.clone();
        shape.name.clear();
        for (device, data) in shape.devices.iter_mut() {
            if let Some(pci) = &mut data.pci {
                pci.bus.clear();
                pci.carried.clear();
            }
            match &mut data.kind {
                Kind::Cpu(cpu) => {
                    let count = hosts.len();
                    let number = *hosts.entry(std::mem::take(&mut cpu.host)).or_insert(count);
                    cpu.host = number.to_string();
                    cpu.carried.clear();
                }
                Kind::Gpu(gpu) => {
                    (gpu.rank, gpu.dev) = (None, gpus.get(&device).copied());
                    gpu.carried.clear();
                }
                Kind::Nic(nic) => {
                    for port in &mut nic.ports {
                        *port = Port { speed_mbit_per_s: port.speed_mbit_per_s, ..Port::default() };
                    }
                }
                Kind::Bridge | Kind::Switch | Kind::Other => (),
            }
        }
        shape
    }

    /// What the host of a device is called; none for what hangs below no CPU.
    pub fn host_of(&self, device: Device) -> Option<&str> {
        match &self.devices[self.cpu_of(device)?].kind {
            Kind::Cpu(cpu) => Some(&cpu.host),
            Kind::Bridge | Kind::Gpu(_) | Kind::Nic(_) | Kind::Switch | Kind::Other => None,
        }
    }

    /// Names of hosts, each once, in the order of the description.
    pub fn hosts(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let hosts = self.cpus().into_iter().filter_map(|cpu| self.host_of(cpu));
        hosts.filter(|host| seen.insert(*host)).collect()
    }
}

/// Whether all are there and no two are the same.
fn distinct(numbers: impl Iterator<Item = Option<u32>>) -> bool {
    let mut seen = BTreeSet::new();
    let mut numbers = numbers;
    numbers.all(|number| number.is_some_and(|number| seen.insert(number)))
}
