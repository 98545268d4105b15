//! Machines that are known by name, for planning without a description at hand.
//!
//! Each is put together from a published description, which its entry names. What links carry is not
//! written here: it follows from the architecture ([`ringsmith_ir::topology::bandwidth`]). Addresses on
//! PCIe are made up, and so the same on every node.

use ringsmith_ir::diagnostic::Span;
use ringsmith_ir::topology::{
    Builder, Cpu, Device, Gpu, Kind, LinkKind, Machine, Nic, Pci, Port, Said, Target, Topology,
};

/// A machine that is known by name.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What it is, and where that is written.
    pub source: &'static str,
    parts: Parts,
}

/// What a machine is made of. All of it repeats for every host.
#[derive(Clone, Copy, Debug)]
struct Parts {
    hosts: u32,
    cpus: u32,
    /// Architecture, maker, family, model.
    cpu: (&'static str, &'static str, u32, u32),
    /// PCIe switches below each CPU; 0 where devices hang at the CPU itself.
    switches_per_cpu: u32,
    /// GPUs and ports below each switch, or each CPU where there is none.
    gpus: u32,
    ports: u32,
    /// PCIe links of GPUs and switches, and those of network cards.
    pcie: &'static str,
    card_pcie: &'static str,
    sm: u32,
    port_mbit_per_s: u64,
    mesh: Mesh,
    chip_to_chip: bool,
}

/// How GPUs are joined.
#[derive(Clone, Copy, Debug)]
enum Mesh {
    /// By links between them: numbers of two GPUs, and how many.
    Direct(&'static [(u32, u32, u32)]),
    /// By this many links of each to one level of switches.
    Switched(u32),
}

const GEN3: &str = "8.0 GT/s PCIe";
const GEN4: &str = "16.0 GT/s PCIe";
const GEN5: &str = "32.0 GT/s PCIe";

/// The hybrid cube mesh: six links of each GPU, two of them double.
const CUBE_MESH: &[(u32, u32, u32)] = &[
    (0, 1, 1),
    (0, 2, 1),
    (0, 3, 2),
    (0, 4, 2),
    (1, 2, 2),
    (1, 3, 1),
    (1, 5, 2),
    (2, 3, 2),
    (2, 6, 1),
    (3, 7, 1),
    (4, 5, 1),
    (4, 6, 1),
    (4, 7, 2),
    (5, 6, 2),
    (5, 7, 1),
    (6, 7, 2),
];

/// Eight GPUs with a card each behind a PCIe switch of their own, joined by NVSwitches.
const HGX: Parts = Parts {
    hosts: 1,
    cpus: 2,
    cpu: ("x86_64", "GenuineIntel", 6, 143),
    switches_per_cpu: 4,
    gpus: 1,
    ports: 1,
    pcie: GEN5,
    card_pcie: GEN5,
    sm: 90,
    port_mbit_per_s: 400_000,
    mesh: Mesh::Switched(18),
    chip_to_chip: false,
};

/// Eight A100 behind four processors, each with a switch for two GPUs and two ports.
const HGX_A100: Parts = Parts {
    cpus: 4,
    cpu: ("x86_64", "AuthenticAMD", 23, 49),
    switches_per_cpu: 1,
    gpus: 2,
    ports: 2,
    pcie: GEN4,
    card_pcie: GEN4,
    sm: 80,
    port_mbit_per_s: 200_000,
    mesh: Mesh::Switched(12),
    ..HGX
};

/// Every machine that is known by name, in the order of its name.
pub const KNOWN: [Known; 11] = [
    Known {
        name: "aws-p4d",
        source: "p4d.24xlarge: 8 A100, 4 EFA of 100 Gbit/s; aws/aws-ofi-nccl, topology/p4d-24xl-topo.xml",
        parts: Parts {
            cpu: ("x86_64", "GenuineIntel", 6, 85),
            switches_per_cpu: 2,
            gpus: 2,
            ports: 1,
            pcie: GEN3,
            card_pcie: GEN3,
            sm: 80,
            port_mbit_per_s: 100_000,
            mesh: Mesh::Switched(12),
            ..HGX
        },
    },
    Known {
        name: "aws-p5",
        source: "p5.48xlarge: 8 H100, 32 EFA of 100 Gbit/s, four beside each GPU; aws/aws-ofi-nccl, topology/p5.48xl-topo.xml",
        parts: Parts {
            cpu: ("x86_64", "AuthenticAMD", 25, 1),
            ports: 4,
            card_pcie: GEN3,
            port_mbit_per_s: 100_000,
            ..HGX
        },
    },
    Known {
        name: "azure-ndv4",
        source: "Standard_ND96asr_v4: 8 A100, 8 HDR ports of 200 Gbit/s; Azure/azhpc-images, topology/ndv4-topo.xml",
        parts: HGX_A100,
    },
    Known {
        name: "azure-ndv5",
        source: "Standard_ND96isr_H100_v5: 8 H100, 8 NDR ports of 400 Gbit/s; Azure/azhpc-images, topology/ndv5-topo.xml",
        parts: HGX,
    },
    Known {
        name: "dgx-a100",
        source: "8 A100, 8 HDR ports of 200 Gbit/s beside two GPUs each two; NVIDIA DGX A100 System User Guide (DU-09821)",
        parts: HGX_A100,
    },
    Known {
        name: "dgx1v",
        source: "8 V100 in a hybrid cube mesh, 4 EDR ports of 100 Gbit/s; NVIDIA DGX-1 With Tesla V100 System Architecture (WP-08437-002), figures 4 and 5",
        parts: Parts {
            cpu: ("x86_64", "GenuineIntel", 6, 79),
            switches_per_cpu: 2,
            gpus: 2,
            ports: 1,
            pcie: GEN3,
            card_pcie: GEN3,
            sm: 70,
            port_mbit_per_s: 100_000,
            mesh: Mesh::Direct(CUBE_MESH),
            ..HGX
        },
    },
    Known {
        name: "dgx2",
        source: "16 V100 with six NVLinks each, 8 EDR ports of 100 Gbit/s; NVIDIA DGX-2 User Guide (DU-09130-001)",
        parts: Parts {
            cpu: ("x86_64", "GenuineIntel", 6, 85),
            switches_per_cpu: 4,
            gpus: 2,
            ports: 1,
            pcie: GEN3,
            card_pcie: GEN3,
            sm: 70,
            port_mbit_per_s: 100_000,
            mesh: Mesh::Switched(6),
            ..HGX
        },
    },
    Known {
        name: "gb200-nvl72",
        source: "18 trays of 2 Grace and 4 B200 in one NVLink domain, 4 NDR ports of 400 Gbit/s a tray; NVIDIA GB200 NVL72 data sheet and DGX GB Rack Scale Systems User Guide",
        parts: Parts {
            hosts: 18,
            cpu: ("arm64", "ARM", 0, 0),
            switches_per_cpu: 0,
            gpus: 2,
            ports: 2,
            sm: 100,
            chip_to_chip: true,
            ..HGX
        },
    },
    Known {
        name: "hgx-b200",
        source: "8 B200, 8 NDR ports of 400 Gbit/s; NVIDIA DGX B200 User Guide",
        parts: Parts { cpu: ("x86_64", "GenuineIntel", 6, 207), sm: 100, ..HGX },
    },
    Known {
        name: "hgx-h100",
        source: "8 H100, 8 NDR ports of 400 Gbit/s; NVIDIA DGX H100/H200 System User Guide",
        parts: HGX,
    },
    Known {
        name: "hgx-h200",
        source: "8 H200, 8 NDR ports of 400 Gbit/s; NVIDIA DGX H100/H200 System User Guide",
        parts: HGX,
    },
];

/// A cluster of one node that is known by this name.
pub fn known(name: &str) -> Option<Topology> {
    let known = KNOWN.iter().find(|known| known.name == name)?;
    Some(Topology::of(machine(known)))
}

fn machine(known: &Known) -> Machine {
    let parts = &known.parts;
    let mut builder = Builder::new(known.name);
    let mut gpus = Vec::new();
    let mut ports = 0;
    for host in 0..parts.hosts {
        for socket in 0..parts.cpus {
            let (arch, vendor, family, model) = parts.cpu;
            let cpu = Cpu {
                host: if parts.hosts > 1 { format!("0x{host:x}") } else { String::new() },
                numa: socket as i32,
                arch: arch.to_owned(),
                vendor: vendor.to_owned(),
                family,
                model,
                ..Cpu::default()
            };
            let cpu = add(&mut builder, None, Kind::Cpu(cpu), None);
            for branch in 0..parts.switches_per_cpu.max(1) {
                let place = |slot: u32| {
                    format!("{:04x}:{:02x}:{slot:02x}.0", host, 0x10 + socket * 0x40 + branch * 0x10)
                };
                let above = if parts.switches_per_cpu == 0 {
                    cpu
                } else {
                    add(&mut builder, Some(cpu), Kind::Bridge, Some(pci(place(0), 0x06_04_00, parts.pcie)))
                };
                for gpu in 0..parts.gpus {
                    let number = gpus.len() as u32;
                    let facts = Gpu {
                        dev: Some(number % (parts.cpus * parts.switches_per_cpu.max(1) * parts.gpus)),
                        sm: Some(parts.sm),
                        rank: Some(number),
                        listed: true,
                        carried: vec![("gdr".to_owned(), "1".to_owned())],
                        ..Gpu::default()
                    };
                    let at = pci(place(1 + gpu), 0x03_02_00, parts.pcie);
                    gpus.push(add(&mut builder, Some(above), Kind::Gpu(facts), Some(at)));
                }
                for port in 0..parts.ports {
                    let here = Port {
                        name: format!("net{ports}"),
                        dev: Some(ports),
                        speed_mbit_per_s: parts.port_mbit_per_s,
                        carried: vec![
                            ("port".to_owned(), "1".to_owned()),
                            ("gdr".to_owned(), "1".to_owned()),
                        ],
                    };
                    ports += 1;
                    let at = pci(place(0x10 + port), 0x02_07_00, parts.card_pcie);
                    add(&mut builder, Some(above), Kind::Nic(Nic { ports: vec![here] }), Some(at));
                }
            }
        }
    }
    join(&mut builder, parts, &gpus);
    builder.finish(Span::default()).expect("the table describes machines that can be").machine
}

fn join(builder: &mut Builder, parts: &Parts, gpus: &[Device]) {
    let mut link = |kind, from: u32, to, count| {
        let from = gpus[from as usize];
        builder.link(Said { kind, from, to, count, each: None, both: true, span: Span::default() });
    };
    match parts.mesh {
        Mesh::Direct(links) => {
            for &(from, to, count) in links {
                link(LinkKind::Nvlink, from, Target::Device(gpus[to as usize]), count);
            }
        }
        Mesh::Switched(count) => {
            for gpu in 0..gpus.len() as u32 {
                let to = Target::Bus { bus: "ffff:00:00.0".to_owned(), class: 0x06_80_00 };
                link(LinkKind::Nvlink, gpu, to, count);
            }
        }
    }
    if parts.chip_to_chip {
        for gpu in 0..gpus.len() as u32 {
            link(LinkKind::C2c, gpu, Target::OwnCpu, 1);
        }
    }
}

fn add(builder: &mut Builder, above: Option<Device>, kind: Kind, pci: Option<Pci>) -> Device {
    builder.add(above, kind, pci, Span::default()).expect("the table puts devices where they can be")
}

fn pci(bus: String, class: u32, speed: &str) -> Pci {
    Pci { bus, class, speed: speed.to_owned(), width: 16, ..Pci::default() }
}
