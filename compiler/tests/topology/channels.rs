//! Rings and trees of machines whose answers are known.

use libtest_mimic::Trial;
use ringsmith_compiler::channels::{Channels, Place, trees};
use ringsmith_compiler::machines::{KNOWN, known};
use ringsmith_ir::topology::paths::{PathKind, Paths};
use ringsmith_ir::topology::{Kind, Rate, Topology, parse};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("channels::dgx1v_has_three_rings_in_both_directions", dgx1v),
        crate::trial("channels::hgx_h100_rings_carry_all_its_nvlinks", hgx_h100),
        crate::trial("channels::hgx_h100_nodes_use_a_port_for_each_gpu", hgx_h100_nodes),
        crate::trial("channels::p4d_crosses_its_four_ports_evenly", p4d),
        crate::trial("channels::eight_racks", eight_racks),
        crate::trial("channels::two_nodes_of_four_gpus_are_crossed_once", two_nodes_of_four),
        crate::trial("channels::every_known_machine_is_used_whole", every_known_machine),
        crate::trial("channels::nodes_that_differ", nodes_that_differ),
        crate::trial("channels::what_has_no_rings_says_why", none),
        crate::trial("channels::slow_ports_are_left_out_with_a_reason", slow_ports),
        crate::trial("channels::two_trees_complement_each_other", two_trees),
        crate::trial("channels::thousands_of_nodes", thousands_of_nodes),
    ]
}

/// Checks what holds for the channels of any cluster, and returns them.
pub(crate) fn of(topology: &Topology) -> Channels {
    let channels = Channels::of(topology);
    let several = topology.node_count() > 1;
    for (within, machine) in channels.machines.iter().zip(&topology.machines) {
        let paths = Paths::of(machine);
        let gpus = paths.gpus.len();
        if within.rings.is_empty() {
            assert!(!within.unused.is_empty(), "{}: no rings and no reason", machine.name);
            continue;
        }
        for channel in within.rings.iter().chain(&within.trees) {
            let seen: BTreeSet<usize> = channel.gpus.iter().copied().collect();
            assert_eq!((seen.len(), channel.gpus.len()), (gpus, gpus), "each GPU once");
            assert_eq!(channel.port.is_some(), several, "{}", machine.name);
        }
        let mut used: BTreeMap<usize, usize> = BTreeMap::new();
        for port in within.rings.iter().filter_map(|ring| ring.port) {
            *used.entry(port).or_default() += 1;
        }
        if several {
            for port in (0..paths.ports.len()).filter(|port| !used.contains_key(port)) {
                let name = machine.port_name(paths.ports[port]);
                assert!(
                    within.unused.iter().any(|why| why.starts_with(&name)),
                    "{name} is unused without a reason"
                );
            }
        } else if !paths.ports.is_empty() {
            assert_eq!(within.unused.len(), 1, "{:?}", within.unused);
        }
        assert!(!within.trees.is_empty());
        carried(&paths, &channels, within);
    }
    channels
}

/// Adds up what the rings put on every link, apart from the search's own count.
fn carried(paths: &Paths, channels: &Channels, within: &ringsmith_compiler::channels::Within) {
    let mut load = vec![0u64; paths.capacities.len()];
    for ring in &within.rings {
        let (first, last) = (ring.gpus[0], *ring.gpus.last().unwrap());
        let mut all: Vec<_> = ring.gpus.windows(2).map(|pair| paths.between(pair[0], pair[1])).collect();
        match ring.port {
            Some(port) => all.extend([paths.from_port(port, first), paths.to_port(last, port)]),
            None => all.push(paths.between(last, first)),
        }
        for path in all {
            let path = path.expect("rings go where there are paths");
            for used in &path.uses {
                load[used.0 as usize] += channels.ring_rate.0 * path.cost_percent / 100;
            }
        }
    }
    for (load, capacity) in load.iter().zip(&paths.capacities) {
        assert!(*load <= capacity.0, "a link of {capacity} carries {}", Rate(*load));
    }
}

fn nodes(name: &str, count: u32) -> Topology {
    known(name).expect("it is known").times(count).expect("few nodes")
}

/// How often each port is used by the rings of the first machine.
fn uses(channels: &Channels) -> Vec<usize> {
    let mut used: BTreeMap<usize, usize> = BTreeMap::new();
    for port in channels.machines[0].rings.iter().filter_map(|ring| ring.port) {
        *used.entry(port).or_default() += 1;
    }
    used.into_values().collect()
}

/// NVIDIA DGX-1 With Tesla V100 System Architecture (WP-08437-002): the hybrid cube mesh is three rings
/// over all eight GPUs, each in both directions. Six NVLinks of 20 GB/s (NCCL's `SM70_NVLINK_BW`).
fn dgx1v() {
    let channels = of(&nodes("dgx1v", 1));
    assert_eq!((channels.ring_count(), channels.ring_rate), (6, Rate(20_000)));
    let rings = &channels.machines[0].rings;
    assert!(rings.iter().all(|ring| ring.kind == PathKind::Nvl));
    // Every NVLink is used in both directions, once.
    let mut steps: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for ring in rings {
        for (at, from) in ring.gpus.iter().enumerate() {
            *steps.entry((*from, ring.gpus[(at + 1) % 8])).or_default() += 1;
        }
    }
    assert_eq!(steps.len(), 32, "16 pairs of neighbours, both ways");
    assert_eq!(steps.values().sum::<usize>(), 48, "24 links, both ways");
    for ((from, to), count) in &steps {
        assert_eq!(steps.get(&(*to, *from)), Some(count), "as much back as there");
    }
    assert_eq!(channels.tree_sum(), Rate(60_000), "both ways at once: half");
}

/// NVIDIA H100 data sheet: 18 NVLinks; NCCL's `SM90_NVLINK_BW` counts 20.6 GB/s for each. NCCL itself
/// finds 12 rings of 30 GB/s, the nearest of its list of rates.
fn hgx_h100() {
    let channels = of(&nodes("hgx-h100", 1));
    let all = channels.ring_sum().0;
    assert!((367_000..=370_800).contains(&all), "{}", channels.ring_sum());
    assert!(channels.ring_rate <= Rate(60_000), "NCCL's greatest rate of a channel on Hopper");
}

/// NVIDIA DGX H100/H200 System User Guide: one 400 Gbit/s port beside each GPU. A ring comes in at a
/// port's own GPU; the last GPU reaches the port through it.
fn hgx_h100_nodes() {
    for count in [2, 3, 16] {
        let channels = of(&nodes("hgx-h100", count));
        assert_eq!(uses(&channels), [1; 8]);
        assert_eq!(channels.ring_rate, Rate(46_350), "an eighth of 18 NVLinks of 20.6 GB/s");
        for ring in &channels.machines[0].rings {
            assert_eq!((Some(ring.gpus[0]), ring.kind), (ring.port, PathKind::Nvl));
            assert_eq!(ring.port_kind, Some(PathKind::Pxn));
        }
        let rails = &channels.machines[0].rails;
        assert_eq!(rails.len(), 8);
        assert!(rails.iter().all(|rail| rail.ports == [rail.gpu] && rail.kind == PathKind::Pix));
        assert!(rails.iter().all(|rail| rail.rate == Rate(48_000)), "PCIe 5.0 x16, NCCL's 48 GB/s");
    }
}

/// Amazon EC2 P4 instances: 400 Gbit/s over four adapters of 100, each behind a PCIe switch with two
/// GPUs. PCIe 3.0 x16 carries 12 GB/s (NCCL's `PCI_BW`), a little less than the adapter.
fn p4d() {
    for count in 2..=16 {
        let channels = of(&nodes("aws-p4d", count));
        let used = uses(&channels);
        assert_eq!(used.len(), 4, "{count} nodes");
        assert!(used.iter().all(|one| *one == used[0]), "{count} nodes: {used:?}");
        assert_eq!(channels.ring_sum(), Rate(48_000), "{count} nodes");
        let near = |ring: &ringsmith_compiler::channels::Channel| ring.port_kind == Some(PathKind::Pix);
        assert!(channels.machines[0].rings.iter().all(near), "in and out behind the port's own switch");
    }
}

/// NVIDIA GB200 NVL72 data sheet: 72 GPUs of 18 NVLinks; NCCL's `SM100_NVLINK_BW` is 40.1 GB/s. A ring
/// goes over NVLink 71 times in a rack and leaves it over C2C, and each of the 72 ports has one ring: a
/// GPU's NVLinks are shared by 71 rings.
fn eight_racks() {
    let channels = of(&nodes("gb200-nvl72", 8));
    assert_eq!(uses(&channels), [1; 72]);
    assert_eq!(channels.ring_rate, Rate(18 * 40_100 / 71));
    let rails = &channels.machines[0].rails;
    let ports: BTreeSet<usize> = rails.iter().flat_map(|rail| rail.ports.clone()).collect();
    assert_eq!((rails.len(), ports.len()), (72, 72), "a port for each GPU");
    crossings(&nodes("gb200-nvl72", 8), &channels);
}

const HALF_NODE: &str = r#"
topology four {
  machine m0 {
    cpu c0 numa=0 arch=x86_64 vendor=GenuineIntel family=6 model=85 {
      bridge bus=a class=0x060400 speed="8 GT/s" width=16 {
        gpu g0 bus=a0 speed="8 GT/s" width=16 sm=70
        gpu g1 bus=a1 speed="8 GT/s" width=16 sm=70
        nic bus=n0 speed="8 GT/s" width=16 {
          port p0 speed=100000
        }
      }
      bridge bus=b class=0x060400 speed="8 GT/s" width=16 {
        gpu g2 bus=b0 speed="8 GT/s" width=16 sm=70
        gpu g3 bus=b1 speed="8 GT/s" width=16 sm=70
        nic bus=n1 speed="8 GT/s" width=16 {
          port p1 speed=100000
        }
      }
    }
  }
  nodes 2 m0
}
"#;

fn text(text: &str) -> Topology {
    parse(text.trim_start()).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
}

/// Every ring enters and leaves each node once, at one port, and meets every GPU once.
fn crossings(topology: &Topology, channels: &Channels) {
    for ring in 0..channels.ring_count() {
        let places: Vec<Place> = channels.ring(ring).collect();
        assert_eq!(places.len() as u64, topology.gpu_count());
        let (mut left, mut entered) = (BTreeMap::new(), BTreeMap::new());
        for (at, from) in places.iter().enumerate() {
            let to = places[(at + 1) % places.len()];
            if from.node != to.node {
                *left.entry(from.node).or_insert(0) += 1;
                *entered.entry(to.node).or_insert(0) += 1;
            }
        }
        let once: BTreeMap<u32, i32> = (0..topology.node_count()).map(|node| (node, 1)).collect();
        assert_eq!((&left, &entered), (&once, &once), "ring {ring}");
    }
}

fn two_nodes_of_four() {
    let topology = text(HALF_NODE);
    let channels = of(&topology);
    assert_eq!(uses(&channels).len(), 2, "both ports");
    crossings(&topology, &channels);
    for rail in &channels.machines[0].rails {
        assert_eq!(rail.ports, [rail.gpu / 2]);
    }
}

fn every_known_machine() {
    for machine in &KNOWN {
        for count in [1, 2, 5] {
            let topology = nodes(machine.name, count);
            let channels = of(&topology);
            assert!(channels.ring_count() > 0, "{} x {count}", machine.name);
            if count > 1 {
                let used = uses(&channels);
                assert_eq!(used.len(), topology.machines[0].ports().len(), "{} x {count}", machine.name);
                assert!(used.iter().all(|one| *one == used[0]), "{}: {used:?}", machine.name);
                crossings(&topology, &channels);
            }
        }
    }
}

fn nodes_that_differ() {
    let parts = [nodes("hgx-h100", 2), nodes("aws-p4d", 1)];
    let mixed = ringsmith_compiler::import::merge("mixed", parts).expect("three nodes");
    let channels = of(&mixed);
    assert_eq!(channels.machines[0].rings.len(), channels.machines[1].rings.len());
    assert!(channels.ring_rate <= Rate(12_000), "the slower ports decide");
    crossings(&mixed, &channels);
}

fn none() {
    let why = |topology: &Topology| {
        let channels = Channels::of(topology);
        assert_eq!((channels.ring_count(), channels.tree_count(), channels.ring_sum()), (0, 0, Rate(0)));
        channels.machines[0].unused.join("; ")
    };
    let no_gpu = text("topology t {\n machine m0 {\n cpu c0\n }\n nodes 1 m0\n}\n");
    assert!(why(&no_gpu).contains("no GPU"));
    let one = text("topology t {\n machine m0 {\n cpu c0 {\n gpu g0 bus=a\n }\n }\n nodes 1 m0\n}\n");
    assert!(why(&one).contains("one GPU"));
    assert!(why(&one.times(2).expect("two")).contains("no network port"));
    let apart = "topology t {\n machine m0 {\n cpu c0 host=a {\n gpu g0 bus=a\n }\n cpu c1 host=b {\n gpu g1 bus=b\n }\n }\n nodes 1 m0\n}\n";
    assert!(why(&text(apart)).contains("g0 and g1"), "{}", why(&text(apart)));
}

fn slow_ports() {
    let with_slow =
        HALF_NODE.replace("port p0 speed=100000", "port p0 speed=100000\n          port slow speed=1000");
    let channels = of(&text(&with_slow));
    let why = channels.machines[0].unused.join("; ");
    assert!(why.contains("slow: GPUs get 0.125 GB/s of it"), "{why}");
}

/// Every node but the root has one parent, which has it as a child, in both trees; no node has children
/// in both, but for one.
fn two_trees() {
    for nodes in 1..=66u32 {
        let mut inside_both = 0;
        for node in 0..nodes {
            let found = [trees::first_tree(nodes, node), trees::second_tree(nodes, node)];
            for (tree, of) in
                [trees::first_tree, trees::second_tree].into_iter().zip([0, 1]).map(|(f, i)| (f, &found[i]))
            {
                match of.parent {
                    Some(parent) => {
                        assert!(parent < nodes && parent != node);
                        assert!(tree(nodes, parent).children.contains(&Some(node)), "{node} of {nodes}");
                    }
                    None => assert!(of.children[0].is_some() == (nodes > 1)),
                }
                for child in of.children.into_iter().flatten() {
                    assert_eq!(tree(nodes, child).parent, Some(node), "{node} of {nodes}");
                }
                // From every node, parents lead to the root.
                let (mut at, mut steps) = (node, 0);
                while let Some(parent) = tree(nodes, at).parent {
                    (at, steps) = (parent, steps + 1);
                    assert!(steps <= 8, "{node} of {nodes}");
                }
            }
            let degree: usize = found.iter().map(|of| of.children.iter().flatten().count()).sum();
            assert!(degree <= 3, "{node} of {nodes} has {degree} children");
            inside_both += usize::from(found.iter().all(|of| of.children != [None, None]));
        }
        assert!(inside_both <= 2, "{inside_both} of {nodes} nodes are inside both trees");
    }
}

/// Hosts of a cluster have names and addresses of their own, and are searched once all the same.
fn thousands_of_nodes() {
    let one = nodes("hgx-h100", 1).machines[0].clone();
    let named = (0..500).map(|index| {
        let mut machine = one.clone();
        machine.name = format!("node{index}");
        for data in machine.devices.values_mut() {
            if let Kind::Cpu(cpu) = &mut data.kind {
                cpu.host = format!("0x{index:x}");
            }
        }
        assert_eq!(machine.shape(), one.shape());
        Topology::of(machine)
    });
    let cluster = ringsmith_compiler::import::merge("cluster", named).expect("few enough");
    let channels = of(&cluster);
    assert_eq!((cluster.machines.len(), channels.machines.len()), (500, 500));
    assert_eq!((channels.ring_count(), channels.ring(0).count()), (8, 4000));
    assert_ne!(nodes("hgx-b200", 1).machines[0].shape(), one.shape());
    let topology = nodes("hgx-h100", 2048);
    let channels = of(&topology);
    assert_eq!(channels.ring_count(), 8);
    assert_eq!(channels.ring(7).count(), 16_384);
    assert_eq!(channels.ring(7).next(), Some(Place { node: 0, gpu: 7 }));
}
