//! Texts of topologies with the mistakes they earn, and what survives printing.

use ringsmith_ir::diagnostic::line_column;
use ringsmith_ir::topology::{MAX_BYTES, Rate, parse, print};

/// A machine around some lines, the first of which is line 3.
fn inside(lines: &str) -> String {
    format!("topology t {{\nmachine m0 {{\n{lines}\n}}\nnodes 1 m0\n}}\n")
}

/// What a text earns: each code with its line and column.
fn earned(text: &str) -> Vec<(String, usize, usize)> {
    let wrong = parse(text).expect_err(text);
    wrong
        .iter()
        .map(|diagnostic| {
            let (line, column) = line_column(text, diagnostic.span().start);
            assert!(text.get(diagnostic.span().start as usize..diagnostic.span().end as usize).is_some());
            (diagnostic.code.to_string(), line, column)
        })
        .collect()
}

fn check(text: &str, expected: &[(&str, usize, usize)]) {
    let expected: Vec<_> =
        expected.iter().map(|&(code, line, column)| (code.to_owned(), line, column)).collect();
    assert_eq!(earned(text), expected, "{text}");
}

#[test]
fn the_form_of_the_whole() {
    check("", &[("T0101", 1, 1)]);
    check("program @x {\n}", &[("T0101", 1, 1)]);
    check("topology t {\n}", &[("T0205", 2, 2)]);
    check("topology t\n", &[("T0105", 1, 1)]);
    check("topology t {\n}\n}\nmore\n", &[("T0105", 3, 1), ("T0106", 4, 1)]);
    check("topology {\nmachine m0 {\ncpu c0\n}\nnodes 1 m0\n", &[("T0105", 1, 1), ("T0102", 1, 1)]);
    check(&" ".repeat(MAX_BYTES + 1), &[("T0108", 1, 1)]);
    let deep = "bridge bus=a {\n".repeat(70);
    assert!(earned(&inside(&format!("cpu c0 {{\n{deep}"))).iter().any(|(code, ..)| code == "T0108"));
}

#[test]
fn lines_and_attributes() {
    check(&inside("cpu c0 numa=1 numa=2"), &[("T0104", 3, 15)]);
    check(&inside("cpu c0 color=red"), &[("T0104", 3, 8)]);
    check(
        &inside("cpu c0 {\ngpu g0 bus=a width=-1 sm=x class=7\n}"),
        &[("T0103", 4, 14), ("T0103", 4, 23), ("T0103", 4, 28)],
    );
    check(
        &inside("cpu c0 {\ngpu g0 bus=a listed=maybe x.y.z=1 pci.1=2\n}"),
        &[("T0104", 4, 1), ("T0103", 4, 14), ("T0104", 4, 27)],
    );
    check(
        &inside("cpu c0 {\nnic {\nport a speed=1 {\n}\nlight b\n}\n}"),
        &[("T0105", 5, 1), ("T0106", 7, 1)],
    );
    check(&inside("cpu c0 {\ngpu g0 bus=a {\n}\nbridge\n}"), &[("T0105", 4, 1), ("T0104", 6, 1)]);
    check(&inside("cpu c0 \"open"), &[("T0102", 3, 8), ("T0102", 3, 8)]);
    check(&inside("cpu c0 interconnect=0"), &[("T0103", 3, 8)]);
    check(&inside("cpu c0 {\ncpu c1\n}"), &[("T0106", 4, 1)]);
    check(&inside("gpu g0 bus=a"), &[("T0106", 3, 1)]);
    // A card without an address is known by its CPU alone.
    check(&inside("cpu c0 {\nbridge bus=a {\nnic {\nport n speed=1\n}\n}\n}"), &[("T0106", 5, 1)]);
    check(
        "topology t {\nmachine m0 {\ncpu c0\n}\nnodes 0 m0\nnodes 99999 m0\nnodes\n}",
        &[("T0103", 5, 7), ("T0103", 6, 7), ("T0102", 7, 1), ("T0102", 7, 1)],
    );
}

#[test]
fn names_and_links() {
    let two = "cpu c0 {\ngpu g0 bus=a\ngpu g1 bus=b\n}\n";
    let with = |line: &str| inside(&format!("{two}{line}"));
    check(&with("nvlink g0 g1\nnvlink g1 g0"), &[("T0201", 8, 1)]);
    check(&with("nvlink g0 g7"), &[("T0202", 7, 11)]);
    check(&with("nvlink c0 g0"), &[("T0203", 7, 1)]);
    check(&with("nvlink g0 g0"), &[("T0203", 7, 1)]);
    check(&with("xgmi g0 c0"), &[("T0203", 7, 1)]);
    check(&with("cpu c1\nc2c g0 c1"), &[("T0203", 8, 1)]);
    check(&with("nvlink g0 g1 count=0"), &[("T0103", 7, 14)]);
    check(&with("nvlink g0"), &[("T0102", 7, 1)]);
    check(&inside("cpu c1"), &[("T0204", 3, 5)]);
    check(
        &inside("cpu c0 {\ngpu g0 bus=a rank=1\ngpu g1 bus=b rank=0\n}"),
        &[("T0204", 4, 5), ("T0204", 5, 5)],
    );
    check(&inside("cpu c0 {\ngpu g0 bus=a\ngpu g0 bus=b\n}"), &[("T0201", 5, 5)]);
    check(&inside("cpu c0 {\ngpu g0 bus=a\ngpu g1 bus=A\n}"), &[("T0201", 5, 1)]);
    check("topology t {\nmachine m0 {\n}\nnodes 1 m0\n}", &[("T0205", 2, 9)]);
    check("topology t {\nmachine m0 {\ncpu c0\n}\nnodes 1 m1\n}", &[("T0202", 5, 9)]);
}

#[test]
fn every_mistake_is_told_up_to_a_bound() {
    let lines = "nvlink g0 g1 each=x\n".repeat(1000);
    let wrong = parse(&inside(&format!("cpu c0\n{lines}"))).unwrap_err();
    assert_eq!(wrong.len(), 101);
    assert_eq!(wrong[100].code.to_string(), "P0110");
}

/// Each of these would take minutes if anything were compared with everything.
#[test]
fn hostile_texts_are_bounded() {
    let wide: String = (0..1_000_000).map(|i| format!(" a{i}=1")).collect();
    assert_eq!(earned(&inside(&format!("cpu c0{wide}"))).last().map(|last| last.0.as_str()), Some("P0110"));
    let mut many: String = (0..16_000).map(|i| format!("cpu c{i} host=h{i}\n")).collect();
    let topology = parse(&inside(&many)).unwrap();
    assert_eq!(topology.machines[0].hosts().len(), 16_000);
    many.extend((0..300_000).map(|i| format!("nvlink a{i} b{i}\n")));
    assert_eq!(earned(&inside(&many)).last().map(|last| last.0.as_str()), Some("P0110"));
    let mut nodes = "topology t {\nmachine m0 {\ncpu c0\n}\n".to_owned();
    nodes.extend((0..300_000).map(|i| format!("nodes 1 n{i}\n")));
    assert_eq!(earned(&nodes).last().map(|last| last.0.as_str()), Some("P0110"));
}

#[test]
fn what_is_read_is_printed_in_one_form() {
    let loose = "topology  t{//\n machine m0 {\n cpu c0 {\ngpu g1 bus=b dev=1 // second\n gpu g0 bus=a dev=0\n }\n nvlink g1 g0 each=20.60 count=02\n }\n nodes 1 m0\n nodes 2 m0\n}";
    let topology = parse(loose).unwrap();
    assert_eq!(topology.machines[0].links[0].each, Some(Rate(20_600)));
    assert_eq!(topology.node_count(), 3);
    let printed = print(&topology);
    assert!(printed.contains("nvlink g0 g1 count=2 each=20.6\n"), "{printed}");
    assert_eq!(parse(&printed).unwrap(), topology);
}
