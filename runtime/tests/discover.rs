//! Hosts as sysfs shows them, made of files: a server, a virtual machine, a container that sees nothing,
//! and nonsense.

use ringsmith_compiler::channels::Channels;
use ringsmith_ir::topology::paths::{PathKind, Paths};
use ringsmith_ir::topology::{Rate, Topology, parse, print, remarks};
use ringsmith_runtime::device::nvml::{Listed, Remote};
use ringsmith_runtime::discover::{Host, topology};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// A made root folder.
struct Made {
    root: PathBuf,
}

impl Made {
    fn new(name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("discover-{name}"));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        Self { root }
    }

    fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A PCIe device at the end of a path below /sys/devices, with its class, speed and width.
    fn device(&self, path: &str, class: &str, speed: &str, width: &str, numa: &str) -> String {
        let bus = path.rsplit('/').next().unwrap();
        let place = format!("sys/devices/{path}");
        for (name, text) in
            [("class", class), ("max_link_speed", speed), ("max_link_width", width), ("numa_node", numa)]
        {
            self.file(&format!("{place}/{name}"), &format!("{text}\n"));
        }
        let link = self.root.join("sys/bus/pci/devices").join(bus);
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(format!("../../../devices/{path}"), link).unwrap();
        place
    }

    fn numa(&self, node: u32) -> &Self {
        self.file(&format!("sys/devices/system/node/node{node}/cpulist"), "0-7\n");
        self.file(&format!("sys/devices/system/node/node{node}/cpumap"), "000000ff\n")
    }

    fn intel(&self) -> &Self {
        self.file("proc/sys/kernel/hostname", "made\n").file(
            "proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: made\n",
        )
    }

    /// What is found; it has paths and channels, and reads back from its own text.
    fn found(&self) -> Topology {
        self.found_with(Vec::new())
    }

    /// The same, with a driver that lists GPUs.
    fn found_with(&self, listed: Vec<Listed>) -> Topology {
        let found = topology(&Host { root: self.root.clone(), arch: "x86_64".to_owned(), listed });
        Channels::of(&found);
        assert_eq!(parse(&print(&found)).as_ref(), Ok(&found));
        found
    }
}

const GEN5: &str = "32.0 GT/s PCIe";
const GEN4: &str = "16.0 GT/s PCIe";
const PORT: &str = "0x060400";

#[test]
fn a_server_with_switches() {
    let made = Made::new("server");
    made.intel().numa(0).numa(1);
    for (root, numa) in [("10", "0"), ("80", "1")] {
        let port = format!("pci0000:{root}/0000:{root}:01.0");
        made.device(&port, PORT, GEN5, "16", numa);
        let switch = format!("{port}/0000:{root}:02.0");
        made.device(&switch, PORT, GEN5, "16", numa);
        for (slot, class) in [("4", "0x030200"), ("5", "0x020700")] {
            let lower = format!("{switch}/0000:{root}:0{slot}.0");
            made.device(&lower, PORT, if slot == "5" { GEN4 } else { GEN5 }, "16", numa);
            let device = made.device(&format!("{lower}/0000:{root}:1{slot}.0"), class, GEN5, "16", numa);
            if slot == "5" {
                let name = format!("mlx5_{numa}");
                made.file(&format!("{device}/infiniband/{name}/ports/1/rate"), "400 Gb/sec (4X NDR)\n");
                made.file(&format!("{device}/infiniband/{name}/ports/1/state"), "4: ACTIVE\n");
                made.file(&format!("{device}/infiniband/{name}/ports/2/state"), "1: DOWN\n");
                made.file(&format!("{device}/net/ib{numa}/speed"), "1\n");
            }
        }
    }
    // What plans have no use for.
    made.device("pci0000:10/0000:10:1f.0", "0x060100", "Unknown", "255", "0");
    let found = made.found();
    assert_eq!(
        print(&found),
        r#"topology made {
  assumed "mlx5_0/2, mlx5_1/2: network ports that are down are left out"
  machine m0 made {
    cpu c0 numa=0 arch=x86_64 vendor=GenuineIntel family=6 model=143 affinity=000000ff {
      bridge bus=0000:10:02.0 class=0x060400 speed="32.0 GT/s PCIe" width=16 {
        gpu g0 bus=0000:10:14.0 class=0x030200 speed="32.0 GT/s PCIe" width=16 dev=0 listed=no
        nic bus=0000:10:15.0 class=0x020700 speed="16.0 GT/s PCIe" width=16 {
          port mlx5_0 dev=0 speed=400000 port=1
        }
      }
    }
    cpu c1 numa=1 arch=x86_64 vendor=GenuineIntel family=6 model=143 affinity=000000ff {
      bridge bus=0000:80:02.0 class=0x060400 speed="32.0 GT/s PCIe" width=16 {
        gpu g1 bus=0000:80:14.0 class=0x030200 speed="32.0 GT/s PCIe" width=16 dev=1 listed=no
        nic bus=0000:80:15.0 class=0x020700 speed="16.0 GT/s PCIe" width=16 {
          port mlx5_1 dev=1 speed=400000 port=1
        }
      }
    }
  }
  nodes 1 m0
}
"#
    );
    let told = remarks(&found).join("\n");
    assert!(
        told.contains("known by PCIe class 0x0302 alone: NVLink and compute capability are unknown"),
        "{told}"
    );
    let paths = Paths::of(&found.machines[0]);
    assert_eq!(paths.to_port(0, 0).map(|path| (path.kind, path.rate)), Some((PathKind::Pix, Rate(24_000))));
    assert_eq!(paths.between(0, 1).map(|path| path.kind), Some(PathKind::Sys));
}

/// Eighteen NVLinks to two switches that sysfs does not show, as in a virtual machine, and two to the
/// other GPU; one GPU is the driver's alone.
#[test]
fn what_the_driver_lists() {
    let made = Made::new("driver");
    made.intel().numa(0);
    for slot in 1..=3 {
        made.device(&format!("pci0000:00/0000:00:0{slot}.0"), "0x030200", GEN5, "16", "0");
    }
    let listed = |slot: u32, other: u32| {
        let link = |bus: String, is_switch| Remote { bus, is_switch };
        let mut links: Vec<Remote> =
            (0..18).map(|index| link(format!("0000:c{}:00.0", index % 2), true)).collect();
        links.extend((0..2).map(|_| link(format!("0000:00:0{other}.0"), false)));
        Listed { bus: format!("0000:00:0{slot}.0"), sm: 90, links }
    };
    let found = made.found_with(vec![
        listed(1, 2),
        listed(2, 1),
        Listed { bus: "0000:ff:00.0".to_owned(), ..listed(1, 2) },
    ]);
    let machine = &found.machines[0];
    assert_eq!((machine.gpus().len(), machine.switches().len()), (3, 2));
    let links: Vec<u32> = machine.links.iter().map(|link| link.count).collect();
    assert_eq!(links, [2, 9, 9, 9, 9]);
    let path = Paths::of(machine);
    assert_eq!(path.between(0, 1).map(|path| path.kind), Some(PathKind::Nvl));
    assert_eq!(path.between(0, 2).map(|path| path.kind), Some(PathKind::Phb), "g2 is not listed");
    let told = remarks(&found).join("\n");
    assert!(told.contains("0000:ff:00.0: the driver lists this GPU, and sysfs does not"), "{told}");
    assert!(told.contains("GPU g2 is known by PCIe class 0x0302 alone"), "{told}");
}

/// Virtual bridges report one lane of PCIe 1, and some virtual GPUs as well; cards may have no speed.
#[test]
fn a_virtual_machine() {
    let made = Made::new("virtual");
    made.intel().numa(0).numa(1);
    let slow = ("2.5 GT/s PCIe", "1");
    for (root, own) in [("1", (GEN4, "16")), ("2", slow)] {
        let port = format!("pci0000:00/0000:00:0{root}.0");
        made.device(&port, PORT, slow.0, slow.1, "-1");
        made.device(&format!("{port}/0000:0{root}:00.0"), "0x030200", own.0, own.1, "-1");
    }
    let card = made.device("pci0000:00/0000:00:07.0", "0x020000", "Unknown", "0", "-1");
    made.file(&format!("{card}/virtio1/net/eth0/speed"), "-1\n");
    let found = made.found();
    let told = remarks(&found);
    let has = |part: &str| assert!(told.iter().any(|remark| remark.contains(part)), "{part}: {told:#?}");
    has("0000:00:01.0: ports that say 2.5 GT/s x1, which bridges of virtual machines do, are not believed");
    has("0000:02:00.0: its link says 2.5 GT/s PCIe x1, which cannot be what it has: 12 GB/s is assumed");
    has(
        "0000:00:07.0, 0000:01:00.0, 0000:02:00.0: the host does not tell their NUMA node: node 0 is assumed",
    );
    has("network ports without a speed: eth0");
    let paths = Paths::of(&found.machines[0]);
    assert_eq!((paths.gpus.len(), paths.ports.len()), (2, 1));
    let rate = paths.between(0, 1).expect("one host").rate;
    assert_eq!(rate, Rate(10_000), "12 GB/s, less a fifth for a CPU of Intel, and not 0.2 GB/s");
}

#[test]
fn a_container_that_sees_nothing() {
    let found = Made::new("nothing").found();
    assert_eq!((found.gpu_count(), found.machines[0].cpus().len()), (0, 1));
    let told = found.assumed.join("\n");
    for part in ["NUMA nodes: one is assumed", "no network port was found", "no GPU was found"] {
        assert!(told.contains(part), "{told}");
    }
    let missing = topology(&Host {
        root: PathBuf::from("/nowhere/at/all"),
        arch: "riscv64".to_owned(),
        listed: Vec::new(),
    });
    assert_eq!(missing.node_count(), 1);
}

/// The interface of a container is a virtual one.
#[test]
fn a_container_with_an_interface() {
    let made = Made::new("container");
    made.intel().numa(0);
    for (name, state) in [("lo", "unknown"), ("docker0", "up"), ("eno1", "down"), ("eth0", "up")] {
        made.file(&format!("sys/class/net/{name}/operstate"), &format!("{state}\n"));
        made.file(&format!("sys/class/net/{name}/speed"), "10000\n");
    }
    let found = made.found();
    let machine = &found.machines[0];
    assert_eq!(machine.ports().into_iter().map(|port| machine.port_name(port)).collect::<Vec<_>>(), ["eth0"]);
    assert!(found.assumed.join("\n").contains("eth0 is no card on PCIe"), "{:?}", found.assumed);
}

/// Neither long files, nor links in circles, nor values that cannot be do more than be left out.
#[test]
fn nonsense() {
    let made = Made::new("nonsense");
    made.intel().numa(0).file("proc/sys/kernel/hostname", &"h\u{1b}[31m".repeat(100_000));
    let device =
        made.device("pci0000:00/0000:00:01.0", "0x030200", &"9".repeat(1 << 20), "-7", "9999999999999");
    made.file(&format!("{device}/vendor"), "\u{0}\u{fffd}\"{}//\n");
    made.device("pci0000:00/0000:00:02.0", "class", "", "", "");
    made.device("pci0000:00/0000:00:03.0", "0x7fffffffffffffff", "", "", "");
    let devices = made.root.join("sys/bus/pci/devices");
    symlink("0000:00:05.0", devices.join("0000:00:05.0")).unwrap();
    let deep = "0000:00:00.0/".repeat(100);
    made.device(&format!("pci0000:00/{deep}0000:00:06.0"), "0x030200", GEN4, "16", "0");
    fs::create_dir_all(made.root.join("sys/bus/pci/devices/0000:00:07.0/class")).unwrap();
    let found = made.found();
    assert_eq!(found.gpu_count(), 2);
    // More GPUs than a machine may have.
    for index in 0..300 {
        made.device(&format!("pci0001:00/0001:00:{index:02x}.0"), "0x030200", GEN4, "16", "0");
    }
    let found = made.found();
    assert_eq!(found.gpu_count(), 0);
    assert!(found.assumed.join("\n").contains("at most 256 GPUs"), "{:?}", found.assumed);
}
