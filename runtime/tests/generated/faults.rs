//! Faults planted into the text of kernels, each of which the tests must find.

use crate::device::Machine;
use crate::kernels::{self, Candidate, Folder, Made, Shape, Threads};
use crate::random::Random;
use crate::{Outcome, STARTS, launch_many};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType};

/// A kernel, and what becomes of its text.
struct Fault {
    what: &'static str,
    algorithm: &'static str,
    protocol: Protocol,
    ranks: u32,
    /// What is replaced, wherever it stands, and by what.
    edits: &'static [(&'static str, &'static str)],
}

const BY_FIBERS: [Fault; 9] = [
    Fault {
        what: "nobody waits for room in a FIFO",
        algorithm: "split_two_shot",
        protocol: Protocol::Simple,
        ranks: 2,
        edits: &[("wait_until(a, end, block, sequence + 1 - SLOTS, op, stop);", "")],
    },
    Fault {
        what: "nobody waits for a message",
        algorithm: "split_two_shot",
        protocol: Protocol::Simple,
        ranks: 2,
        edits: &[("wait_until(a, end, block, sequence + 1, op, stop);", "")],
    },
    Fault {
        what: "one message fewer is waited for",
        algorithm: "two_shot",
        protocol: Protocol::Simple,
        ranks: 3,
        edits: &[(
            "wait_until(a, end, block, sequence + 1, op, stop);",
            "wait_until(a, end, block, sequence, op, stop);",
        )],
    },
    Fault {
        what: "a message is signalled before all threads have written it",
        algorithm: "ring",
        protocol: Protocol::Simple,
        ranks: 3,
        edits: &[("return false;\n      __syncthreads();\n", "return false;\n")],
    },
    Fault {
        what: "messages are counted by another thread than the one that waits for them",
        algorithm: "split_two_shot",
        protocol: Protocol::Simple,
        ranks: 3,
        edits: &[
            ("if (threadIdx.x == 0) store_release(", "if (threadIdx.x == one) store_release("),
            ("if (threadIdx.x == 1) store_release(", "if (threadIdx.x == 0) store_release("),
            ("if (threadIdx.x == one) store_release(", "if (threadIdx.x == 1) store_release("),
        ],
    },
    Fault {
        what: "slots of different sizes overlap",
        algorithm: "split_two_shot",
        protocol: Protocol::Simple,
        ranks: 3,
        edits: &[("* SLOT_STRIDE;", "* (SLOT_STRIDE / 2);"), ("sequence & SLOTS - 1", "sequence % 6")],
    },
    Fault {
        what: "only blocks that are launched count epochs",
        algorithm: "one_shot",
        protocol: Protocol::Ll,
        ranks: 2,
        edits: &[("if (word < MAX_BLOCKS) me.epochs[word]", "if (word == blockIdx.x) me.epochs[word]")],
    },
    Fault {
        what: "both parities of a zone are one",
        algorithm: "one_shot",
        protocol: Protocol::Ll128,
        ranks: 2,
        edits: &[("(flag & 1) * PARITY_BYTES", "0")],
    },
    Fault {
        what: "a warp does not come together before it writes lines",
        algorithm: "one_shot",
        protocol: Protocol::Ll128,
        ranks: 2,
        edits: &[("__syncwarp();", "")],
    },
];

/// For these an interleaving is not enough: what is missing is an order of memory.
const BY_THREADS: [Fault; 2] = [
    Fault {
        what: "a message is signalled without release",
        algorithm: "ring",
        protocol: Protocol::Simple,
        ranks: 2,
        edits: &[("store_release(signalled(", "store_host(signalled(")],
    },
    Fault {
        what: "slots are read before all threads know of the message",
        algorithm: "split_two_shot",
        protocol: Protocol::Simple,
        ranks: 2,
        edits: &[("__syncthreads();\n        if (SELDOM(*stop)) return false;", "")],
    },
];

pub(crate) fn by_fibers(seed: u64) -> Outcome {
    find(&BY_FIBERS, Threads::Fibers, 400, seed)
}

pub(crate) fn by_threads(seed: u64) -> Outcome {
    find(&BY_THREADS, Threads::System, 20, seed)
}

/// Every fault must make some launch of many go wrong.
fn find(faults: &[Fault], threads: Threads, launches: usize, seed: u64) -> Outcome {
    let mut random = Random(seed);
    let mut made: Vec<Made> = Vec::new();
    for fault in faults {
        let candidate = Candidate {
            name: fault.algorithm.to_owned(),
            collective: Collective::AllReduce,
            ranks: fault.ranks,
            protocol: fault.protocol,
        };
        // Elements that lines of 15 words cut anywhere.
        let shape = Shape { dtype: DataType::Int8, ..Shape::plain() };
        let mut one = kernels::make(&candidate, false, &shape).ok_or("the plan has a kernel")?;
        for (from, to) in fault.edits {
            if !one.kernel.source.contains(from) {
                return Err(format!("{}: there is no `{from}` in the text", fault.what));
            }
            one.kernel.source = one.kernel.source.replace(from, to);
        }
        made.push(one);
    }
    let folder = Folder::new(&format!("faults-{:x}", random.next()));
    let texts: Vec<_> = made.iter().map(Made::text).collect();
    let program = kernels::program(&folder, &texts, threads)?;
    let mut missed = Vec::new();
    for (index, (fault, one)) in faults.iter().zip(&made).enumerate() {
        let mut machine = Machine::start(&program, &folder, threads);
        match launch_many(&mut machine, &[(index, one)], STARTS[0], launches, 4, &mut random) {
            Ok(()) => missed.push(fault.what),
            Err(_) => println!("found: {}", fault.what),
        }
    }
    if missed.is_empty() { Ok(()) } else { Err(format!("not found: {}", missed.join("; "))) }
}
