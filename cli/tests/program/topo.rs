//! `topo`: this host, and files that are written and read again.

use crate::program::{Folder, run};
use libtest_mimic::{Failed, Trial};
use std::fs;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("topo::shows_this_host_whatever_it_is", shows_this_host_whatever_it_is),
        Trial::test("topo::writes_what_it_reads", writes_what_it_reads),
        Trial::test("topo::names_are_plain", names_are_plain),
        Trial::test("topo::what_is_too_large_is_a_description", what_is_too_large_is_a_description),
    ]
}

fn shows_this_host_whatever_it_is() -> Result<(), Failed> {
    let shown = run(["topo", "--json"]);
    assert_eq!((shown.status, shown.stderr.as_str()), (0, ""));
    let whole: serde_json::Value = serde_json::from_str(&shown.stdout)?;
    assert_eq!(whole["nodes"], 1);
    assert!(whole["machines"][0]["cpus"].as_u64() >= Some(1), "{whole}");
    assert_eq!(
        whole["machines"][0]["gpus"].as_array().map(Vec::len),
        whole["gpus"].as_u64().map(|n| n as usize)
    );
    assert_eq!(run(["topo", "--topo", "auto", "--json"]).stdout, shown.stdout);
    assert_eq!(run(["topo"]).status, 0);
    Ok(())
}

/// What a terminal obeys stands as in every other message.
fn names_are_plain() -> Result<(), Failed> {
    let folder = Folder::new("topo-names");
    // A machine of NCCL's XML is called after its file.
    let file = folder.file("a\x1b[31m\nb.xml", "");
    let dump = ["topo".as_ref(), "--topo".as_ref(), "dgx1v".as_ref(), "--dump".as_ref(), file.as_os_str()];
    assert_eq!(run(dump).status, 0);
    let shown = run(["topo".as_ref(), "--topo".as_ref(), file.as_os_str()]);
    assert_eq!(shown.status, 0, "{}", shown.stderr);
    assert!(shown.stdout.contains("a\\u{1b}[31m\\nb"), "{}", shown.stdout);
    assert!(!shown.stdout.contains('\x1b') && !shown.stdout.contains("a?[31m"), "{}", shown.stdout);
    Ok(())
}

fn what_is_too_large_is_a_description() -> Result<(), Failed> {
    let folder = Folder::new("topo-large");
    let file = folder.file("large.topo", " ".repeat((16 << 20) + 1));
    let done = run(["topo".as_ref(), "--topo".as_ref(), file.as_os_str()]);
    assert_eq!((done.status, done.stdout.as_str()), (2, ""));
    assert!(done.stderr.contains("the most that a description of a machine may have"), "{}", done.stderr);
    Ok(())
}

fn writes_what_it_reads() -> Result<(), Failed> {
    let folder = Folder::new("topo");
    let path = |name: &str| folder.file(name, "").to_string_lossy().into_owned();
    let (xml, text, picture) = (path("a.xml"), path("a.topo"), path("a.svg"));
    let json = |topo: &str| run(["topo", "--topo", topo, "--json"]).stdout.replace("\"a\"", "\"dgx1v\"");
    assert_eq!(run(["topo", "--topo", "dgx1v", "--dump", &xml, "--svg", &picture]).status, 0);
    assert_eq!(run(["topo", "--topo", &xml, "--dump", &text]).status, 0);
    assert_eq!(json(&xml), json("dgx1v"));
    assert_eq!(json(&text), json("dgx1v"));
    assert!(fs::read_to_string(&picture)?.contains("dgx1v: 1 node, 8 GPUs"));
    let refused = run(["topo", "--topo", &picture]);
    assert_eq!(refused.status, 2);
    assert!(refused.stderr.contains("T0101"), "{}", refused.stderr);
    Ok(())
}
