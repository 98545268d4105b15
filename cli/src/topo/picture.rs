//! A topology as a picture: each machine with its CPUs, PCIe tree, GPUs, cards, NVLinks and network, the
//! rings through it, and what is assumed.
//!
//! Lines are as wide as what they carry, dashed where that is assumed. [`super::layout`] says where
//! things stand, [`super::svg`] draws.

use super::channels::way_of;
use super::layout::{self, ROW, Spot, Tile, tiles};
use super::svg::{Anchor, Area, Drawing, cut, wrapped};
use super::text::counted;
use ringsmith_compiler::channels::{Channels, Within};
use ringsmith_ir::topology::{Device, Kind, LinkKind, Machine, Rate, Topology, bandwidth, remarks};
use std::collections::BTreeMap;

const MARGIN: i64 = 28;
/// How high boxes are.
const BOX: i64 = 40;
/// The most machines that are drawn, and the most lines of a list. Ours: a picture has an end.
const MACHINES: usize = 8;
const LINES: usize = 8;

/// The picture of a topology.
pub(super) fn of(topology: &Topology, channels: &Channels) -> String {
    let mut drawing = Drawing::default();
    let title = format!(
        "{}: {}, {}",
        topology.name,
        counted(topology.node_count().into(), "node"),
        counted(topology.gpu_count(), "GPU")
    );
    drawing.text("title", Anchor::Start, (MARGIN, 42), &cut(&title, 90));
    let mut summary = String::new();
    if channels.ring_count() > 0 {
        summary = format!(
            "{} of {} ({} in all), {} of {}",
            counted(channels.ring_count() as u64, "ring"),
            channels.ring_rate,
            channels.ring_sum(),
            counted(channels.tree_count() as u64, "tree"),
            channels.tree_rate
        );
    }
    drawing.text("soft", Anchor::Start, (MARGIN, 62), &summary);
    let legend = "numbers are GB/s each way; dashed lines and question marks are assumed";
    drawing.text("soft", Anchor::Start, (MARGIN, 78), legend);
    let (mut y, mut width) = (98, 560);
    let shown = topology.machines.iter().zip(&channels.machines).enumerate().take(MACHINES);
    for (index, (machine, within)) in shown {
        let count: u32 = topology.nodes.iter().filter(|n| n.machine == index).map(|n| n.count).sum();
        let heading = format!("m{index} {}, {}", machine.name, counted(count.into(), "node"));
        drawing.text("head", Anchor::Start, (MARGIN, y + 14), &cut(&heading, 90));
        let (right, bottom) = draw_machine(&mut drawing, machine, y + 30);
        width = width.max(right);
        y = ways(&mut drawing, machine, within, bottom + 26);
    }
    if topology.machines.len() > MACHINES {
        let more = format!("and {} more machines that differ", topology.machines.len() - MACHINES);
        drawing.text("soft", Anchor::Start, (MARGIN, y + 10), &more);
        y += 24;
    }
    y = assumed(&mut drawing, topology, y, width);
    drawing.finish(width + MARGIN, y + MARGIN / 2, &title)
}

/// How wide a line is that carries so much, in tenths of a pixel: one more for each doubling.
fn thick(rate: Rate) -> i64 {
    let doublings = i64::from((1 + rate.0.min(10_000_000) / 4_000).ilog2());
    10 + 8 * doublings
}

/// `12`, for a line beside which everything is GB/s.
fn short(rate: Rate) -> String {
    rate.to_string().trim_end_matches(" GB/s").to_owned()
}

/// Draws a machine from `top` down; returns its right and lower ends.
fn draw_machine(drawing: &mut Drawing, machine: &Machine, top: i64) -> (i64, i64) {
    let tiles = tiles(machine);
    let names = machine.names();
    let hosts = machine.hosts().len();
    let frame = if hosts > 1 { 26 } else { 0 };
    let (mut x, mut bottom) = (MARGIN, top);
    let mut middles: BTreeMap<Device, (i64, i64)> = BTreeMap::new();
    let mut cards: Vec<(i64, i64)> = Vec::new();
    for tile in &tiles {
        let origin = (x, top + frame);
        for spot in &tile.spots {
            let place = draw_spot(drawing, machine, &names, tile, spot, origin);
            match machine.devices[spot.device].kind {
                Kind::Gpu(_) => {
                    middles.insert(spot.device, place);
                }
                Kind::Nic(_) => cards.push(place),
                Kind::Cpu(_) | Kind::Bridge | Kind::Switch | Kind::Other => (),
            }
        }
        between_cpus(drawing, machine, tile, origin);
        let height = tile.last_row * ROW + BOX;
        if frame > 0 {
            let area = Area { x: x - 6, y: top, width: tile.width + 12, height: height + frame + 12 };
            drawing.area("host", area, 10, "");
            let more =
                if tile.count > 1 { format!(", and {} more like it", tile.count - 1) } else { String::new() };
            drawing.text(
                "soft",
                Anchor::Start,
                (x + 4, top + 16),
                &format!("host {}{more}", cut(&tile.host, 30)),
            );
        }
        bottom = bottom.max(top + frame + height + if frame > 0 { 12 } else { 0 });
        x += tile.width + 30;
    }
    let right = x - 30;
    let mesh = mesh(drawing, machine, &middles);
    bottom += mesh;
    bottom = switches(drawing, machine, &middles, (MARGIN, right), bottom);
    bottom = network(drawing, machine, &cards, (MARGIN, right), bottom);
    (right, bottom)
}

/// Draws a device and the link above it; returns the middle of its lower edge.
fn draw_spot(
    drawing: &mut Drawing,
    machine: &Machine,
    names: &BTreeMap<Device, String>,
    tile: &Tile,
    spot: &Spot,
    (left, top): (i64, i64),
) -> (i64, i64) {
    let data = &machine.devices[spot.device];
    let (x, y) = (left + spot.x, top + spot.row * ROW);
    let name = names.get(&spot.device).map_or("", String::as_str);
    let bus = data.pci.as_ref().map_or("", |pci| pci.bus.as_str());
    let height = if matches!(data.kind, Kind::Bridge | Kind::Switch | Kind::Other) { 22 } else { BOX };
    let area = Area { x: x - spot.width / 2, y, width: spot.width, height };
    if let Some(parent) = spot.parent {
        link_above(drawing, machine, &tile.spots[parent], spot, (left, top));
    }
    let middle = Anchor::Middle;
    match &data.kind {
        Kind::Cpu(cpu) => {
            let model = format!("{} {}", maker(&cpu.vendor), cpu.arch);
            drawing.area(
                "cpu",
                area,
                6,
                &format!("{name}: {} family {} model {}", cpu.vendor, cpu.family, cpu.model),
            );
            drawing.text("name", middle, (x, y + 17), &format!("{name} · NUMA {}", cpu.numa));
            drawing.text("soft inside", middle, (x, y + 32), &cut(&model, 24));
        }
        Kind::Gpu(gpu) => {
            let model = match (&gpu.gcn, gpu.sm) {
                (Some(gcn), _) => format!("gfx{}", gcn.trim_start_matches("gfx")),
                (None, Some(sm)) => format!("sm_{sm}"),
                (None, None) => "GPU".to_owned(),
            };
            drawing.area("gpu", area, 8, &format!("{name} at {bus}"));
            drawing.text("name", middle, (x, y + 17), name);
            drawing.text("soft inside", middle, (x, y + 32), &cut(&model, 12));
        }
        Kind::Nic(_) => {
            let ports: Vec<String> = spot.ports.iter().map(|port| machine.port_name(*port)).collect();
            let (rate, assumed) =
                spot.ports.first().map_or((Rate(0), true), |port| bandwidth::of_port(machine, *port));
            for behind in (1..spot.ports.len().min(3)).rev() {
                let by = behind as i64 * 3;
                drawing.area("nic", Area { x: area.x + by, y: area.y + by, ..area }, 4, "");
            }
            drawing.area("nic", area, 4, &format!("{} at {bus}", ports.join(", ")));
            let first = if ports.len() > 1 {
                format!("{} +{}", cut(&ports[0], 7), ports.len() - 1)
            } else {
                cut(&ports[0], 11)
            };
            drawing.text("name", middle, (x, y + 17), &first);
            let times = if ports.len() > 1 { format!("{} × ", ports.len()) } else { String::new() };
            let doubt = if assumed { "?" } else { "" };
            drawing.text("soft inside", middle, (x, y + 32), &format!("{times}{}{doubt}", short(rate)));
        }
        Kind::Bridge | Kind::Switch | Kind::Other => {
            drawing.area("bridge", area, 11, &format!("PCIe bridge {bus}"));
            drawing.text("soft inside", middle, (x, y + 15), "PCIe");
        }
    }
    (x, y + height)
}

fn maker(vendor: &str) -> &str {
    match vendor {
        "GenuineIntel" => "Intel",
        "AuthenticAMD" => "AMD",
        other => other,
    }
}

/// The link between a device and what it hangs below.
fn link_above(drawing: &mut Drawing, machine: &Machine, parent: &Spot, spot: &Spot, (left, top): (i64, i64)) {
    let own = machine.links.iter().find(|link| link.kind == LinkKind::C2c && link.from == spot.device);
    let (class, rate, assumed) = match own {
        Some(link) => ("l-c2c", bandwidth::of_link(machine, link), false),
        None => {
            let above = bandwidth::above(machine, spot.device);
            ("l-pcie", layout::rate(machine, spot.device), above.is_some_and(|(_, doubt)| doubt.is_some()))
        }
    };
    let has_place = machine.devices[spot.device].pci.is_some();
    let bridge = matches!(machine.devices[parent.device].kind, Kind::Bridge | Kind::Switch | Kind::Other);
    let (x, y) = (left + spot.x, top + spot.row * ROW);
    let (from_x, from_y) = (left + parent.x, top + parent.row * ROW + if bridge { 22 } else { BOX });
    let bend = top + (parent.row + 1) * ROW - 16;
    let path = format!("M{from_x} {from_y}V{bend}H{x}V{y}");
    let class = if assumed { format!("{class} assumed") } else { class.to_owned() };
    let width = if has_place { thick(rate) } else { 10 };
    let told = if has_place { rate.to_string() } else { "a port beside the CPU".to_owned() };
    drawing.line(&class, width, &path, &format!("{told}{}", if assumed { ", assumed" } else { "" }));
    if has_place {
        let doubt = if assumed { "?" } else { "" };
        drawing.text("rate", Anchor::Start, (x + 5, y - 5), &format!("{}{doubt}", short(rate)));
    }
}

/// The links between neighbouring CPUs of a host.
fn between_cpus(drawing: &mut Drawing, machine: &Machine, tile: &Tile, (left, top): (i64, i64)) {
    let cpus: Vec<&Spot> = tile.spots.iter().filter(|spot| spot.parent.is_none()).collect();
    for pair in cpus.windows(2) {
        let rate = |spot: &Spot| match &machine.devices[spot.device].kind {
            Kind::Cpu(cpu) => bandwidth::of_interconnect(cpu),
            Kind::Bridge | Kind::Gpu(_) | Kind::Nic(_) | Kind::Switch | Kind::Other => Rate(0),
        };
        let both = rate(pair[0]).min(rate(pair[1]));
        let (from, to) = (left + pair[0].x + pair[0].width / 2, left + pair[1].x - pair[1].width / 2);
        let y = top + BOX / 2;
        drawing.line(
            "l-socket",
            thick(both),
            &format!("M{from} {y}H{to}"),
            &format!("between NUMA nodes: {both}"),
        );
        drawing.text("rate", Anchor::Middle, ((from + to) / 2, y - 7), &short(both));
    }
}

/// Links between GPUs as arcs below them; returns how much room they take.
fn mesh(drawing: &mut Drawing, machine: &Machine, middles: &BTreeMap<Device, (i64, i64)>) -> i64 {
    let names = machine.names();
    let mut deepest = 0;
    let mut kinds: BTreeMap<(LinkKind, u32, Rate), usize> = BTreeMap::new();
    let mut lowest = 0;
    for link in &machine.links {
        let (Some(from), Some(to)) = (middles.get(&link.from), middles.get(&link.to)) else { continue };
        let rate = bandwidth::of_link(machine, link);
        let depth = 22 + (from.0 - to.0).abs() / 7;
        let class = if link.kind == LinkKind::Xgmi { "l-xgmi" } else { "l-nvlink" };
        let path = format!(
            "M{} {}C{} {} {} {} {} {}",
            from.0,
            from.1,
            from.0,
            from.1 + depth * 4 / 3,
            to.0,
            to.1 + depth * 4 / 3,
            to.0,
            to.1
        );
        let tip =
            format!("{}-{}: {} × {}, {rate}", names[&link.from], names[&link.to], link.count, link.kind);
        drawing.line(class, 8 + 9 * i64::from(link.count.min(6)), &path, &tip);
        *kinds.entry((link.kind, link.count, rate)).or_default() += 1;
        deepest = deepest.max(depth);
        lowest = lowest.max(from.1);
    }
    if deepest == 0 {
        return 0;
    }
    let told: Vec<String> = kinds
        .into_iter()
        .rev()
        .map(|((kind, count, rate), pairs)| {
            format!("{} with {count} {kind}, {rate} each way", counted(pairs as u64, "pair"))
        })
        .collect();
    drawing.text("soft", Anchor::Start, (MARGIN, lowest + deepest + 22), &told.join("; "));
    deepest + 26
}

/// NVLink switches as one bar below the GPUs.
fn switches(
    drawing: &mut Drawing,
    machine: &Machine,
    middles: &BTreeMap<Device, (i64, i64)>,
    (left, right): (i64, i64),
    bottom: i64,
) -> i64 {
    let mut of_gpu: BTreeMap<Device, (u32, u64)> = BTreeMap::new();
    for link in machine.links.iter().filter(|link| matches!(machine.devices[link.to].kind, Kind::Switch)) {
        let all = of_gpu.entry(link.from).or_default();
        all.0 += link.count;
        all.1 += bandwidth::of_link(machine, link).0;
    }
    let Some((count, most)) = of_gpu.values().copied().max_by_key(|(_, rate)| *rate) else { return bottom };
    let y = bottom + 30;
    for (gpu, (_, rate)) in &of_gpu {
        if let Some((x, from)) = middles.get(gpu) {
            drawing.line(
                "l-nvlink",
                thick(Rate(*rate)),
                &format!("M{x} {from}V{y}"),
                &format!("{}", Rate(*rate)),
            );
        }
    }
    drawing.area("bar nvlink", Area { x: left, y, width: right - left, height: 26 }, 6, "");
    let alike = of_gpu.values().all(|one| *one == (count, most));
    let told = format!(
        "NVLink switches: {} with {}{count} NVLinks, {} each way",
        counted(of_gpu.len() as u64, "GPU"),
        if alike { "" } else { "up to " },
        Rate(most)
    );
    drawing.text("onbar", Anchor::Middle, ((left + right) / 2, y + 17), &told);
    y + 26
}

/// What the ports lead to, as one bar below all.
fn network(
    drawing: &mut Drawing,
    machine: &Machine,
    cards: &[(i64, i64)],
    (left, right): (i64, i64),
    bottom: i64,
) -> i64 {
    let ports = machine.ports();
    if ports.is_empty() {
        return bottom;
    }
    let y = bottom + 24;
    for (x, from) in cards {
        drawing.line("l-net", 14, &format!("M{x} {from}V{y}"), "to the network");
    }
    drawing.area("bar net", Area { x: left, y, width: right - left, height: 26 }, 6, "");
    let all: u64 = ports.iter().map(|port| bandwidth::of_port(machine, *port).0.0).sum();
    let told = format!("network: {}, {} each way", counted(ports.len() as u64, "port"), Rate(all));
    drawing.text("onbar", Anchor::Middle, ((left + right) / 2, y + 17), &told);
    y + 26
}

/// The first rings and what they leave out; returns the lower end.
fn ways(drawing: &mut Drawing, machine: &Machine, within: &Within, top: i64) -> i64 {
    let mut y = top;
    for (index, ring) in within.rings.iter().take(LINES).enumerate() {
        let way = format!("ring {index}  {}", way_of(machine, ring).replace(' ', " → "));
        drawing.text("way", Anchor::Start, (MARGIN, y), &cut(&way, 110));
        y += 17;
    }
    if within.rings.len() > LINES {
        drawing.text(
            "soft",
            Anchor::Start,
            (MARGIN, y),
            &format!("and {} more rings", within.rings.len() - LINES),
        );
        y += 17;
    }
    for why in within.unused.iter().take(LINES) {
        for line in wrapped(why, 120) {
            drawing.text("soft", Anchor::Start, (MARGIN, y), &line);
            y += 16;
        }
    }
    y + 14
}

/// What is assumed; returns the lower end.
fn assumed(drawing: &mut Drawing, topology: &Topology, top: i64, width: i64) -> i64 {
    let remarks = remarks(topology);
    if remarks.is_empty() {
        return top;
    }
    let mut y = top + 6;
    drawing.text("head", Anchor::Start, (MARGIN, y), "assumed");
    y += 19;
    let most = usize::try_from(width / 6).unwrap_or(80).clamp(60, 160);
    for remark in remarks.iter().take(LINES) {
        for line in wrapped(remark, most) {
            drawing.text("soft", Anchor::Start, (MARGIN, y), &line);
            y += 16;
        }
    }
    if remarks.len() > LINES {
        drawing.text("soft", Anchor::Start, (MARGIN, y), &format!("and {} more", remarks.len() - LINES));
        y += 16;
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringsmith_compiler::import;
    use ringsmith_compiler::machines::{KNOWN, known};

    #[test]
    fn every_known_machine_is_drawn_as_well_formed_xml_with_all_it_has() {
        for machine in &KNOWN {
            let topology = known(machine.name).expect("it is in the table").times(2).expect("two");
            let picture = of(&topology, &Channels::of(&topology));
            // An XML reader gets as far as the name of the first element.
            let refused = import::read("picture", &picture).expect_err("a picture is no description");
            assert!(refused[0].message.contains("found `svg`"), "{refused:?}");
            let tiles = tiles(&topology.machines[0]);
            assert_eq!(tiles.len(), 1, "hosts of {} are alike", machine.name);
            let names = topology.machines[0].names();
            for (device, name) in names.iter().filter(|(_, name)| !name.starts_with('s')) {
                let is_first = topology.machines[0].host_of(*device) == Some(&tiles[0].host);
                assert_eq!(picture.contains(&format!(">{name}")), is_first, "{name} of {}", machine.name);
            }
        }
    }

    #[test]
    fn boxes_of_one_row_stand_apart() {
        let narrow = "topology narrow {\n machine m0 {\n cpu c0 {\n gpu g0 bus=a\n }\n cpu c1\n cpu c2 {\n gpu g1 bus=b\n }\n cpu c3 {\n gpu g2 bus=c\n gpu g3 bus=d\n gpu g4 bus=e\n }\n }\n nodes 1 m0\n}\n";
        let narrow = ringsmith_ir::topology::parse(narrow).expect("a text");
        let machines = KNOWN.iter().map(|machine| known(machine.name).expect("it is in the table"));
        for machine in machines.chain([narrow]).map(|topology| topology.machines[0].clone()) {
            for tile in tiles(&machine) {
                let mut ends: BTreeMap<i64, i64> = BTreeMap::new();
                let mut spots = tile.spots.clone();
                spots.sort_by_key(|spot| (spot.row, spot.x));
                for spot in &spots {
                    let (left, right) = (spot.x - spot.width / 2, spot.x + spot.width / 2);
                    let before = ends.insert(spot.row, right);
                    assert!(before.is_none_or(|before| before < left), "{}: {spot:?}", machine.name);
                    assert!(left >= 0 && right <= tile.width, "{}: {spot:?}", machine.name);
                }
            }
        }
    }
}
