//! Making a machine out of what a description says, piece by piece, and checking it.
//!
//! Every reader goes through here: texts, XML, discovery. What cannot be is a diagnostic with the
//! place that the reader gave; what can be and is odd is a remark, and the machine is made without it.

use super::{Device, DeviceData, Kind, Link, LinkKind, Machine, Pci, Rate, codes};
use crate::diagnostic::{Code, Diagnostic, Span};
use cranelift_entity::PrimaryMap;
use std::collections::BTreeMap;

/// The most devices of a machine. Ours: a rack of 72 GPUs has some 500.
pub const MAX_DEVICES: usize = 1 << 14;

/// The most GPUs of a machine. Ours: paths between them are kept for each pair.
pub const MAX_GPUS: usize = 256;

/// The most ports of network cards of a machine. Ours, as above.
pub const MAX_PORTS: usize = 256;

/// The most links of one statement. Ours: 18 is what is sold.
pub const MAX_COUNT: u32 = 1024;

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To a device of this machine.
    Device(Device),
    /// To whatever has this address; the class says what that should be.
    Bus {
        /// The address.
        bus: String,
        /// The PCIe class that the description gives it; 0 for none.
        class: u32,
    },
    /// To the CPU that the GPU hangs below.
    OwnCpu,
}

/// Links from a GPU, as a description says it.
#[derive(Clone, Debug)]
pub struct Said {
    /// What they are.
    pub kind: LinkKind,
    /// The GPU.
    pub from: Device,
    /// Where they lead.
    pub to: Target,
    /// How many.
    pub count: u32,
    /// What each carries, if the description says so.
    pub each: Option<Rate>,
    /// Whether it speaks for both ends.
    pub both: bool,
    /// Where that is said.
    pub span: Span,
}

/// A machine, and what is odd about its description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The machine.
    pub machine: Machine,
    /// What was left out or changed, one sentence each.
    pub remarks: Vec<String>,
}

/// A machine in the making.
pub struct Builder {
    machine: Machine,
    spans: Vec<Span>,
    said: Vec<Said>,
    remarks: Vec<String>,
    diagnostics: Vec<Diagnostic>,
    full: bool,
}

/// NVLink to a CPU has this class as its target, as POWER9 shows it.
const CPU_BRIDGE: u32 = 0x06_80_01;
/// An NVSwitch.
pub(super) const SWITCH: u32 = 0x06_80_00;

/// What has been said of the links between two devices.
#[derive(Default)]
struct Sum {
    from: Option<u32>,
    to: Option<u32>,
    each: Option<Rate>,
    span: Span,
}

impl Builder {
    /// An empty machine.
    pub fn new(name: impl Into<String>) -> Self {
        let machine = Machine { name: name.into(), devices: PrimaryMap::new(), links: Vec::new() };
        let (spans, said, remarks) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, spans, said, remarks, diagnostics: Vec::new(), full: false }
    }

    /// Adds a device below another one. None, with a diagnostic, if it cannot hang there.
    pub fn add(
        &mut self,
        parent: Option<Device>,
        kind: Kind,
        pci: Option<Pci>,
        span: Span,
    ) -> Option<Device> {
        if self.machine.devices.len() >= MAX_DEVICES {
            if !std::mem::replace(&mut self.full, true) {
                let message = format!("a machine has at most {MAX_DEVICES} devices");
                self.report(codes::TOO_MUCH, message, span, "this one is one too many");
            }
            return None;
        }
        let above = parent.map(|parent| &self.machine.devices[parent].kind);
        let fits = match (&kind, above) {
            (Kind::Cpu(_), above) => above.is_none(),
            (Kind::Switch, None) => true,
            (_, above) => matches!(above, Some(Kind::Cpu(_) | Kind::Bridge | Kind::Other | Kind::Switch)),
        };
        if !fits {
            let place = if parent.is_some() { "below this" } else { "at the top" };
            let message = format!("{} cannot hang {place}", named(&kind));
            self.report(codes::STATEMENT, message, span, "it hangs below a CPU or a bridge");
            return None;
        }
        // With no address nobody can say which bridge it is behind; NCCL's XML has no such place either.
        if matches!(kind, Kind::Nic(_)) && pci.is_none() && !matches!(above, Some(Kind::Cpu(_))) {
            let message = "a network card without an address cannot hang below a bridge";
            self.report(codes::STATEMENT, message, span, "give its `bus`, or move it to its CPU");
            return None;
        }
        self.spans.push(span);
        Some(self.machine.devices.push(DeviceData { parent, kind, pci }))
    }

    /// The machine as it is so far.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A device, to be completed.
    pub fn device_mut(&mut self, device: Device) -> &mut DeviceData {
        &mut self.machine.devices[device]
    }

    /// Adds links from a GPU.
    pub fn link(&mut self, said: Said) {
        let (count, span) = (said.count, said.span);
        if !(1..=MAX_COUNT).contains(&count) {
            let message = format!("{count} links between two devices cannot be");
            self.report(codes::VALUE, message, span, format!("expected 1 to {MAX_COUNT}"));
            return;
        }
        if said.each.is_some_and(|rate| rate.0 == 0) {
            self.report(codes::VALUE, "a link cannot carry nothing", span, "expected more than 0 GB/s");
            return;
        }
        self.said.push(said);
    }

    /// Says that something was left out or changed.
    pub fn remark(&mut self, remark: impl Into<String>) {
        self.remarks.push(remark.into());
    }

    /// Reports a mistake that the reader has found.
    pub fn report(&mut self, code: Code, message: impl Into<String>, span: Span, label: impl Into<String>) {
        self.diagnostics.push(Diagnostic::new(code, message, span, label));
    }

    /// Resolves the links and checks the whole.
    ///
    /// Errors: everything that is wrong, in the order in which it was found.
    pub fn finish(mut self, whole: Span) -> Result<Built, Vec<Diagnostic>> {
        if self.machine.cpus().is_empty() && self.diagnostics.is_empty() {
            let label = "it needs at least one `cpu`";
            self.report(codes::EMPTY, "a machine without a CPU", whole, label);
        }
        self.bounds();
        self.addresses();
        self.resolve();
        if self.diagnostics.is_empty() {
            Ok(Built { machine: self.machine, remarks: self.remarks })
        } else {
            Err(self.diagnostics)
        }
    }

    fn bounds(&mut self) {
        let gpus = self.machine.gpus();
        if let Some(&one) = gpus.get(MAX_GPUS) {
            let message = format!("a machine has at most {MAX_GPUS} GPUs");
            self.report(codes::TOO_MUCH, message, self.spans[one.0 as usize], "this one is one too many");
        }
        if let Some(&(nic, _)) = self.machine.ports().get(MAX_PORTS) {
            let message = format!("a machine has at most {MAX_PORTS} ports of network cards");
            self.report(codes::TOO_MUCH, message, self.spans[nic.0 as usize], "this card has one too many");
        }
    }

    /// Two GPUs or switches of one address could not be told apart by links.
    fn addresses(&mut self) {
        let mut first: BTreeMap<String, Device> = BTreeMap::new();
        let mut found = Vec::new();
        for (device, data) in &self.machine.devices {
            let (Kind::Gpu(_) | Kind::Switch, Some(pci)) = (&data.kind, &data.pci) else { continue };
            if let Some(earlier) = first.insert(canonical(&pci.bus), device) {
                let message = format!("two devices have the address {}", pci.bus);
                let (here, there) = (self.spans[device.0 as usize], self.spans[earlier.0 as usize]);
                let diagnostic = Diagnostic::new(codes::DUPLICATE, message, here, "the second one");
                found.push(diagnostic.label(there, "the first one"));
            }
        }
        self.diagnostics.extend(found);
    }

    fn resolve(&mut self) {
        let gpus = self.machine.gpus();
        let mut number = BTreeMap::new();
        let mut at_bus: BTreeMap<String, Device> = BTreeMap::new();
        for (index, &gpu) in gpus.iter().enumerate() {
            number.insert(gpu, index);
        }
        for (device, data) in &self.machine.devices {
            if let (Kind::Gpu(_) | Kind::Switch, Some(pci)) = (&data.kind, &data.pci) {
                at_bus.insert(canonical(&pci.bus), device);
            }
        }
        let mut sums: BTreeMap<(usize, Device, LinkKind), Sum> = BTreeMap::new();
        for said in std::mem::take(&mut self.said) {
            let Some(&at) = number.get(&said.from) else {
                self.report(codes::LINK, "a link begins at a GPU", said.span, "this is none");
                continue;
            };
            let Some(to) = self.target(&said, at, &mut at_bus) else { continue };
            // Of two GPUs, the one with the lower number comes first.
            let (from, to, turned) = match number.get(&to) {
                Some(&other) if other == at => {
                    self.leads_to_itself(&said, at);
                    continue;
                }
                Some(&other) if other < at => (other, said.from, true),
                _ => (at, to, false),
            };
            self.add_up(&mut sums, (from, to, said.kind), &said, turned);
        }
        for ((from, to, kind), sum) in sums {
            let (near, far) = (format!("g{from}"), number.get(&to).map(|index| format!("g{index}")));
            let count = match (sum.from, sum.to, &far) {
                (Some(a), Some(b), Some(far)) if a != b => {
                    let fewer = a.min(b);
                    self.remark(format!(
                        "{near} says that {a} {kind} lead to {far}, and {far} that {b} lead back: {fewer} are taken"
                    ));
                    fewer
                }
                (a, b, _) => a.or(b).unwrap_or(1),
            };
            self.machine.links.push(Link { kind, from: gpus[from], to, count, each: sum.each });
        }
    }

    fn add_up(
        &mut self,
        sums: &mut BTreeMap<(usize, Device, LinkKind), Sum>,
        key: (usize, Device, LinkKind),
        said: &Said,
        turned: bool,
    ) {
        let sum = sums.entry(key).or_default();
        if said.both && sum.from.is_some() {
            let message = format!("the {} between these two are given twice", said.kind);
            let diagnostic = Diagnostic::new(codes::DUPLICATE, message, said.span, "the second time");
            self.diagnostics.push(diagnostic.label(sum.span, "the first time"));
            return;
        }
        if sum.from.is_none() && sum.to.is_none() {
            (sum.span, sum.each) = (said.span, said.each);
        }
        let ends: &mut [&mut Option<u32>] = match (said.both, turned) {
            (true, _) => &mut [&mut sum.from, &mut sum.to],
            (false, false) => &mut [&mut sum.from],
            (false, true) => &mut [&mut sum.to],
        };
        for end in ends {
            **end = Some((end.unwrap_or(0) + said.count).min(MAX_COUNT));
        }
    }

    fn leads_to_itself(&mut self, said: &Said, at: usize) {
        if said.both {
            self.report(codes::LINK, "a link from a GPU to itself", said.span, "both ends are the same");
        } else {
            self.remark(format!(
                "g{at}: its {} {} lead to itself, so that where they lead is unknown: they are left out",
                said.count, said.kind
            ));
        }
    }

    /// The device that a link leads to. None if it is left out, with a remark or a diagnostic.
    fn target(&mut self, said: &Said, at: usize, at_bus: &mut BTreeMap<String, Device>) -> Option<Device> {
        let (bus, class) = match &said.to {
            Target::Device(to) => {
                let cpu = matches!(self.machine.devices[*to].kind, Kind::Cpu(_));
                let may = match self.machine.devices[*to].kind {
                    Kind::Gpu(_) => said.kind != LinkKind::C2c,
                    Kind::Switch => said.kind == LinkKind::Nvlink,
                    Kind::Cpu(_) => said.kind != LinkKind::Xgmi,
                    Kind::Bridge | Kind::Nic(_) | Kind::Other => false,
                };
                if !may || cpu && self.machine.cpu_of(said.from) != Some(*to) {
                    let message = format!("no {} can lead there", said.kind);
                    let label =
                        "NVLinks lead to GPUs, switches or the GPU's own CPU, xgmi to GPUs, c2c to that CPU";
                    self.report(codes::LINK, message, said.span, label);
                    return None;
                }
                return Some(*to);
            }
            Target::OwnCpu => return self.machine.cpu_of(said.from),
            Target::Bus { bus, class } => (bus, *class),
        };
        if let Some(&device) = at_bus.get(&canonical(bus)) {
            return Some(device);
        }
        match class {
            SWITCH if said.kind == LinkKind::Nvlink => {
                let pci = Pci { bus: bus.clone(), class: SWITCH, ..Pci::default() };
                let device = self.add(None, Kind::Switch, Some(pci), said.span)?;
                at_bus.insert(canonical(bus), device);
                Some(device)
            }
            CPU_BRIDGE => self.machine.cpu_of(said.from),
            _ => {
                self.remark(format!(
                    "g{at}: {} {} lead to {bus}, which is not listed: they are left out",
                    said.count, said.kind
                ));
                None
            }
        }
    }
}

/// An address as it is compared.
fn canonical(bus: &str) -> String {
    bus.trim().to_ascii_lowercase()
}

fn named(kind: &Kind) -> &'static str {
    match kind {
        Kind::Cpu(_) => "a CPU",
        Kind::Bridge => "a bridge",
        Kind::Gpu(_) => "a GPU",
        Kind::Nic(_) => "a network card",
        Kind::Switch => "a switch",
        Kind::Other => "a PCIe device",
    }
}
