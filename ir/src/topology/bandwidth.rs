//! What a link carries: the one table of numbers behind every topology.
//!
//! Effective rates for large transfers, in each direction, as NCCL 2.30 has them in
//! `src/graph/topo.h` and `topo.cc`; AMD's as RCCL has them. A number that a description gives wins.
//! What a description gives and cannot be is replaced by an assumption, which [`super::remarks`] tells.

use super::Device;
use super::{Cpu, Gpu, Kind, Link, LinkKind, Machine, Pci};
use std::fmt;

/// A rate in MB/s (10^6 bytes a second), in one direction. Prints in GB/s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Rate(pub u64);

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0 + 50) / 100;
        match self.0 {
            0..950 => write!(f, "{}.{:03} GB/s", self.0 / 1000, self.0 % 1000),
            _ if tenths.is_multiple_of(10) => write!(f, "{} GB/s", tenths / 10),
            _ => write!(f, "{}.{} GB/s", tenths / 10, tenths % 10),
        }
    }
}

/// PCIe 3.0 with 16 lanes: what NCCL assumes where a link does not say.
pub const ASSUMED_PCIE: Rate = Rate(12_000);

/// What a GPU moves within its own memory: NCCL's `LOC_BW`.
pub const LOCAL: Rate = Rate(5_000_000);

/// 10 Gbit/s: what NCCL assumes of a port that does not say.
const ASSUMED_PORT_MBIT_PER_S: u64 = 10_000;

/// The fastest port that is believed, 10 Tbit/s. Ours: six times what is sold in 2026.
const MAX_PORT_MBIT_PER_S: u64 = 10_000_000;

/// What one NVLink carries, by compute capability: NCCL's `SM60_NVLINK_BW` and its kin.
fn nvlink(sm: Option<u32>) -> Rate {
    Rate(match sm {
        Some(100..) => 40_100,
        Some(90..100) => 20_600,
        Some(86) => 12_000,
        Some(60..70) => 18_000,
        Some(_) | None => 20_000,
    })
}

/// What one xGMI link carries, by architecture: RCCL's `VEGA_XGMI_WIDTH`, `MI200_XGMI_WIDTH` and
/// `GFX94X_XGMI_WIDTH`.
fn xgmi(gcn: Option<&str>) -> Rate {
    Rate(match gcn.map(|name| name.trim_start_matches("gfx")) {
        Some("90a" | "910") => 36_000,
        Some(name) if name.starts_with("94") || name.starts_with("95") => 48_000,
        Some(_) | None => 24_000,
    })
}

/// What one link carries in each direction.
pub fn each(machine: &Machine, link: &Link) -> Rate {
    let unknown = Gpu::default();
    let gpu = match &machine.devices[link.from].kind {
        Kind::Gpu(gpu) => gpu,
        Kind::Cpu(_) | Kind::Bridge | Kind::Nic(_) | Kind::Switch | Kind::Other => &unknown,
    };
    link.each.unwrap_or_else(|| match link.kind {
        // Compute units, in AMD's files, say nothing about NVLink; but those have none.
        LinkKind::Nvlink => nvlink(gpu.sm),
        LinkKind::Xgmi => xgmi(gpu.gcn.as_deref()),
        // NVLink-C2C of a Grace CPU: 900 GB/s in both directions together.
        LinkKind::C2c => Rate(450_000),
    })
}

/// What all links of one statement carry together.
pub fn of_link(machine: &Machine, link: &Link) -> Rate {
    Rate(each(machine, link).0.saturating_mul(link.count.into()))
}

/// What a PCIe link carries by its speed and width; none if either means nothing.
///
/// NCCL counts 8 GT/s with 16 lanes as 12 GB/s, and other links in proportion.
pub fn pcie(speed: &str, width: u32) -> Option<Rate> {
    let number = speed.trim().split_once("GT/s").map(|(number, _)| number.trim())?;
    let per_lane_tenths: u64 = match number.trim_end_matches(".0") {
        "2.5" => 1_875,
        "5" => 3_750,
        "8" => 7_500,
        "16" => 15_000,
        "32" => 30_000,
        "64" => 60_000,
        "128" => 120_000,
        _ => return None,
    };
    (1..=64).contains(&width).then(|| Rate(per_lane_tenths * u64::from(width) / 10))
}

/// Why a PCIe link's numbers are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The description does not give both numbers.
    Unknown,
    /// One lane of the first generation: what bridges of virtual machines report.
    Absurd,
}

/// What the link above a device carries, and why if that is assumed. None for what has no such link.
///
/// One lane of PCIe 1 is believed of a card that needs no more, and of nothing with a GPU below.
pub fn above(machine: &Machine, device: Device) -> Option<(Rate, Option<Doubt>)> {
    let data = &machine.devices[device];
    data.parent?;
    let Some(pci) = &data.pci else {
        // A port that hangs at a CPU: its own speed is the limit.
        return Some((Rate(u64::MAX / 4), None));
    };
    Some(match pcie(&pci.speed, pci.width) {
        None => (ASSUMED_PCIE, Some(Doubt::Unknown)),
        Some(rate) if rate.0 < 200 && is_more_than(machine, device, rate) => {
            (ASSUMED_PCIE, Some(Doubt::Absurd))
        }
        Some(rate) => (rate, None),
    })
}

/// Whether a device can be seen to do more than a rate.
fn is_more_than(machine: &Machine, device: Device, rate: Rate) -> bool {
    match &machine.devices[device].kind {
        Kind::Gpu(_) | Kind::Bridge | Kind::Switch => true,
        Kind::Nic(nic) => nic.ports.iter().any(|port| port.speed_mbit_per_s > rate.0 * 8),
        Kind::Cpu(_) | Kind::Other => false,
    }
}

/// What a port sends, and receives; true if that is assumed.
///
/// A port whose speed nobody gives, or that cannot be, is taken to be as fast as its card's PCIe link.
pub fn of_port(machine: &Machine, (nic, port): (Device, usize)) -> (Rate, bool) {
    let said = match &machine.devices[nic].kind {
        Kind::Nic(facts) => facts.ports.get(port).map_or(0, |port| port.speed_mbit_per_s),
        Kind::Cpu(_) | Kind::Bridge | Kind::Gpu(_) | Kind::Switch | Kind::Other => 0,
    };
    if (1..=MAX_PORT_MBIT_PER_S).contains(&said) {
        return (Rate((said / 8).max(1)), false);
    }
    let pci = machine.devices[nic].pci.as_ref();
    let link = pci.and_then(|Pci { speed, width, .. }| pcie(speed, *width));
    (link.unwrap_or(Rate(ASSUMED_PORT_MBIT_PER_S / 8)), true)
}

/// What a NUMA node carries to another one of its host: NCCL's `AMD_ZEN34_BW` and its kin.
pub fn of_interconnect(cpu: &Cpu) -> Rate {
    cpu.interconnect.unwrap_or_else(|| {
        Rate(match (cpu.arch.as_str(), cpu.vendor.as_str()) {
            ("arm64" | "aarch64", _) => 6_000,
            ("ppc64", _) => 32_000,
            (_, "GenuineIntel") => match (cpu.family, cpu.model) {
                (6, 0xCF..) => 40_000,
                (6, 0x8F..) => 22_000,
                (6, 0x55..) => 10_000,
                (_, _) => 6_000,
            },
            (_, "AuthenticAMD") => match amd_family(cpu.family) {
                26.. => 32_000,
                25 => 24_000,
                _ => 16_000,
            },
            (_, _) => 6_000,
        })
    })
}

/// AMD's family; files have it as one number or as the CPU's two fields side by side (0x8F is 23).
fn amd_family(family: u32) -> u32 {
    if (0x80..=0xFF).contains(&family) { (family & 0xF) + (family >> 4) } else { family }
}

/// Whether messages between GPUs through this CPU are cut into small ones, which costs a fifth more of
/// every link: NCCL's `INTEL_P2P_OVERHEAD`.
pub fn cuts_messages(cpu: &Cpu) -> bool {
    cpu.vendor == "GenuineIntel"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pcie_links_are_counted_as_nccl_counts_them() {
        // NCCL's log calls 16 lanes of each generation 3, 6, 12, 24, 48 and 96 GB/s.
        for (speed, rate) in [
            ("2.5 GT/s PCIe", 3_000),
            ("5 GT/s", 6_000),
            ("8.0 GT/s PCIe", 12_000),
            ("16 GT/s", 24_000),
            ("32.0 GT/s PCIe", 48_000),
            ("64 GT/s", 96_000),
        ] {
            assert_eq!(pcie(speed, 16), Some(Rate(rate)), "{speed}");
        }
        assert_eq!(pcie("2.5 GT/s PCIe", 1), Some(Rate(187)));
        for (speed, width) in
            [("", 0), ("", 16), ("8 GT/s", 0), ("7 GT/s", 16), ("Unknown", 16), ("8 GT/s", 255)]
        {
            assert_eq!(pcie(speed, width), None, "{speed} {width}");
        }
    }

    #[test]
    fn rates_are_told_in_gb() {
        let shown = |mb| Rate(mb).to_string();
        assert_eq!(
            [shown(12_000), shown(370_800), shown(187), shown(125), shown(1_250)],
            ["12 GB/s", "370.8 GB/s", "0.187 GB/s", "0.125 GB/s", "1.3 GB/s"]
        );
    }

    #[test]
    fn a_family_of_amd_may_be_written_in_two_ways() {
        assert_eq!([amd_family(143), amd_family(23), amd_family(175), amd_family(26)], [23, 23, 25, 26]);
    }
}
