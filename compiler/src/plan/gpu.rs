//! Plans for ranks on GPUs: which program, protocol and shape of kernel for a collective of a size.
//!
//! A list in order of preference; what the device has no room for, or the verifier refuses, it passes over.
//! The limits below are where the measured curves of docs/performance.md cross (one H200 that carried all
//! ranks); between GPUs they are a first guess until `tune` corrects them.

use super::{Algorithm, candidates, instantiate};
use ringsmith_ir::expand::Arguments;
use ringsmith_ir::program::{ItemKind, Program};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::text;
use ringsmith_ir::types::{Collective, ReduceOp};

/// A program for devices only: whose lanes run side by side, or which map each other's output.
struct Special {
    name: &'static str,
    collective: Collective,
    text: &'static str,
    /// Whether it gains nothing where ranks cannot write into each other's output.
    maps_outputs: bool,
}

const SPECIALS: [Special; 6] = [
    Special {
        name: "split_two_shot",
        collective: Collective::AllReduce,
        text: include_str!("split_two_shot_all_reduce.sched"),
        maps_outputs: false,
    },
    Special {
        name: "split",
        collective: Collective::ReduceScatter,
        text: include_str!("split_reduce_scatter.sched"),
        maps_outputs: false,
    },
    Special {
        name: "zero_copy",
        collective: Collective::AllGather,
        text: include_str!("zero_copy_all_gather.sched"),
        maps_outputs: true,
    },
    Special {
        name: "zero_copy",
        collective: Collective::Broadcast,
        text: include_str!("zero_copy_broadcast.sched"),
        maps_outputs: true,
    },
    Special {
        name: "zero_copy",
        collective: Collective::Scatter,
        text: include_str!("zero_copy_scatter.sched"),
        maps_outputs: true,
    },
    Special {
        name: "zero_copy",
        collective: Collective::Gather,
        text: include_str!("zero_copy_gather.sched"),
        maps_outputs: true,
    },
];

/// Largest message of LL, whose lines carry half payload.
const LL_BYTES: u64 = 64 << 10;
/// Largest message of LL128.
const LL128_BYTES: u64 = 4 << 20;
/// All ranks' one-shot traffic up to which one step beats two.
const ONE_SHOT_BYTES: u64 = 8 << 20;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// The operation, where it reduces.
    pub op: Option<ReduceOp>,
    /// The root, where there is one.
    pub root: Option<u32>,
    /// Ranks.
    pub ranks: u32,
    /// Bytes of the larger side.
    pub bytes: u64,
    /// Whether ranks may write into each other's output.
    pub maps_outputs: bool,
}

/// A program, and the kernel that runs it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The algorithm's name.
    pub algorithm: &'static str,
    /// Its program.
    pub program: Program,
    /// What to expand it with.
    pub arguments: Arguments,
    /// How messages travel.
    pub protocol: Protocol,
    /// Threads of a block.
    pub threads: u32,
    /// Accesses of a thread under way at once.
    pub unroll: u32,
}

/// Plans for a request, the best first. None for messages between pairs, which are exchanged without one.
pub fn plans(request: &Request) -> Vec<Plan> {
    let mut order: Vec<(&'static str, Protocol)> = Vec::new();
    let simple = Protocol::Simple;
    let zone = |part: u64| if part <= LL_BYTES { Protocol::Ll } else { Protocol::Ll128 };
    let bytes = request.bytes;
    let block = bytes / u64::from(request.ranks.max(1));
    match request.collective {
        Collective::AllReduce => {
            let traffic = bytes.saturating_mul(u64::from(request.ranks.saturating_sub(1)));
            if traffic <= ONE_SHOT_BYTES && bytes <= LL128_BYTES {
                order.push(("one_shot", zone(bytes)));
            }
            if block <= LL128_BYTES / 8 {
                order.push(("two_shot", zone(block)));
            }
            order.extend(specials(request).map(|special| (special.name, simple)));
            order.extend([("two_shot", simple), ("ring", simple)]);
        }
        Collective::Barrier => order.extend([("dissemination", Protocol::Ll), ("dissemination", simple)]),
        collective => {
            let first = candidates(collective).first();
            let part = if collective.blocked() { block } else { bytes };
            if let Some(algorithm) = first.filter(|a| a.synchronises && part <= LL128_BYTES) {
                order.push((algorithm.name, zone(part)));
            }
            order.extend(specials(request).map(|special| (special.name, simple)));
            order.extend(candidates(collective).iter().map(|a| (a.name, simple)));
        }
    }
    order.into_iter().filter_map(|(name, protocol)| make(request, name, protocol)).collect()
}

/// The plan of an algorithm by name; `None` if it does not exist for the request.
pub fn make(request: &Request, name: &str, protocol: Protocol) -> Option<Plan> {
    let (threads, unroll) = match protocol {
        Protocol::Ll => (256, 1),
        Protocol::Ll128 => (if request.bytes < 1 << 20 { 256 } else { 512 }, 1),
        Protocol::Simple => (512, 4),
    };
    if protocol == Protocol::Simple
        && let Some(special) = specials(request).find(|special| special.name == name)
    {
        let (program, arguments) = special.instantiate(request);
        return Some(Plan { algorithm: special.name, program, arguments, protocol, threads, unroll });
    }
    let fits = |a: &&Algorithm| {
        a.name == name && a.applies.holds(request.ranks) && a.protocols().contains(&protocol)
    };
    let algorithm = candidates(request.collective).iter().find(fits)?;
    let (program, arguments) = instantiate(algorithm, request.ranks, request.root, 1, request.op);
    Some(Plan { algorithm: algorithm.name, program, arguments, protocol, threads, unroll })
}

/// Names of the programs for devices only that there are for a collective; [`make`] makes their plans.
pub fn special_names(collective: Collective) -> impl Iterator<Item = &'static str> {
    SPECIALS.iter().filter(move |special| special.collective == collective).map(|special| special.name)
}

/// The programs for devices that exist for a request.
fn specials(request: &Request) -> impl Iterator<Item = &'static Special> {
    let Request { collective, ranks, maps_outputs, .. } = *request;
    SPECIALS.iter().filter(move |special| {
        special.collective == collective && ranks > 1 && (maps_outputs || !special.maps_outputs)
    })
}

impl Special {
    fn instantiate(&self, request: &Request) -> (Program, Arguments) {
        let mut program = text::parse_program(self.text).expect("a test reads it");
        for item in &mut program.items {
            if let ItemKind::Collective(line) = &mut item.kind {
                line.op = request.op.or(line.op);
            }
        }
        let arguments = Arguments::ranks(request.ranks);
        match request.root {
            Some(root) if self.collective.rooted() => (program, arguments.root(root)),
            _ => (program, arguments),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower;
    use ringsmith_ir::expand::expand;
    use ringsmith_ir::verify;

    #[test]
    fn every_plan_is_proved() {
        for collective in Collective::ALL {
            for ranks in [1, 2, 3, 5, 8] {
                for bytes in [0, 8, 100 << 10, 3 << 20, 1 << 30] {
                    let op = collective.reduces().then_some(ReduceOp::Sum);
                    let root = collective.rooted().then_some(ranks - 1);
                    let request =
                        Request { collective, op, root, ranks, bytes, maps_outputs: ranks % 2 == 1 };
                    let all = plans(&request);
                    assert_eq!(
                        all.is_empty(),
                        matches!(collective, Collective::AllToAllV | Collective::SendRecv),
                        "{request:?}"
                    );
                    for best in &all {
                        let schedule = expand(&best.program, &best.arguments).expect("plans expand");
                        let schedule = verify::schedule(schedule).expect("plans are right");
                        let options =
                            lower::Options { protocol: best.protocol, slots: 4, slot_bytes: 32 << 10 };
                        lower::lower_direct(&schedule, options).expect("their kernel plans are right");
                    }
                }
            }
        }
    }
}
