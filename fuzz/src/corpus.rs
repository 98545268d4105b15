//! Right inputs to damage: the programs that the planner ships, the file tests, and frames of every
//! kind.

use ringsmith_compiler::import;
use ringsmith_compiler::lower::{self, Options};
use ringsmith_compiler::machines;
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::text::{self, File};
use ringsmith_ir::topology;
use ringsmith_ir::verify;
use ringsmith_runtime::bootstrap::frame::{self, Frame, Join};
use ringsmith_runtime::bootstrap::refusal::{Process, Refusal};
use std::path::Path;

/// The text of every program and schedule of the tree, ordered by path.
pub(crate) fn texts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for folder in ["compiler/src/plan", "ir/tests", "tests/file", "examples"] {
        collect(&root.join(folder), &mut paths);
    }
    paths.sort();
    let texts: Vec<String> = paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    assert!(texts.len() > 10, "the corpus is gone from the tree");
    texts
}

fn collect(folder: &Path, paths: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|ending| ending == "sched") {
            paths.push(path);
        }
    }
}

/// Flat schedules of every program that expands, for two to four ranks, and kernel plans made from
/// them.
pub(crate) fn flat_texts() -> Vec<String> {
    let mut flat = Vec::new();
    for source in texts() {
        let Ok(File::Program(program)) = text::parse(&source) else { continue };
        for ranks in 2..=4 {
            let arguments = [Arguments::ranks(ranks), Arguments::ranks(ranks).root(ranks - 1)];
            for schedule in arguments.iter().filter_map(|arguments| expand(&program, arguments).ok()) {
                flat.push(text::print_schedule(&schedule));
                let Ok(proved) = verify::schedule(schedule) else { continue };
                for protocol in [Protocol::Simple, Protocol::Ll] {
                    let options = Options { protocol, slots: 2, slot_bytes: 4096 };
                    flat.extend(
                        lower::lower(&proved, options).ok().map(|plan| text::print_kernel_plan(&plan)),
                    );
                }
            }
        }
    }
    assert!(flat.len() > 10, "no program of the tree expands");
    flat
}

/// Known machines as text and as XML, alone and several together, and what the tests of the program
/// describe.
pub(crate) fn topologies() -> Vec<String> {
    let mut texts = Vec::new();
    for known in &machines::KNOWN {
        let topology = machines::known(known.name).expect("the table has its own machines");
        // A rack is so large that a case of it takes the time of many.
        if topology.gpu_count() <= 16 {
            texts.push(topology::print(&topology));
            texts.extend(import::write_topology(&topology));
            let several = topology.times(3).expect("three nodes are few");
            texts.push(topology::print(&several));
            texts.extend(import::write_topology(&several));
        }
    }
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/samples");
    for entry in std::fs::read_dir(samples).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "xml" || ending == "topo") {
            texts.extend(std::fs::read_to_string(path));
        }
    }
    texts.sort();
    texts
}

/// A frame of every kind, as bytes.
pub(crate) fn frames() -> Vec<Vec<u8>> {
    let process = || Process { pid: 4711, host: "host-a".to_owned() };
    let refusals = vec![
        Refusal::Missing { missing: vec![1, 5, 6], waited_ms: 120_000, strangers: Some("one".to_owned()) },
        Refusal::DuplicateRank { rank: 1, first: process(), second: process() },
        Refusal::RankOutOfRange { rank: 9, world: 4, process: process() },
        Refusal::WorldMismatch { rank: 1, world: 3, process: process(), first_world: 4, first_rank: 0 },
        Refusal::Finished { rank: 1, world: 4 },
        Refusal::Version { rank: 1, theirs: "0.1.0".to_owned(), ours: "0.2.0".to_owned() },
        Refusal::TagMismatch { rank: 1, tag: "a".to_owned(), first_rank: 0, first_tag: "b".to_owned() },
        Refusal::Left { rank: 3, process: process() },
        Refusal::TooLarge { rank: 0, max_bytes: 1 << 20 },
        Refusal::ShuttingDown,
        Refusal::Lost { rank: 2, process: process(), detail: "connection reset".to_owned() },
    ];
    let join = Join {
        rank: 1,
        world: 4,
        timeout_ms: 30_000,
        process: process(),
        host_key: [7; 16],
        version: "0.1.0".to_owned(),
    };
    let mut all = vec![
        Frame::Join(join),
        Frame::Part { sequence: 3, timeout_ms: 1000, tag: "topology".to_owned(), bytes: vec![1, 2, 3] },
        Frame::Goodbye,
        Frame::Abort { reason: "asked".to_owned() },
        Frame::Member { rank: 2, process: process(), host_key: [1; 16] },
        Frame::Welcome { world: 4, root: process() },
        Frame::Gathered { sequence: 3, rank: 1, bytes: vec![9; 40] },
        Frame::GatherDone { sequence: 3 },
        Frame::Lost { rank: 1, process: process(), detail: "killed".to_owned() },
        Frame::Aborted { rank: 1, reason: "asked".to_owned() },
        Frame::RootLeaving,
    ];
    all.extend(refusals.iter().cloned().map(Frame::Refused));
    all.extend(refusals.into_iter().map(|refusal| Frame::GatherFailed { sequence: 1, refusal }));
    let encoded = |frame: &Frame| {
        let mut bytes = Vec::new();
        frame::encode(frame, &mut bytes);
        bytes
    };
    all.iter().map(encoded).collect()
}

/// Manifests of bundles, but for their last lines.
pub(crate) fn manifests() -> Vec<String> {
    let hash = |digit: &str| digit.repeat(64);
    let head = format!("ringsmith bundle 1\ngenerator 0.1.0 {}\n", hash("a"));
    let entries = format!(
        "for all_reduce float32 sum, 2..8 ranks\nplan {} 400 one_shot-0123456789ab\nsource {} 9000 one_shot-ba9876543210\n",
        hash("b"),
        hash("c")
    );
    let kernel = |version: &str| {
        format!(
            "kernel {} 40000 {} sm_90 {version} one_shot-0123456789ab one_shot-ba9876543210\n",
            hash("d"),
            hash("e")
        )
    };
    vec![
        head.clone(),
        format!("{head}{entries}"),
        format!("{head}{entries}{}{}", kernel("13.0"), kernel("12.9")),
    ]
}
