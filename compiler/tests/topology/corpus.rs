//! Every file of the corpus is read or refused for a right reason, and survives writing.

use crate::round_trips::{same_after_text, same_after_xml};
use libtest_mimic::{Failed, Trial};
use ringsmith_compiler::import::{Described, read};
use ringsmith_ir::topology::Topology;
use std::path::{Path, PathBuf};

pub(crate) fn trials() -> Vec<Trial> {
    let mut files = Vec::new();
    let Some(folder) = std::env::var_os("RINGSMITH_TEST_CORPUS") else {
        let skipped = Trial::test("corpus (RINGSMITH_TEST_CORPUS names none)", || Ok(()));
        return vec![skipped.with_ignored_flag(true)];
    };
    collect(Path::new(&folder), &mut files);
    files.sort();
    assert!(!files.is_empty(), "RINGSMITH_TEST_CORPUS names a folder without XML");
    files
        .into_iter()
        .map(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Trial::test(format!("corpus::{name}"), move || check(&file))
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|ending| ending == "xml") {
            files.push(path);
        }
    }
}

fn check(file: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(file)?;
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    match read(&name, &text).map_err(|wrong| format!("{wrong:?}"))? {
        Described::Graphs(graphs) => {
            assert!(graphs.graphs.iter().all(|graph| !graph.channels.is_empty()));
        }
        Described::Topology(topology) => {
            let listed = text.matches("<gpu ").count();
            let by_class = text.matches("class=\"0x030200\"").count();
            let expected = if listed > 0 { listed } else { by_class };
            assert_eq!(topology.gpu_count(), expected as u64, "a GPU was lost");
            same_after_text(&topology);
            same_after_xml(&topology);
            rings_and_trees(&topology);
        }
    }
    Ok(())
}

/// Rings and trees reach all GPUs, of one node and of two; what they leave out has a reason.
fn rings_and_trees(topology: &Topology) {
    for nodes in [1, 2] {
        let cluster = topology.clone().times(nodes).expect("few nodes");
        let found = crate::channels::of(&cluster);
        let ports: usize = cluster.machines.iter().map(|machine| machine.ports().len()).min().unwrap_or(0);
        assert_eq!(found.ring_count() > 0, nodes == 1 || ports > 0, "{:?}", found.machines);
        println!(
            "{nodes} x {}: {} GPUs, {ports} ports; {} rings of {} ({:?}), {} trees of {}; {:?}",
            topology.name,
            topology.gpu_count(),
            found.ring_count(),
            found.ring_rate,
            found.machines[0].rings.first().map(|ring| (ring.kind, ring.port_kind)),
            found.tree_count(),
            found.tree_rate,
            found.machines[0].unused
        );
    }
}
