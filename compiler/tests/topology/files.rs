//! Small files of our own for every feature of NCCL's form, and for every way in which they are wrong.

use libtest_mimic::Trial;
use ringsmith_compiler::import::{Described, Stop, read, read_topology};
use ringsmith_ir::diagnostic::{Diagnostic, line_column};
use ringsmith_ir::topology::paths::{PathKind, Paths};
use ringsmith_ir::topology::{Kind, LinkKind, Topology, remarks};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        crate::trial("files::links_of_every_dialect", links_of_every_dialect),
        crate::trial("files::gpus_by_class", gpus_by_class),
        crate::trial("files::unlisted_devices_are_left_out", unlisted_devices_are_left_out),
        crate::trial("files::values_that_cannot_be_are_replaced", values_that_cannot_be_are_replaced),
        crate::trial("files::graphs", graphs),
        crate::trial("files::mistakes_have_places", mistakes_have_places),
        crate::trial("files::hostile_xml_is_bounded", hostile_xml_is_bounded),
    ]
}

fn topology(text: &str) -> Topology {
    read_topology("test", text).unwrap_or_else(|wrong| panic!("{wrong:#?}"))
}

fn system(inner: &str) -> String {
    format!(
        "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\">{inner}</cpu></system>"
    )
}

fn gpu(bus: &str, dev: u32, links: &str) -> String {
    format!(
        "<pci busid=\"{bus}\" class=\"0x030200\" link_speed=\"8.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"{dev}\" sm=\"70\" rank=\"{dev}\">{links}</gpu></pci>"
    )
}

fn links_of_every_dialect() {
    let to =
        |target: &str, class: &str| format!("<nvlink target=\"{target}\" count=\"2\" tclass=\"{class}\"/>");
    let text = system(&format!(
        "{}{}{}",
        gpu("0000:01:00.0", 0, &(to("0000:02:00.0", "0x030200") + &to("fffffff:ff:ff.0", "0x068000"))),
        gpu("0000:02:00.0", 1, &(to("0000:01:00.0", "0x030200") + "<c2c bw=\"400000\" count=\"1\"/>")),
        gpu(
            "0000:03:00.0",
            2,
            "<xgmi target=\"0000:01:00.0\" count=\"1\" tclass=\"0x038000\"/><nvlink target=\"0\" count=\"1\" tclass=\"0x068001\"/>"
        ),
    ));
    let topology = topology(&text);
    let machine = &topology.machines[0];
    let links: Vec<(LinkKind, u32, bool)> = machine
        .links
        .iter()
        .map(|link| (link.kind, link.count, matches!(machine.devices[link.to].kind, Kind::Gpu(_))))
        .collect();
    assert_eq!(
        links,
        [
            (LinkKind::Nvlink, 2, true),
            (LinkKind::Xgmi, 1, true),
            (LinkKind::Nvlink, 2, false),
            (LinkKind::C2c, 1, false),
            (LinkKind::Nvlink, 1, false)
        ],
        "each link once, whoever lists it"
    );
    assert_eq!(machine.switches().len(), 1, "an address that no device has, with a switch's class");
    assert_eq!(topology.assumed, Vec::<String>::new());
    let odd = system(&format!(
        "{}{}",
        gpu("0000:01:00.0", 0, &(to("0000:02:00.0", "0x030200") + &to("0000:09:00.0", "0x030200"))),
        gpu(
            "0000:02:00.0",
            1,
            "<nvlink target=\"0000:01:00.0\" count=\"1\"/><nvlink target=\"0000:02:00.0\" count=\"12\"/>"
        ),
    ));
    let topology = self::topology(&odd);
    assert_eq!(topology.machines[0].links.iter().map(|link| link.count).collect::<Vec<_>>(), [1]);
    let told = topology.assumed.join("\n");
    for part in ["1 are taken", "0000:09:00.0, which is not listed", "lead to itself"] {
        assert!(told.contains(part), "{told}");
    }
}

const SKELETON: &str = r#"
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="0000:10:1c.0" class="0x030200" link_speed="8 GT/s" link_width="16"/>
      <pci busid="0000:10:1d.0" class="0x030200" link_speed="8 GT/s" link_width="16"/>
      <pci busid="0000:10:1b.0" class="0x020000" link_speed="8 GT/s" link_width="16"/>
    </pci>"#;

fn gpus_by_class() {
    let topology = topology(&system(SKELETON));
    assert_eq!((topology.gpu_count(), topology.machines[0].ports().len()), (2, 1));
    let told = remarks(&topology).join("\n");
    assert!(told.contains("GPUs g0, g1 are known by PCIe class 0x0302 alone: NVLink"), "{told}");
    assert!(told.contains("without a speed: 0000:10:1b.0") && told.contains("12 GB/s"), "{told}");
    let paths = Paths::of(&topology.machines[0]);
    assert_eq!(paths.between(0, 1).map(|path| path.kind), Some(PathKind::Pix));
}

fn unlisted_devices_are_left_out() {
    let listed = gpu("0000:01:00.0", 0, "") + "<nic><net name=\"eth0\" dev=\"0\" speed=\"10000\"/></nic>";
    let topology = topology(&system(&(SKELETON.to_owned() + &listed)));
    assert_eq!((topology.gpu_count(), topology.machines[0].ports().len()), (1, 1));
    assert_eq!(topology.assumed.len(), 3, "{:?}", topology.assumed);
}

fn values_that_cannot_be_are_replaced() {
    let text = system(
        r#"<pci busid="0000:00:05.0" class="0x060400" link_speed="2.5 GT/s PCIe" link_width="1">
             <pci busid="0000:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="90"/></pci>
             <pci busid="0000:02:00.0" class="0x020000" link_speed="2.5 GT/s PCIe" link_width="1"><nic><net name="slow" speed="1000"/></nic></pci>
             <pci busid="0000:03:00.0" class="0x020000" link_speed="16.0 GT/s PCIe" link_width="16"><nic><net name="cxi0" speed="200000000"/></nic></pci>
             <pci busid="0000:04:00.0" class="0x020000" link_speed="" link_width="0"><nic><net name="unknown" speed="-1"/></nic></pci>
           </pci>"#,
    );
    let topology = topology(&text);
    let told = remarks(&topology);
    let has = |part: &str| {
        assert_eq!(told.iter().filter(|remark| remark.contains(part)).count(), 1, "{part}: {told:#?}")
    };
    has("0000:00:05.0: its link says 2.5 GT/s PCIe x1, which cannot be what it has: 12 GB/s is assumed");
    has("cxi0: 200000000 Mbit/s cannot be: 24 GB/s is assumed");
    has("PCIe links without speed and width: 0000:04:00.0; 12 GB/s is assumed of each");
    has("without a speed: unknown; as much as the card's PCIe link has is assumed (1.3 GB/s)");
    assert_eq!(told.len(), 4, "a slow card on a slow link is believed: {told:#?}");
    let paths = Paths::of(&topology.machines[0]);
    let rate = |port| paths.to_port(0, port).expect("one CPU").rate.0;
    assert_eq!([rate(0), rate(1), rate(2)], [125, 24_000, 1_250]);
}

fn graphs() {
    let text = r#"<graphs version="1"><graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="12" speedinter="6" typeintra="SYS" typeinter="PIX">
        <channel><net dev="1"/><gpu dev="0"/><gpu rank="3"/><net dev="1"/></channel></graph></graphs>"#;
    let Ok(Described::Graphs(graphs)) = read("test", text) else { panic!("these are graphs") };
    let graph = &graphs.graphs[0];
    assert_eq!(graph.channels, [[Stop::Net(1), Stop::Gpu(0), Stop::Gpu(3), Stop::Net(1)]]);
    assert_eq!((graph.shape(), graph.type_inter.as_str()), ("ring", "PIX"));
    let wrong = read("test", "<graphs><graph id='x'><channel><tpu/></channel></graph></graphs>").unwrap_err();
    assert_eq!(codes(&wrong), ["T0103", "T0104", "T0106"], "{wrong:#?}");
}

fn codes(wrong: &[Diagnostic]) -> Vec<String> {
    let mut codes: Vec<String> = wrong.iter().map(|diagnostic| diagnostic.code.to_string()).collect();
    codes.sort();
    codes
}

/// Each text earns these codes, the first of them in this line and column.
fn mistakes_have_places() {
    let cases: &[(&str, &[&str], (usize, usize))] = &[
        ("<system>\n<cpu/></system>", &["T0104"], (1, 1)),
        ("<system version='3'><cpu/></system>", &["T0103"], (1, 9)),
        ("<system version='1'/>", &["T0205"], (1, 1)),
        ("<topology version='2.0'/>", &["T0101"], (1, 1)),
        ("<algo/>", &["T0101"], (1, 1)),
        ("<html/>", &["T0101"], (1, 1)),
        ("<system version='1'><cpu>\n<pci/></cpu></system>", &["T0104", "T0104"], (2, 1)),
        ("<system version='1'><cpu numaid='zero'/></system>", &["T0103"], (1, 26)),
        ("<system version='1'>\n  <gpu/></system>", &["T0106"], (2, 3)),
        (
            "<system version='1'><cpu><pci busid='a' class='0x060400'>\n<disk/></pci></cpu></system>",
            &["T0106"],
            (2, 1),
        ),
        (
            "<system version='1'><cpu><pci busid='a' class='0x030200'><gpu/><gpu/></pci></cpu></system>",
            &["T0201"],
            (1, 64),
        ),
        (
            "<system version='1'><cpu><pci busid='a' class='0x030200'><gpu/></pci>\n<pci busid='A' class='0x030200'><gpu/></pci></cpu></system>",
            &["T0201"],
            (2, 1),
        ),
        (
            "<system version='1'><cpu><pci busid='a' class='0x030200'><gpu><nvlink count='1'/></gpu></pci></cpu></system>",
            &["T0104"],
            (1, 63),
        ),
        (
            "<system version='1'><cpu><pci busid='a' class='0x030200'><gpu><nvlink target='b' count='9999'/></gpu></pci></cpu></system>",
            &["T0103"],
            (1, 63),
        ),
        (
            "<system version='1'><cpu><pci busid='a' class='0x030200'><gpu/><pci busid='b' class='0x060400'/></pci></cpu></system>",
            &["T0106"],
            (1, 64),
        ),
        ("<system version='1'>\n<cpu></system>", &["T0107"], (2, 6)),
        ("<system version='1'", &["T0107"], (1, 20)),
        ("<!DOCTYPE a><system/>", &["T0107"], (1, 1)),
        ("<system version='1'><cpu arch='&bomb;'/></system>", &["T0107"], (1, 32)),
    ];
    for (text, expected, place) in cases {
        let wrong = read("test", text).expect_err(text);
        assert_eq!(codes(&wrong), *expected, "{text}: {wrong:#?}");
        assert_eq!(line_column(text, wrong[0].span().start), *place, "{text}: {wrong:#?}");
    }
}

fn hostile_xml_is_bounded() {
    let bomb = "<!DOCTYPE b [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><system version='1'><cpu arch='&b;'/></system>";
    assert_eq!(codes(&read("test", bomb).unwrap_err()), ["T0107"]);
    let deep = format!(
        "<system version='1'><cpu>{}{}</cpu></system>",
        "<pci busid='a' class='0x060400'>".repeat(50_000),
        "</pci>".repeat(50_000)
    );
    assert_eq!(codes(&read("test", &deep).unwrap_err()), ["T0108"]);
    let unclosed = "<a>".repeat(200_000);
    assert_eq!(codes(&read("test", &unclosed).unwrap_err()), ["T0107"]);
    let many = format!(
        "<system version='1'><cpu>{}</cpu></system>",
        "<pci busid='a' class='0x060400'/>".repeat(20_000)
    );
    assert_eq!(codes(&read("test", &many).unwrap_err()), ["T0108"]);
    let more = format!("<system version='1'><cpu>{}</cpu></system>", "<pci/>".repeat(300_000));
    assert_eq!(codes(&read("test", &more).unwrap_err()), ["T0108"]);
    let large = format!("<system version='1'>{}</system>", " ".repeat(1 << 24));
    assert_eq!(codes(&read("test", &large).unwrap_err()), ["T0108"]);
    let wide: String = (0..2_000_000).map(|i| format!(" a{i}=''")).collect();
    let wide = format!("<system version='1'><cpu{}/></system>", &wide[..1 << 23]);
    assert_eq!(codes(&read("test", &wide).unwrap_err()), ["T0108"]);
    let spaces: String = (0..100_000).map(|i| format!("<a xmlns:n{i}='{i}'>")).collect();
    assert_eq!(codes(&read("test", &spaces).unwrap_err()), ["T0107"]);
    let apart: String = (0..5_000).map(|i| format!("<cpu node='{i}' numaid='{i}'/>")).collect();
    let apart = format!("<system version='1'>{apart}</system>");
    assert_eq!(codes(&read("test", &apart).unwrap_err()), ["T0108"]);
    let gpus: String = (0..300).map(|i| gpu(&format!("{i}"), i, "")).collect();
    assert_eq!(codes(&read("test", &system(&gpus)).unwrap_err()), ["T0108"]);
}
