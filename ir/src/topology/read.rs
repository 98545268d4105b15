//! Reads a topology's text, every mistake at once.
//!
//! Line by line: a line is one device, port or link, and a block holds what hangs below. What a line
//! means is checked here, what the machine is by [`super::Builder`]. `docs/topology.md` describes the
//! form.

use super::build::{Builder, Said, Target};
use super::line::{Line, MAX_PARTS, carried, is_key, no_attribute, rate, short, take};
use super::print::{
    CPU_KEYS, CPU_KNOWN, GPU_KEYS, GPU_KNOWN, LINK_KEYS, PCI_KEYS, PCI_KNOWN, PORT_KEYS, PORT_KNOWN,
};
use super::tokens::{Part, What, split};
use super::{
    Cpu, Device, Gpu, Kind, LinkKind, MAX_MACHINES, MAX_NODES, Nic, Pci, Port, Rate, Topology, codes,
};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::text::{MAX_DIAGNOSTICS, in_order, nearest};
use std::collections::BTreeMap;

/// The largest text, in bytes. Ours: a rack of 72 GPUs takes some 60 KB.
pub const MAX_BYTES: usize = 1 << 24;

/// How deeply blocks may be nested. Ours: PCIe has a handful of levels.
pub const MAX_DEPTH: usize = 64;

/// Reads the text of a topology.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn parse(source: &str) -> Result<Topology, Vec<Diagnostic>> {
    if source.len() > MAX_BYTES {
        let message = format!("this text has {} bytes; at most {MAX_BYTES} are read", source.len());
        return Err(vec![Diagnostic::new(
            codes::TOO_MUCH,
            message,
            Span::default(),
            "nothing of it was read",
        )]);
    }
    let mut reader = Reader {
        topology: Topology {
            name: String::new(),
            assumed: Vec::new(),
            machines: Vec::new(),
            nodes: Vec::new(),
        },
        machine_names: BTreeMap::new(),
        nodes: Vec::new(),
        blocks: Vec::new(),
        begun: false,
        machine: None,
        diagnostics: Vec::new(),
    };
    let mut start = 0;
    for line in source.split('\n') {
        let parts = split(line, start, &mut reader.diagnostics);
        start += line.len() + 1;
        if !parts.is_empty() {
            reader.line(parts);
        }
        if reader.diagnostics.len() > MAX_DIAGNOSTICS {
            break;
        }
    }
    reader.finish(source)
}

/// A block that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inside {
    Topology,
    Machine,
    /// What hangs below a device.
    Device(Device),
    /// The ports of a network card.
    Nic(Device),
    /// A block whose first line could not be read.
    Lost,
}

/// A machine that is being read.
struct Open {
    builder: Builder,
    name: String,
    span: Span,
    devices: BTreeMap<String, (Device, Span)>,
    links: Vec<Named>,
    cpus: usize,
    switches: usize,
}

/// Links between two devices by their names.
struct Named {
    kind: LinkKind,
    ends: Vec<(String, Span)>,
    count: u32,
    each: Option<Rate>,
    span: Span,
}

struct Reader {
    topology: Topology,
    machine_names: BTreeMap<String, usize>,
    nodes: Vec<(u32, String, Span)>,
    blocks: Vec<(Inside, Span)>,
    begun: bool,
    machine: Option<Open>,
    diagnostics: Vec<Diagnostic>,
}

impl Reader {
    fn report(&mut self, code: Code, message: impl Into<String>, span: Span, label: impl Into<String>) {
        self.diagnostics.push(Diagnostic::new(code, message, span, label));
    }

    fn line(&mut self, parts: Vec<Part>) {
        let whole = Span { start: parts[0].span.start, end: parts[parts.len() - 1].span.end };
        let mut parts = parts;
        if let Some(more) = parts.get(MAX_PARTS) {
            let message = format!("a line has at most {MAX_PARTS} words and attributes");
            self.report(codes::TOO_MUCH, message, more.span, "from here on");
            parts.truncate(MAX_PARTS);
        }
        if parts[0].what == What::Close {
            if let Some(more) = parts.get(1) {
                self.report(
                    codes::EXPECTED,
                    "`}` stands alone on its line",
                    more.span,
                    "this goes on the next line",
                );
            }
            self.close(parts[0].span);
            return;
        }
        let Some(mut line) = self.arrange(parts, whole) else { return };
        let inside = self.blocks.last().map(|(inside, _)| *inside);
        let opened = match (inside, line.word.as_str()) {
            (None, "topology") if !self.begun => self.topology(&mut line),
            (None, word) => {
                let (code, message, label) = if self.begun {
                    (codes::STATEMENT, "the topology has ended".to_owned(), "nothing can follow it")
                } else {
                    (
                        codes::FORM,
                        format!("expected `topology`, found `{}`", short(word)),
                        "a topology's text begins with `topology NAME {`",
                    )
                };
                if self.begun || self.diagnostics.is_empty() {
                    self.report(code, message, line.at, label);
                }
                Inside::Lost
            }
            (Some(Inside::Lost), _) => Inside::Lost,
            (Some(Inside::Topology), word) => self.in_topology(word.to_owned().as_str(), &mut line),
            (Some(Inside::Machine), word) => self.in_machine(None, word.to_owned().as_str(), &mut line),
            (Some(Inside::Device(above)), word) => {
                self.in_machine(Some(above), word.to_owned().as_str(), &mut line)
            }
            (Some(Inside::Nic(nic)), "port") => {
                self.port(nic, &mut line);
                Inside::Lost
            }
            (Some(Inside::Nic(_)), word) => self.no_such_line(word, &["port"], line.at),
        };
        if line.opens {
            if self.blocks.len() >= MAX_DEPTH {
                self.report(
                    codes::TOO_MUCH,
                    format!("blocks are nested more than {MAX_DEPTH} deep"),
                    line.span,
                    "here",
                );
            }
            let may =
                matches!(opened, Inside::Topology | Inside::Machine | Inside::Device(_) | Inside::Nic(_));
            let known = ["port", "assumed", "nodes", "nvlink", "xgmi", "c2c"].contains(&line.word.as_str());
            if !may && known && inside != Some(Inside::Lost) {
                self.report(
                    codes::BLOCK,
                    format!("`{}` has no block", line.word),
                    line.span,
                    "`{` cannot stand here",
                );
            }
            self.blocks.push((opened, line.at));
        } else if matches!(opened, Inside::Topology | Inside::Machine) {
            self.report(
                codes::BLOCK,
                format!("`{}` needs a block", line.word),
                line.span,
                "expected `{` at the end of this line",
            );
            if opened == Inside::Machine {
                self.end_machine();
            }
        }
    }

    /// Sorts the parts of a line, and reports those that cannot stand where they do.
    fn arrange(&mut self, parts: Vec<Part>, span: Span) -> Option<Line> {
        let mut parts = parts.into_iter().peekable();
        let first = parts.next()?;
        let word = match first.what {
            What::Word(word) => word,
            What::Pair(..) | What::Open | What::Close => {
                self.report(
                    codes::STATEMENT,
                    "a line begins with a word that says what it is",
                    first.span,
                    "this is none",
                );
                let opens = parts.any(|part| part.what == What::Open) || first.what == What::Open;
                if opens {
                    self.blocks.push((Inside::Lost, first.span));
                }
                return None;
            }
        };
        let mut line =
            Line { word, at: first.span, span, words: Vec::new(), attributes: Vec::new(), opens: false };
        while let Some(part) = parts.next() {
            match part.what {
                What::Word(word) => line.words.push((word, part.span)),
                What::Pair(key, value) => {
                    if let Some((.., earlier)) = line.attributes.iter().find(|(known, ..)| *known == key) {
                        let message = format!("`{}` is given twice", short(&key));
                        let diagnostic =
                            Diagnostic::new(codes::ATTRIBUTE, message, part.span, "the second time");
                        self.diagnostics.push(diagnostic.label(*earlier, "the first time"));
                    } else {
                        line.attributes.push((key, value, part.span));
                    }
                }
                What::Open if parts.peek().is_none() => line.opens = true,
                What::Open | What::Close => {
                    self.report(
                        codes::BLOCK,
                        "a brace ends its line or stands alone",
                        part.span,
                        "one device a line",
                    );
                    line.opens |= part.what == What::Open;
                }
            }
        }
        Some(line)
    }

    fn close(&mut self, span: Span) {
        match self.blocks.pop() {
            None => self.report(codes::BLOCK, "this `}` closes nothing", span, "no block is open here"),
            Some((Inside::Machine, _)) => self.end_machine(),
            Some(_) => (),
        }
    }

    fn topology(&mut self, line: &mut Line) -> Inside {
        self.begun = true;
        self.topology.name = self.one_word(line, "a name").map_or_else(String::new, |(name, _)| name);
        self.nothing_else(line, &[]);
        Inside::Topology
    }

    fn in_topology(&mut self, word: &str, line: &mut Line) -> Inside {
        match word {
            "assumed" => {
                if let Some((text, _)) = self.one_word(line, "a sentence in quotes") {
                    self.topology.assumed.push(text);
                }
                self.nothing_else(line, &[]);
                Inside::Lost
            }
            "machine" => {
                let name = self.one_word(line, "a name for it, such as m0");
                let title = if line.words.is_empty() { None } else { Some(line.words.remove(0).0) };
                self.nothing_else(line, &[]);
                let (name, span) = name.unwrap_or((String::new(), line.span));
                self.machine = Some(Open {
                    builder: Builder::new(title.unwrap_or_else(|| name.clone())),
                    name,
                    span,
                    devices: BTreeMap::new(),
                    links: Vec::new(),
                    cpus: 0,
                    switches: 0,
                });
                Inside::Machine
            }
            "nodes" => {
                let count = self.one_word(line, "how many nodes");
                let name = self.one_word(line, "the name of their machine");
                self.nothing_else(line, &[]);
                if let (Some((count, at)), Some((name, span))) = (count, name) {
                    let count = self.number(&count, at, 1, MAX_NODES.into()).unwrap_or(1) as u32;
                    self.nodes.push((count, name, span));
                }
                Inside::Lost
            }
            _ => self.no_such_line(word, &["assumed", "machine", "nodes"], line.at),
        }
    }

    fn in_machine(&mut self, above: Option<Device>, word: &str, line: &mut Line) -> Inside {
        const WORDS: [&str; 9] = ["cpu", "bridge", "gpu", "nic", "switch", "device", "nvlink", "xgmi", "c2c"];
        match word {
            "cpu" => self.cpu(above, line),
            "gpu" => self.gpu(above, line),
            "bridge" => self.plain(above, line, Kind::Bridge),
            "device" => self.plain(above, line, Kind::Other),
            "switch" => self.plain(above, line, Kind::Switch),
            "nic" => {
                let pci = self.pci(line, false);
                self.carry(line, &PCI_KEYS, &PCI_KNOWN);
                let pci = pci.map(|pci| Pci { carried: carried(line), ..pci });
                match self.add(above, Kind::Nic(Nic::default()), pci, line) {
                    Some(nic) => Inside::Nic(nic),
                    None => Inside::Lost,
                }
            }
            "nvlink" | "xgmi" | "c2c" if above.is_none() => {
                let kind = LinkKind::ALL.into_iter().find(|kind| kind.name() == word);
                self.link(kind.unwrap_or(LinkKind::Nvlink), line);
                Inside::Lost
            }
            "nvlink" | "xgmi" | "c2c" => {
                let message = format!("`{word}` stands beside the CPUs of its machine");
                self.report(codes::STATEMENT, message, line.at, "not below a device");
                Inside::Lost
            }
            _ => self.no_such_line(word, &WORDS, line.at),
        }
    }

    fn cpu(&mut self, above: Option<Device>, line: &mut Line) -> Inside {
        let name = self.one_word(line, "its name, such as c0");
        let mut cpu =
            Cpu { host: take(line, "host").map_or_else(String::new, |(host, _)| host), ..Cpu::default() };
        if let Some((text, span)) = take(line, "numa") {
            match text.parse() {
                Ok(numa) => cpu.numa = numa,
                Err(_) => self.wrong_number(&text, span, i32::MIN.into(), i32::MAX.into()),
            }
        }
        cpu.arch = take(line, "arch").map_or_else(String::new, |(arch, _)| arch);
        cpu.vendor = take(line, "vendor").map_or_else(String::new, |(vendor, _)| vendor);
        cpu.family = self.take_number(line, "family", 0, u32::MAX).unwrap_or(0);
        cpu.model = self.take_number(line, "model", 0, u32::MAX).unwrap_or(0);
        cpu.interconnect = self.take_rate(line, "interconnect");
        self.carry(line, &CPU_KEYS, &CPU_KNOWN);
        cpu.carried = carried(line);
        let device = self.add(above, Kind::Cpu(cpu), None, line);
        let index = self.machine.as_mut().map_or(0, |machine| {
            machine.cpus += 1;
            machine.cpus - 1
        });
        self.declare(name, device, Some(format!("c{index}")));
        device.map_or(Inside::Lost, Inside::Device)
    }

    fn gpu(&mut self, above: Option<Device>, line: &mut Line) -> Inside {
        let name = self.one_word(line, "its name, such as g0");
        let pci = self.pci(line, true);
        let mut gpu = Gpu {
            dev: self.take_number(line, "dev", 0, u32::MAX),
            sm: self.take_number(line, "sm", 0, u32::MAX),
            gcn: take(line, "gcn").map(|(gcn, _)| gcn),
            rank: self.take_number(line, "rank", 0, u32::MAX),
            listed: true,
            ..Gpu::default()
        };
        if let Some((text, span)) = take(line, "listed") {
            match text.as_str() {
                "yes" => (),
                "no" => gpu.listed = false,
                _ => self.report(
                    codes::VALUE,
                    format!("`{}` is neither yes nor no", short(&text)),
                    span,
                    "expected yes or no",
                ),
            }
        }
        let (of_pci, rest) = line.attributes.drain(..).partition(|(key, ..)| key.starts_with("pci."));
        line.attributes = of_pci;
        let mut pci = pci.unwrap_or_default();
        pci.carried = carried(line).into_iter().map(|(key, value)| (key[4..].to_owned(), value)).collect();
        self.plain_keys(&pci.carried.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), line.span);
        line.attributes = rest;
        self.carry(line, &GPU_KEYS, &GPU_KNOWN);
        gpu.carried = carried(line);
        let device = self.add(above, Kind::Gpu(gpu), Some(pci), line);
        self.declare(name, device, None);
        if line.opens {
            self.report(codes::BLOCK, "nothing hangs below a GPU", line.span, "`{` cannot stand here");
        }
        Inside::Lost
    }

    /// A bridge, a switch, or a device that is nothing else.
    fn plain(&mut self, above: Option<Device>, line: &mut Line, kind: Kind) -> Inside {
        let is_switch = kind == Kind::Switch;
        let name = if is_switch { self.one_word(line, "its name, such as s0") } else { None };
        let pci = self.pci(line, true);
        self.carry(line, &PCI_KEYS, &PCI_KNOWN);
        let pci = pci.map(|pci| Pci { carried: carried(line), ..pci });
        let device = self.add(above, kind, pci, line);
        if is_switch {
            let index = self.machine.as_mut().map_or(0, |machine| {
                machine.switches += 1;
                machine.switches - 1
            });
            self.declare(name, device, Some(format!("s{index}")));
        }
        device.map_or(Inside::Lost, Inside::Device)
    }

    fn port(&mut self, nic: Device, line: &mut Line) {
        let name = self.one_word(line, "its name, such as mlx5_0").map_or_else(String::new, |(name, _)| name);
        let dev = self.take_number(line, "dev", 0, u32::MAX);
        let speed = take(line, "speed");
        let speed_mbit_per_s =
            speed.and_then(|(text, span)| self.number(&text, span, 0, u32::MAX.into())).unwrap_or(0);
        self.carry(line, &PORT_KEYS, &PORT_KNOWN);
        let port = Port { name, dev, speed_mbit_per_s, carried: carried(line) };
        self.nothing_else(line, &[]);
        if let Some(machine) = &mut self.machine
            && let Kind::Nic(facts) = &mut machine.builder.device_mut(nic).kind
        {
            facts.ports.push(port);
        }
    }

    fn link(&mut self, kind: LinkKind, line: &mut Line) {
        let ends = [self.one_word(line, "a GPU, such as g0"), self.one_word(line, "the other end")];
        let count = self.take_number(line, "count", 1, super::MAX_COUNT).unwrap_or(1);
        let each = self.take_rate(line, "each");
        self.nothing_else(line, &LINK_KEYS);
        let ends: Vec<(String, Span)> = ends.into_iter().flatten().collect();
        if let (2, Some(machine)) = (ends.len(), &mut self.machine) {
            machine.links.push(Named { kind, ends, count, each, span: line.span });
        }
    }

    /// Adds a device to the machine at hand.
    fn add(
        &mut self,
        above: Option<Device>,
        kind: Kind,
        pci: Option<Pci>,
        line: &mut Line,
    ) -> Option<Device> {
        for (_, span) in line.words.drain(..) {
            let diagnostic = Diagnostic::new(
                codes::EXPECTED,
                "this word means nothing here",
                span,
                "expected `key=value`",
            );
            self.diagnostics.push(diagnostic);
        }
        self.machine.as_mut()?.builder.add(above, kind, pci, line.span)
    }

    /// Gives a device its name, which must be `wanted` if that is known already.
    fn declare(&mut self, name: Option<(String, Span)>, device: Option<Device>, wanted: Option<String>) {
        let (Some((name, span)), Some(device), Some(machine)) = (name, device, &mut self.machine) else {
            return;
        };
        if let Some((_, earlier)) = machine.devices.get(&name) {
            let message = format!("there are two devices `{}`", short(&name));
            let diagnostic = Diagnostic::new(codes::DUPLICATE, message, span, "the second one");
            self.diagnostics.push(diagnostic.label(*earlier, "the first one"));
            return;
        }
        if let Some(wanted) = wanted.filter(|wanted| *wanted != name) {
            self.diagnostics.push(numbering(&name, &wanted, span));
        }
        machine.devices.insert(name, (device, span));
    }

    /// Ends the machine at hand: names are compared, links are joined.
    fn end_machine(&mut self) {
        let Some(mut machine) = self.machine.take() else { return };
        let right = machine.builder.machine().names();
        for (name, (device, span)) in &machine.devices {
            let wanted = right.get(device).filter(|wanted| *wanted != name && name.starts_with('g'));
            if let Some(wanted) = wanted {
                self.diagnostics.push(numbering(name, wanted, *span));
            } else if !right.contains_key(device) || !name.starts_with(['g', 'c', 's']) {
                self.diagnostics.push(numbering(name, right.get(device).map_or("g0", String::as_str), *span));
            }
        }
        for Named { kind, ends, count, each, span } in std::mem::take(&mut machine.links) {
            if self.diagnostics.len() > MAX_DIAGNOSTICS {
                break;
            }
            let found: Vec<Option<Device>> =
                ends.iter().map(|(name, _)| machine.devices.get(name).map(|(device, _)| *device)).collect();
            for ((name, span), found) in ends.iter().zip(&found) {
                if found.is_none() {
                    let message = format!("there is no device `{}`", short(name));
                    let diagnostic = Diagnostic::new(
                        codes::UNKNOWN,
                        message,
                        *span,
                        "no `gpu`, `cpu` or `switch` of this machine is called that",
                    );
                    self.diagnostics.push(match nearest(name, machine.devices.keys().map(String::as_str)) {
                        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                        None => diagnostic,
                    });
                }
            }
            if let [Some(from), Some(to)] = found[..] {
                let to = Target::Device(to);
                machine.builder.link(Said { kind, from, to, count, each, both: true, span });
            }
        }
        let index = self.topology.machines.len();
        if index >= MAX_MACHINES {
            self.report(
                codes::TOO_MUCH,
                format!("more than {MAX_MACHINES} machines that differ"),
                machine.span,
                "this one is one too many",
            );
            return;
        }
        match machine.builder.finish(machine.span) {
            Ok(built) => {
                self.topology.machines.push(built.machine);
                self.topology.assumed.extend(built.remarks);
            }
            Err(found) => {
                self.diagnostics.extend(found);
                // Keeps the numbers of those that follow.
                self.topology.machines.push(super::Machine {
                    name: String::new(),
                    devices: cranelift_entity::PrimaryMap::new(),
                    links: Vec::new(),
                });
            }
        }
        if self.machine_names.insert(machine.name.clone(), index).is_some() {
            let message = format!("there are two machines `{}`", short(&machine.name));
            self.report(codes::DUPLICATE, message, machine.span, "the second one");
        }
        if machine.name != format!("m{index}") && self.diagnostics.is_empty() {
            self.diagnostics.push(numbering(&machine.name, &format!("m{index}"), machine.span));
        }
    }

    fn finish(mut self, source: &str) -> Result<Topology, Vec<Diagnostic>> {
        let end = Span::new(source.len(), source.len());
        for (_, span) in std::mem::take(&mut self.blocks) {
            self.report(codes::BLOCK, "this block is never closed", span, "it begins here");
        }
        if self.machine.is_some() {
            self.end_machine();
        }
        if !self.begun && self.diagnostics.is_empty() {
            self.report(
                codes::FORM,
                "expected `topology`, found the end of the text",
                end,
                "a topology's text begins with `topology NAME {`",
            );
        }
        let mut count = 0u64;
        for (nodes, name, span) in std::mem::take(&mut self.nodes) {
            if self.diagnostics.len() > MAX_DIAGNOSTICS {
                break;
            }
            count += u64::from(nodes);
            if count > u64::from(MAX_NODES) {
                self.report(
                    codes::TOO_MUCH,
                    format!("there are more than {MAX_NODES} nodes"),
                    span,
                    "from here on",
                );
                break;
            }
            match self.machine_names.get(&name) {
                Some(&machine) => self.topology.nodes.push(super::Nodes { machine, count: nodes }),
                None => {
                    let message = format!("there is no machine `{}`", short(&name));
                    let diagnostic =
                        Diagnostic::new(codes::UNKNOWN, message, span, "no `machine` is called that");
                    self.diagnostics.push(
                        match nearest(&name, self.machine_names.keys().map(String::as_str)) {
                            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
                            None => diagnostic,
                        },
                    );
                }
            }
        }
        if self.diagnostics.is_empty() && self.topology.nodes.is_empty() {
            let what = if self.topology.machines.is_empty() { "machine" } else { "nodes" };
            self.report(
                codes::EMPTY,
                "a topology without nodes",
                end,
                format!("a line `{what} …` is missing"),
            );
        }
        if self.diagnostics.is_empty() { Ok(self.topology) } else { Err(in_order(self.diagnostics)) }
    }

    fn no_such_line(&mut self, word: &str, known: &[&str], span: Span) -> Inside {
        let message = format!("no line here begins with `{}`", short(word));
        let list: Vec<String> = known.iter().map(|word| format!("`{word}`")).collect();
        let diagnostic =
            Diagnostic::new(codes::STATEMENT, message, span, format!("expected one of {}", list.join(", ")));
        self.diagnostics.push(match nearest(word, known.iter().copied()) {
            Some(near) if near != word => diagnostic.help(format!("did you mean `{near}`?")),
            _ => diagnostic,
        });
        Inside::Lost
    }

    /// The next word of a line.
    fn one_word(&mut self, line: &mut Line, what: &str) -> Option<(String, Span)> {
        if line.words.is_empty() {
            self.report(
                codes::EXPECTED,
                format!("`{}` is followed by {what}", line.word),
                line.span,
                format!("{what} is missing"),
            );
            return None;
        }
        Some(line.words.remove(0))
    }

    /// Reports what is left of a line.
    fn nothing_else(&mut self, line: &mut Line, keys: &[&str]) {
        for (_, span) in line.words.drain(..) {
            let label = "nothing more is expected on this line";
            self.diagnostics.push(Diagnostic::new(
                codes::EXPECTED,
                "this word means nothing here",
                span,
                label,
            ));
        }
        for (key, _, span) in line.attributes.drain(..) {
            self.diagnostics.push(no_attribute(&key, keys, span));
        }
    }

    /// Leaves in a line the attributes that are carried, under their own names; reports the others.
    fn carry(&mut self, line: &mut Line, own: &[&str], known: &[&str]) {
        let mut kept = Vec::new();
        for (key, value, span) in line.attributes.drain(..) {
            match key.strip_prefix("x.") {
                Some(key) if is_key(key) => kept.push((key.to_owned(), value, span)),
                None if known.contains(&key.as_str()) => kept.push((key, value, span)),
                _ => {
                    let keys: Vec<&str> = own.iter().chain(known).copied().collect();
                    self.diagnostics.push(no_attribute(&key, &keys, span));
                }
            }
        }
        line.attributes = kept;
    }

    fn plain_keys(&mut self, keys: &[String], span: Span) {
        for key in keys.iter().filter(|key| !is_key(key)) {
            self.diagnostics.push(no_attribute(key, &PCI_KNOWN, span));
        }
    }

    /// The attributes of a place on PCIe.
    fn pci(&mut self, line: &mut Line, needed: bool) -> Option<Pci> {
        let bus = take(line, "bus");
        let any =
            ["class", "speed", "width"].iter().any(|key| line.attributes.iter().any(|(k, ..)| k == key));
        let mut pci = Pci::default();
        match &bus {
            Some((text, span)) if text.is_empty() => {
                self.report(
                    codes::VALUE,
                    "an address cannot be empty",
                    *span,
                    "expected an address such as 0000:18:00.0",
                );
            }
            Some((text, _)) => pci.bus.clone_from(text),
            None if needed || any => {
                let message = format!("`{}` needs `bus=ADDRESS`", line.word);
                self.report(codes::ATTRIBUTE, message, line.span, "its address on PCIe is missing");
            }
            None => return None,
        }
        if let Some((text, span)) = take(line, "class") {
            match text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
                Some(class) if class <= 0xFF_FF_FF => pci.class = class,
                _ => self.report(
                    codes::VALUE,
                    format!("`{}` is no class of PCIe", short(&text)),
                    span,
                    "expected a number such as 0x030200",
                ),
            }
        }
        pci.speed = take(line, "speed").map_or_else(String::new, |(speed, _)| speed);
        pci.width = self.take_number(line, "width", 0, u32::MAX).unwrap_or(0);
        Some(pci)
    }

    fn take_number(&mut self, line: &mut Line, key: &str, least: u32, most: u32) -> Option<u32> {
        let (text, span) = take(line, key)?;
        self.number(&text, span, least.into(), most.into()).map(|number| number as u32)
    }

    fn number(&mut self, text: &str, span: Span, least: u64, most: u64) -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse().ok().filter(|number| digits && (least..=most).contains(number));
        if number.is_none() {
            self.wrong_number(text, span, least.into(), most.into());
        }
        number
    }

    fn wrong_number(&mut self, text: &str, span: Span, least: i128, most: i128) {
        let message = format!("`{}` is no number from {least} to {most}", short(text));
        self.report(codes::VALUE, message, span, "expected a number");
    }

    /// A rate in GB/s with up to three digits behind the point.
    fn take_rate(&mut self, line: &mut Line, key: &str) -> Option<Rate> {
        let (text, span) = take(line, key)?;
        let rate = rate(&text);
        if rate.is_none() {
            let message = format!("`{}` is no rate in GB/s above 0 and up to 100000", short(&text));
            self.report(codes::VALUE, message, span, "expected a number such as 20.6");
        }
        rate
    }
}

fn numbering(name: &str, wanted: &str, span: Span) -> Diagnostic {
    let message = format!("`{}` should be called `{wanted}`", short(name));
    Diagnostic::new(codes::NUMBERING, message, span, format!("this is `{wanted}`"))
        .note("machines, CPUs and switches are numbered in the order of the text, GPUs by `rank`, else by `dev`, else in that order")
}
