//! Reads NCCL's topology XML, system versions 1 and 2, RCCL's dialect included.
//!
//! The form is that of NCCL's `src/graph/xml.cc`: `system` > `cpu` > `pci`, nested, > `gpu` >
//! `nvlink`, `xgmi`, `c2c`, and `nic` > `net`. Attributes that mean nothing here are carried and
//! written back. A file that lists no GPU is read with its devices of class 0x0302 as GPUs; one that
//! lists some has those and no others, as in NCCL. `node` of a `cpu` is ours: it tells the nodes of a
//! file apart, and a file without it is one node.

use super::xml::{self, Attributes, elements, span};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::topology::{
    Builder, Cpu, Device, Gpu, Kind, LinkKind, MAX_MACHINES, MAX_NODES, Nic, Pci, Port, Rate, Said, Target,
    Topology, codes,
};
use roxmltree::{Document, Node};
use std::collections::{BTreeMap, BTreeSet};

/// How many mistakes are reported. Ours.
const MAX_MISTAKES: usize = 100;

/// Reads a topology.
///
/// Errors: everything that is wrong, in the order of the file.
pub fn read_topology(name: &str, text: &str) -> Result<Topology, Vec<Diagnostic>> {
    let document = xml::parse(text)?;
    let root = document.root_element();
    if root.tag_name().name() != "system" {
        let label = "a topology begins with `system`";
        return Err(vec![Diagnostic::new(codes::FORM, "this is no topology of NCCL", span(&root), label)]);
    }
    read_document(name, &document)
}

/// What a file lists by name, and not only by class.
#[derive(Clone, Copy)]
struct Lists {
    gpus: bool,
    ports: bool,
}

struct Reader {
    lists: Lists,
    wrong: Vec<Diagnostic>,
}

pub(super) fn read_document(name: &str, document: &Document<'_>) -> Result<Topology, Vec<Diagnostic>> {
    let root = document.root_element();
    let lists = |tag: &str| root.descendants().any(|node| node.has_tag_name(tag));
    let mut reader = Reader { lists: Lists { gpus: lists("gpu"), ports: lists("net") }, wrong: Vec::new() };
    let mut attributes = Attributes::of(root);
    let version = attributes.signed("version");
    let mut topology =
        Topology { name: name.to_owned(), assumed: Vec::new(), machines: Vec::new(), nodes: Vec::new() };
    match version {
        None if attributes.wrong.is_empty() => attributes.missing("version"),
        Some(1 | 2) | None => (),
        Some(version) => {
            let message = format!("version {version} of NCCL's topology is not known");
            attributes.refuse(codes::VALUE, message, "version", "1 and 2 are");
        }
    }
    reader.wrong.append(&mut attributes.wrong);
    // Nodes in the order in which they first appear.
    let mut order: Vec<&str> = Vec::new();
    let mut cpus: BTreeMap<&str, Vec<Node<'_, '_>>> = BTreeMap::new();
    for cpu in elements(&root) {
        if !cpu.has_tag_name("cpu") {
            reader.unexpected(&cpu, "`cpu`");
            continue;
        }
        let node = cpu.attribute("node").unwrap_or_default();
        cpus.entry(node).or_insert_with(|| {
            order.push(node);
            Vec::new()
        });
        cpus.entry(node).or_default().push(cpu);
    }
    if order.is_empty() && reader.wrong.is_empty() {
        let label = "it needs at least one `cpu`";
        reader.wrong.push(Diagnostic::new(codes::EMPTY, "a topology without a CPU", span(&root), label));
    }
    if order.len() > MAX_NODES as usize {
        let message = format!("there are more than {MAX_NODES} nodes");
        reader.wrong.push(Diagnostic::new(codes::TOO_MUCH, message, span(&root), "no more can be"));
        order.clear();
    }
    let title = attributes.text("name").filter(|name| !name.is_empty()).unwrap_or(name);
    let mut assumed = BTreeSet::new();
    for node in order {
        let mut builder = Builder::new(title);
        for cpu in &cpus[node] {
            reader.cpu(&mut builder, cpu);
        }
        match builder.finish(span(&root)) {
            Ok(built) => {
                let new = built.remarks.into_iter().filter(|remark| assumed.insert(remark.clone()));
                topology.assumed.extend(new);
                topology.push(built.machine, 1);
                if topology.machines.len() > MAX_MACHINES {
                    let message = format!("there are more than {MAX_MACHINES} nodes that differ");
                    reader.wrong.push(Diagnostic::new(
                        codes::TOO_MUCH,
                        message,
                        span(&cpus[node][0]),
                        "from here on",
                    ));
                    break;
                }
            }
            Err(found) => reader.wrong.extend(found),
        }
        if reader.wrong.len() > MAX_MISTAKES {
            break;
        }
    }
    if reader.wrong.is_empty() {
        return Ok(topology);
    }
    reader.wrong.sort_by_key(Diagnostic::span);
    reader.wrong.truncate(MAX_MISTAKES);
    Err(reader.wrong)
}

impl Reader {
    fn unexpected(&mut self, node: &Node<'_, '_>, wanted: &str) {
        let short: String = node.tag_name().name().chars().take(40).collect();
        let message = format!("`{short}` cannot stand here");
        self.wrong.push(Diagnostic::new(codes::STATEMENT, message, span(node), format!("expected {wanted}")));
    }

    fn cpu(&mut self, builder: &mut Builder, node: &Node<'_, '_>) {
        const KNOWN: [&str; 8] =
            ["host_hash", "numaid", "arch", "vendor", "familyid", "modelid", "interconnect", "node"];
        let mut attributes = Attributes::of(*node);
        let text = |key| attributes.text(key).unwrap_or_default().to_owned();
        let (host, arch, vendor) = (text("host_hash"), text("arch"), text("vendor"));
        let numa = attributes.signed("numaid").unwrap_or(-1);
        let cpu = Cpu {
            host,
            numa: i32::try_from(numa).unwrap_or(-1),
            arch,
            vendor,
            family: attributes.number("familyid").unwrap_or(0),
            model: attributes.number("modelid").unwrap_or(0),
            interconnect: attributes
                .number("interconnect")
                .map(|mb| Rate(mb.into()))
                .filter(|rate| rate.0 > 0),
            carried: attributes.others(&KNOWN),
        };
        self.wrong.append(&mut attributes.wrong);
        let Some(device) = builder.add(None, Kind::Cpu(cpu), None, span(node)) else { return };
        // Elements and what they hang below, in the order of the file.
        let mut waiting: Vec<(Node<'_, '_>, Device)> = Vec::new();
        push_children(&mut waiting, node, device);
        while let Some((child, above)) = waiting.pop() {
            match child.tag_name().name() {
                "pci" => {
                    if let Some(device) = self.pci(builder, &child, above) {
                        push_children(&mut waiting, &child, device);
                    }
                }
                "nic" if above == device => self.nic(builder, &child, above),
                // Those of a PCIe device have been read with it.
                "gpu" | "nic" if above != device => (),
                // NCCL lists the links between devices of one switch, which the tree says already.
                "pcilink" => (),
                _ => self.unexpected(&child, "`pci` or `nic`"),
            }
        }
    }

    /// A card of which only the ports are known.
    fn nic(&mut self, builder: &mut Builder, node: &Node<'_, '_>, above: Device) {
        let ports = self.ports(node);
        builder.add(Some(above), Kind::Nic(Nic { ports }), None, span(node));
    }

    fn pci(&mut self, builder: &mut Builder, node: &Node<'_, '_>, above: Device) -> Option<Device> {
        const KNOWN: [&str; 4] = ["busid", "class", "link_speed", "link_width"];
        let mut attributes = Attributes::of(*node);
        let bus = attributes.text("busid").unwrap_or_default().to_owned();
        if bus.is_empty() {
            attributes.missing("busid");
        }
        let class = attributes.needed_number("class");
        if class > 0xFF_FF_FF {
            attributes.refuse(
                codes::VALUE,
                format!("{class:#x} is no class of PCIe"),
                "class",
                "it has 24 bits",
            );
        }
        let pci = Pci {
            bus: bus.clone(),
            class,
            speed: attributes.text("link_speed").unwrap_or_default().to_owned(),
            width: attributes.number("link_width").unwrap_or(0),
            carried: attributes.others(&KNOWN),
        };
        self.wrong.append(&mut attributes.wrong);
        let mut gpus = elements(node).filter(|child| child.has_tag_name("gpu"));
        let gpu = gpus.next();
        if let Some(second) = gpus.next() {
            let message = "a second GPU at one address";
            self.wrong.push(Diagnostic::new(codes::DUPLICATE, message, span(&second), "one is enough"));
        }
        let nics: Vec<Node<'_, '_>> = elements(node).filter(|child| child.has_tag_name("nic")).collect();
        let is = |high: u32| class >> 8 == high;
        let kind = match gpu {
            Some(gpu) => Kind::Gpu(self.gpu(&gpu)),
            None if !nics.is_empty() => {
                Kind::Nic(Nic { ports: nics.iter().flat_map(|nic| self.ports(nic)).collect() })
            }
            None if is(0x0302) && !self.lists.gpus => Kind::Gpu(Gpu::default()),
            None if class >> 16 == 0x02 && !self.lists.ports => Kind::Nic(Nic::default()),
            None if is(0x0604) => Kind::Bridge,
            None if class == 0x06_80_00 => Kind::Switch,
            None => {
                if is(0x0302) {
                    builder.remark(format!(
                        "{bus} is a GPU by its class, but not listed as one: it is left out"
                    ));
                } else if class >> 16 == 0x02 {
                    builder.remark(format!(
                        "{bus} is a network card, but none of its ports is listed: it is left out"
                    ));
                }
                Kind::Other
            }
        };
        let device = builder.add(Some(above), kind, Some(pci), span(node))?;
        if let Some(gpu) = gpu {
            for link in elements(&gpu) {
                self.link(builder, &link, device);
            }
        }
        Some(device)
    }

    fn gpu(&mut self, node: &Node<'_, '_>) -> Gpu {
        const KNOWN: [&str; 4] = ["dev", "sm", "gcn", "rank"];
        let mut attributes = Attributes::of(*node);
        let gpu = Gpu {
            dev: attributes.number("dev"),
            sm: attributes.number("sm"),
            gcn: attributes.text("gcn").map(str::to_owned),
            rank: attributes.number("rank"),
            listed: true,
            carried: attributes.others(&KNOWN),
        };
        self.wrong.append(&mut attributes.wrong);
        gpu
    }

    fn link(&mut self, builder: &mut Builder, node: &Node<'_, '_>, from: Device) {
        let name = node.tag_name().name();
        let Some(kind) = LinkKind::ALL.into_iter().find(|kind| kind.name() == name) else {
            self.unexpected(node, "`nvlink`, `xgmi` or `c2c`");
            return;
        };
        let mut attributes = Attributes::of(*node);
        let count = match attributes.text("count") {
            Some(_) => attributes.number("count"),
            None => Some(1),
        };
        // NCCL's `bw` of a c2c link is in MB/s; of the others it is ours, in the same unit.
        let each = attributes.number("bw").map(|mb| Rate(mb.into())).filter(|rate| rate.0 > 0);
        let target = match (kind, attributes.text("target")) {
            (LinkKind::C2c, _) => Target::OwnCpu,
            (_, Some(bus)) => {
                Target::Bus { bus: bus.to_owned(), class: attributes.number("tclass").unwrap_or(0) }
            }
            (_, None) => {
                attributes.missing("target");
                Target::OwnCpu
            }
        };
        if attributes.wrong.is_empty() {
            match count {
                // A link that is down is listed with none.
                Some(0) => builder.remark(format!("a GPU lists 0 {kind}: they are left out")),
                count => builder.link(Said {
                    kind,
                    from,
                    to: target,
                    count: count.unwrap_or(1),
                    each,
                    both: false,
                    span: span(node),
                }),
            }
        }
        self.wrong.append(&mut attributes.wrong);
    }

    fn ports(&mut self, node: &Node<'_, '_>) -> Vec<Port> {
        const KNOWN: [&str; 3] = ["name", "dev", "speed"];
        let mut ports = Vec::new();
        for net in elements(node) {
            if !net.has_tag_name("net") {
                // Kinds of ports that are no network for ranks: NCCL's `gin` and `rma`.
                if !["gin", "rma"].contains(&net.tag_name().name()) {
                    self.unexpected(&net, "`net`");
                }
                continue;
            }
            let mut attributes = Attributes::of(net);
            ports.push(Port {
                name: attributes.text("name").unwrap_or_default().to_owned(),
                dev: attributes.number("dev"),
                speed_mbit_per_s: attributes.number("speed").unwrap_or(0).into(),
                carried: attributes.others(&KNOWN),
            });
            self.wrong.append(&mut attributes.wrong);
        }
        ports
    }
}

/// Puts the elements below one on a stack, the first on top.
fn push_children<'a, 'i>(waiting: &mut Vec<(Node<'a, 'i>, Device)>, node: &Node<'a, 'i>, device: Device) {
    let at = waiting.len();
    waiting.extend(elements(node).map(|child| (child, device)));
    waiting[at..].reverse();
}
