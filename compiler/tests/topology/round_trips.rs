//! What is written is read back as the same.

use libtest_mimic::Trial;
use ringsmith_compiler::import::{merge, read_topology, write_topology};
use ringsmith_compiler::machines::{KNOWN, known};
use ringsmith_ir::topology::{Topology, parse, print};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("round_trips::known_machines", known_machines),
        crate::trial("round_trips::merged_nodes", merged_nodes),
        crate::trial("round_trips::odd_values", odd_values),
        crate::trial("round_trips::too_many_for_xml", too_many_for_xml),
    ]
}

pub(crate) fn same_after_text(topology: &Topology) {
    let text = print(topology);
    let again = parse(&text).unwrap_or_else(|wrong| panic!("{wrong:#?}\n{text}"));
    assert_eq!(again, *topology, "{text}");
    assert_eq!(print(&again), text);
}

pub(crate) fn same_after_xml(topology: &Topology) {
    let text = write_topology(topology).expect("it is small");
    let again = read_topology(&topology.name, &text).unwrap_or_else(|wrong| panic!("{wrong:#?}\n{text}"));
    let named = |topology: &Topology| {
        let mut machines = topology.machines.clone();
        // XML has a name for the whole alone.
        for machine in &mut machines {
            machine.name.clear();
        }
        (machines, topology.nodes.clone())
    };
    assert_eq!(named(&again), named(topology), "{text}");
}

fn known_machines() {
    for machine in &KNOWN {
        let topology = known(machine.name).expect("it is in the table");
        same_after_text(&topology);
        same_after_xml(&topology);
        same_after_xml(&topology.clone().times(3).expect("three nodes"));
        assert!(ringsmith_ir::topology::remarks(&topology).is_empty(), "{}", machine.name);
    }
    assert!(known("dgx-b300").is_none());
}

fn merged_nodes() {
    let one = |name| known(name).expect("it is in the table");
    let parts = [one("hgx-h100"), one("hgx-h100"), one("dgx1v"), one("hgx-h100")];
    let whole = merge("mixed", parts).expect("four nodes");
    assert_eq!((whole.machines.len(), whole.node_count(), whole.gpu_count()), (2, 4, 32));
    assert_eq!(
        whole.nodes.iter().map(|nodes| (nodes.machine, nodes.count)).collect::<Vec<_>>(),
        [(0, 2), (1, 1), (0, 1)]
    );
    same_after_text(&whole);
    same_after_xml(&whole);
    let huge = one("dgx1v").times(65_536).expect("as many nodes as there may be");
    assert!(merge("too many", [huge.clone(), one("dgx1v")]).is_none());
    assert!(huge.times(2).is_err());
}

/// Names, attributes and values that either form could trip over.
fn odd_values() {
    let text = r#"topology "a \"name\" \\ {with} // signs\u{a}" {
  assumed "it said <so> & \u{1b}[31m"
  machine m0 "é \u{202e}" {
    cpu c0 host="a b" numa=-1 arch="" vendor="<&>'\"" family=4294967295 model=0 interconnect=20.125 affinity="ff,00" x.host=q {
      bridge bus=A:b class=0xffffff speed="no speed" width=99 vendor=0x1 x.bus=twice {
        gpu g0 bus=g class=0x038000 dev=7 sm=0 gcn=gfx90a gdr=0 x.rank=9 pci.vendor=0x2 pci.bus=z
        nic bus=n class=0x020000 x.y="" {
          port "" speed=0
          port p dev=1 speed=4294967295 guid=0x1
        }
        nic bus=m class=0x020700
      }
      nic {
        port eth0 speed=10 x.speed=1
      }
      device bus=d class=0x068001
    }
    switch s0 bus="ff ff" class=0x068000
    nvlink g0 c0 count=1024 each=0.001
    nvlink g0 s0 count=3
  }
  nodes 65535 m0
  nodes 1 m0
}
"#;
    let topology = parse(&text.replace(" x.host=q", "")).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    same_after_text(&topology);
    let with_mark = parse(text).unwrap_or_else(|wrong| panic!("{wrong:#?}"));
    same_after_text(&with_mark);
}

fn too_many_for_xml() {
    let huge = known("hgx-h100").expect("it is in the table").times(16_384).expect("few enough");
    let refused = write_topology(&huge).expect_err("too large");
    assert!(refused.to_string().contains(".topo"), "{refused}");
    assert!(print(&huge).len() < 10_000, "equal nodes are named once");
}
