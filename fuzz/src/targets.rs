//! What is fuzzed, and which promises each target holds the code to.

use crate::corpus;
use crate::mutate::{self, Random};
use ringsmith_compiler::channels::Channels;
use ringsmith_compiler::import::{self, Described};
use ringsmith_compiler::lower::{self, Options};
use ringsmith_compiler::plan::Machine;
use ringsmith_compiler::simulate::{self, Failure, Launch, Network, Start};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::text::{self, File};
use ringsmith_ir::topology::paths::Paths;
use ringsmith_ir::topology::{self};
use ringsmith_ir::types::DataType;
use ringsmith_ir::verify;
use ringsmith_runtime::bootstrap::frame::{self, MAX_FRAME_BYTES};
use ringsmith_runtime::jit::bundle::manifest::{self, Manifest};

/// Runs one case; prints its input when asked to.
pub(crate) type Case = Box<dyn FnMut(&mut Random, bool)>;

/// One thing to fuzz.
pub(crate) struct Target {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What it feeds.
    pub(crate) what: &'static str,
    /// Loads the corpus and makes the function that runs one case.
    pub(crate) prepare: fn() -> Case,
}

/// Every target.
pub(crate) const ALL: [Target; 6] = [
    Target { name: "text", what: "damaged texts: reading, printing, expanding", prepare: texts },
    Target {
        name: "verifier",
        what: "damaged schedules and kernel plans: proving, lowering",
        prepare: verifier,
    },
    Target {
        name: "topology",
        what: "damaged descriptions of machines, as text and as XML: reading, writing, paths, rings",
        prepare: topologies,
    },
    Target { name: "simulator", what: "damaged kernel plans: running and hanging", prepare: simulator },
    Target { name: "frame", what: "damaged frames of the bootstrap: decoding", prepare: frames },
    Target {
        name: "manifest",
        what: "damaged manifests of bundles, with right hashes: reading",
        prepare: manifests,
    },
];

/// Ops above which an expansion is not verified here: the proof would take the time of many cases.
const MAX_PROVED_OPS: usize = 2_000;

fn texts() -> Case {
    let mut corpus = corpus::texts();
    corpus.extend(corpus::flat_texts().into_iter().step_by(7));
    Box::new(move |random, show| {
        let text = random.pick(&corpus).as_str();
        let input = match random.below(12) {
            0 => mutate::nest(text, random),
            1 => String::from_utf8_lossy(&mutate::bytes(text.as_bytes(), random)).into_owned(),
            _ => {
                let other = random.pick(&corpus).as_str();
                mutate::tokens(text, other, random)
            }
        };
        if show {
            println!("{input}");
        }
        check_text(&input, random);
    })
}

/// Reading ends with a value or with places in the text; what reads prints, and reads back the same.
fn check_text(input: &str, random: &mut Random) {
    match text::parse_kernel_plan(input) {
        Ok(plan) => {
            let printed = text::print_kernel_plan(&plan);
            let again = text::parse_kernel_plan(&printed).expect("a printed kernel plan reads back");
            assert_eq!(again, plan, "a kernel plan reads back as another");
        }
        Err(found) => check_places(input, &found),
    }
    match text::format(input) {
        Ok(printed) => {
            let again = text::format(&printed).expect("canonical text is right");
            assert_eq!(printed, again, "formatting twice differs from formatting once");
        }
        Err(found) => check_places(input, &found),
    }
    match text::parse(input) {
        Ok(File::Program(program)) => {
            let mut arguments = Arguments::ranks(random.below(7) as u32);
            if random.below(3) == 0 {
                arguments = arguments.root(random.below(4) as u32);
            }
            match expand(&program, &arguments) {
                Ok(schedule) => check_schedule_text(schedule),
                Err(found) => check_places(input, &found),
            }
        }
        Ok(File::Schedule(schedule)) => check_schedule_text(schedule),
        Err(found) => check_places(input, &found),
    }
}

fn check_schedule_text(schedule: Schedule) {
    let printed = text::print_schedule(&schedule);
    let again = text::parse_schedule(&printed).expect("a printed schedule reads back");
    let (again, schedule) = (text::schedule_without_spans(again), text::schedule_without_spans(schedule));
    assert!(again == schedule, "a schedule reads back as another");
}

fn check_places(input: &str, found: &[Diagnostic]) {
    assert!(!found.is_empty(), "refused without a reason");
    for diagnostic in found {
        assert!(
            !diagnostic.message.is_empty() && !diagnostic.labels.is_empty(),
            "{diagnostic:?} says nothing"
        );
        for label in &diagnostic.labels {
            let (start, end) = (label.span.start as usize, label.span.end as usize);
            assert!(input.get(start..end).is_some(), "{diagnostic:?} points outside the text");
        }
    }
}

fn verifier() -> Case {
    let corpus = corpus::flat_texts();
    Box::new(move |random, show| {
        let input = mutate::lines(random.pick(&corpus).as_str(), random);
        if show {
            println!("{input}");
        }
        if let Ok(plan) = text::parse_kernel_plan(&input) {
            if let Err(found) = verify::kernel_plan(plan) {
                assert!(!found.is_empty(), "refused without a reason");
            }
        } else if let Ok(File::Schedule(schedule)) = text::parse(&input) {
            check_proof(&input, schedule);
        }
    })
}

/// What is proved comes to its end, and what may hang ends as well, with whom it waits for.
fn simulator() -> Case {
    let corpus = corpus::flat_texts();
    Box::new(move |random, show| {
        let input = mutate::lines(random.pick(&corpus).as_str(), random);
        if show {
            println!("{input}");
        }
        let Ok(plan) = text::parse_kernel_plan(&input) else { return };
        let (proved, found) = match verify::kernel_plan(plan.clone()) {
            Ok(_) => (true, Vec::new()),
            Err(found) => (false, found),
        };
        if !simulate::may_run(&found) {
            return;
        }
        let hosts = (0..plan.ranks).map(|rank| rank / 2).collect();
        let launch = Launch {
            dtype: DataType::Float32,
            count: random.below(100_000) as u64,
            calls: 1 + random.below(3) as u32,
        };
        let network = Network::of_hosts(&Machine::cpu(hosts, 2), 4 * launch.count);
        match simulate::simulate(&plan, launch, &network, Start::default()) {
            Ok(timeline) => assert!(timeline.total_ns.is_finite()),
            Err(Failure::TooLong { .. }) => {}
            Err(Failure::Hang(hang)) => assert!(!proved && !hang.blocked.is_empty(), "{hang}"),
        }
    })
}

/// A refusal has places in the text; what is proved can be lowered, unless slots or zones forbid it.
fn check_proof(input: &str, schedule: Schedule) {
    if schedule.lanes.values().map(|lane| lane.ops.len()).sum::<usize>() > MAX_PROVED_OPS {
        return;
    }
    match verify::schedule(schedule) {
        Err(found) => check_places(input, &found),
        Ok(proved) => {
            for protocol in [Protocol::Simple, Protocol::Ll128] {
                let options = Options { protocol, slots: 2, slot_bytes: 4096 };
                if let Err(found) = lower::lower(&proved, options) {
                    assert!(!found.is_empty(), "not lowered without a reason");
                }
            }
        }
    }
}

fn topologies() -> Case {
    let corpus = corpus::topologies();
    Box::new(move |random, show| {
        let text = random.pick(&corpus).as_str();
        let input = match random.below(4) {
            0 => String::from_utf8_lossy(&mutate::bytes(text.as_bytes(), random)).into_owned(),
            1 => mutate::lines(text, random),
            _ => {
                let other = random.pick(&corpus).as_str();
                mutate::tokens(text, other, random)
            }
        };
        if show {
            println!("{input}");
        }
        check_topology(&input);
    })
}

/// Reading ends with machines or with places in the file; what is read is written and read back the
/// same, and has paths.
fn check_topology(input: &str) {
    let topology = match import::read("fuzz", input) {
        Ok(Described::Topology(topology)) => topology,
        Ok(Described::Graphs(_)) => return,
        Err(found) => return check_places(input, &found),
    };
    let printed = topology::print(&topology);
    let again = topology::parse(&printed).expect("a printed topology reads back");
    assert!(again == topology, "a topology reads back as another");
    for machine in &topology.machines {
        Paths::of(machine);
    }
    if topology.gpu_count() <= 64 {
        let channels = Channels::of(&topology);
        let all = usize::try_from(topology.gpu_count()).expect("so few");
        assert!((0..channels.ring_count()).all(|ring| channels.ring(ring).count() == all));
    }
    if let Ok(written) = import::write_topology(&topology) {
        import::read_topology("fuzz", &written).expect("a topology written as XML reads back");
    }
}

fn frames() -> Case {
    let corpus = corpus::frames();
    Box::new(move |random, show| {
        let mut input = mutate::bytes(random.pick(&corpus).as_slice(), random);
        // A right length lets the damage reach the body.
        if random.below(2) == 0 && input.len() > 4 {
            let len = (input.len() - 4) as u32;
            input[..4].copy_from_slice(&len.to_le_bytes());
        }
        let max_frame_bytes = *random.pick(&[64, 4096, MAX_FRAME_BYTES]);
        if show {
            println!("at most {max_frame_bytes} bytes: {input:02x?}");
        }
        check_frame(&input, max_frame_bytes);
    })
}

/// Decoding takes a whole frame or nothing, needs no byte after it, and is undone by encoding.
fn check_frame(input: &[u8], max_frame_bytes: usize) {
    let Ok(Some((frame, len))) = frame::decode(input, max_frame_bytes) else { return };
    assert!((5..=input.len()).contains(&len), "a frame of {len} bytes from {} bytes", input.len());
    let mut again = Vec::new();
    frame::encode(&frame, &mut again);
    assert_eq!(again, input[..len], "{frame:?} is encoded otherwise than it came");
    let shorter = frame::decode(&input[..len - 1], max_frame_bytes);
    assert_eq!(shorter, Ok(None), "a frame was read before its last byte");
}

fn manifests() -> Case {
    let corpus = corpus::manifests();
    Box::new(move |random, show| {
        let text = random.pick(&corpus).as_str();
        let body = match random.below(3) {
            0 => mutate::bytes(text.as_bytes(), random),
            _ => {
                let other = random.pick(&corpus).as_str();
                mutate::tokens(text, other, random).into_bytes()
            }
        };
        // Most with a right hash: who forges a manifest writes one.
        let input = if random.below(8) == 0 { body } else { manifest::sealed(&body) };
        if show {
            println!("{}", String::from_utf8_lossy(&input));
        }
        check_manifest(&input);
    })
}

/// Reading ends with a value or a place in the file; no path leads out of the folder; what is read reads back.
fn check_manifest(input: &[u8]) {
    let read = match Manifest::read(input) {
        Ok(read) => read,
        Err((at, _)) => {
            assert!(at <= input.len() as u64, "byte {at} of {}", input.len());
            return;
        }
    };
    for path in read.entries.iter().map(manifest::Entry::path) {
        let (folder, name) = path.split_once('/').expect("a file is in a folder");
        let is_ours = matches!(folder, "plans" | "sources" | "kernels");
        assert!(is_ours && !name.starts_with('.') && !name.contains(['/', '\0']), "{path:?}");
    }
    let again = Manifest::read(&manifest::sealed(read.body().as_bytes())).expect("it reads back");
    let all = |m: &Manifest| (m.generator.clone(), m.purposes.clone(), m.entries.clone());
    assert!(all(&again) == all(&read), "a manifest reads back as another");
}
