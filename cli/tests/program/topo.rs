//! `topo`: this host, and files that are written and read again.

use crate::program::{Folder, run};
use libtest_mimic::{Failed, Trial};
use std::fs;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("topo::shows_this_host_whatever_it_is", shows_this_host_whatever_it_is),
        Trial::test("topo::writes_what_it_reads", writes_what_it_reads),
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
