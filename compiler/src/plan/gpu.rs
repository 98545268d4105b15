//! Plans for ranks on GPUs: which program, protocol and shape of kernel for a collective of a size.
//!
//! A list in order of preference; what the device has no room for, or the verifier refuses, it passes over.
//! The limits below are where the measured curves of docs/performance.md cross (one H200 that carried all
//! ranks); between GPUs they are a first guess until `tune` corrects them.

use super::{Algorithm, Filter, Shape, candidates, instantiate, written_for};
use ringsmith_ir::expand::Arguments;
use ringsmith_ir::program::Program;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, ReduceOp};

/// How a program's messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Through epoch zones: every rank hears from every other.
    Zones,
    /// Through FIFOs.
    Fifos,
    /// Out of each other's input and into each other's output, where they are mapped.
    Buffers,
}

/// A program for devices only, whose lanes run side by side and whose messages are cheap.
struct Special {
    name: &'static str,
    collective: Collective,
    way: Way,
    text: &'static str,
}

macro_rules! special {
    ($name:literal, $collective:ident, $way:ident, $file:literal) => {
        Special {
            name: $name,
            collective: Collective::$collective,
            way: Way::$way,
            text: include_str!($file),
        }
    };
}

const SPECIALS: [Special; 13] = [
    special!("zero_copy", AllReduce, Buffers, "zero_copy_all_reduce.sched"),
    special!("split_two_shot", AllReduce, Fifos, "split_two_shot_all_reduce.sched"),
    special!("zero_copy", ReduceScatter, Buffers, "zero_copy_reduce_scatter.sched"),
    special!("split", ReduceScatter, Fifos, "split_reduce_scatter.sched"),
    special!("zero_copy", AllGather, Buffers, "zero_copy_all_gather.sched"),
    special!("mesh", Broadcast, Zones, "mesh_broadcast.sched"),
    special!("zero_copy", Broadcast, Buffers, "zero_copy_broadcast.sched"),
    special!("mesh", Reduce, Zones, "mesh_reduce.sched"),
    special!("zero_copy", Reduce, Buffers, "zero_copy_reduce.sched"),
    special!("mesh", Scatter, Zones, "mesh_scatter.sched"),
    special!("zero_copy", Scatter, Buffers, "zero_copy_scatter.sched"),
    special!("mesh", Gather, Zones, "mesh_gather.sched"),
    special!("zero_copy", Gather, Buffers, "zero_copy_gather.sched"),
];

/// Largest message of LL, whose lines carry half payload.
const LL_BYTES: u64 = 64 << 10;
/// Largest message of LL128.
const LL128_BYTES: u64 = 4 << 20;
/// All ranks' one-shot traffic up to which one step beats two.
const ONE_SHOT_BYTES: u64 = 8 << 20;
/// Largest block that two steps send through zones; above, FIFOs are faster.
const TWO_SHOT_BLOCK_BYTES: u64 = 512 << 10;
/// From here on, blocks of LL128 have more threads.
const WIDE_BYTES: u64 = 1 << 20;

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
    /// Whether ranks may read each other's input and write into each other's output.
    pub maps_buffers: bool,
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

/// Plans for a request that the filters leave, the best first. None for messages between pairs, which are
/// exchanged without one.
///
/// Where a filter leaves something out, what would not be preferred at this size comes last: whoever asks for it
/// by name gets it.
pub fn plans(request: &Request, algorithms: &Filter, protocols: &Filter) -> Vec<Plan> {
    let mut order = preferred(request);
    if (algorithms, protocols) != (&Filter::Any, &Filter::Any) {
        let others: Vec<Named> = named(request).filter(|other| !order.contains(other)).collect();
        order.extend(others);
    }
    let permitted = |(name, protocol): &Named| {
        let aliases =
            candidates(request.collective).iter().find(|a| a.name == *name).map_or(&[][..], |a| a.aliases);
        algorithms.permits_any(name, aliases) && protocols.permits(protocol.name())
    };
    order.into_iter().filter(permitted).filter_map(|(name, protocol)| make(request, name, protocol)).collect()
}

/// An algorithm by name, and how its messages travel.
type Named = (&'static str, Protocol);

/// Everything that there is for a request's collective and number of ranks: for a filter to choose among.
fn named(request: &Request) -> impl Iterator<Item = Named> {
    let block = request.bytes / u64::from(request.ranks.max(1));
    let part = if request.collective.blocked() { block } else { request.bytes };
    // Bulk before lines that are too short or too many.
    let order = match part {
        0..=LL_BYTES => [Protocol::Ll, Protocol::Ll128, Protocol::Simple],
        _ if part <= LL128_BYTES => [Protocol::Ll128, Protocol::Simple, Protocol::Ll],
        _ => [Protocol::Simple, Protocol::Ll128, Protocol::Ll],
    };
    let special = specials(request).map(|special| (special.name, special.protocols()));
    let ranks = request.ranks;
    // GPUs of one host: what tells hosts apart is for others.
    let general = candidates(request.collective).iter().filter(move |a| a.applies.holds(ranks) && !a.by_node);
    let all: Vec<(&'static str, &[Protocol])> =
        special.chain(general.map(|a| (a.name, a.protocols()))).collect();
    let each = move |(name, can): (&'static str, &'static [Protocol])| {
        order.into_iter().filter(|protocol| can.contains(protocol)).map(move |protocol| (name, protocol))
    };
    all.into_iter().flat_map(each)
}

/// What there is for a request, in words: each algorithm with the protocols that it can run with.
pub fn choices(request: &Request) -> String {
    let mut all: Vec<(&'static str, Vec<&str>)> = Vec::new();
    for (name, protocol) in named(&Request { bytes: 0, ..*request }) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, protocols)) => protocols.push(protocol.name()),
            None => all.push((name, vec![protocol.name()])),
        }
    }
    let each = |(name, protocols): &(&str, Vec<&str>)| format!("{name} ({})", protocols.join(", "));
    all.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// What suits a request, the best first.
fn preferred(request: &Request) -> Vec<Named> {
    let simple = Protocol::Simple;
    let bytes = request.bytes;
    let block = bytes / u64::from(request.ranks.max(1));
    // What does not fit into LL's zone may fit into the other.
    let zones = |part: u64| match part {
        0..=LL_BYTES => &[Protocol::Ll, Protocol::Ll128][..],
        _ if part <= LL128_BYTES => &[Protocol::Ll128],
        _ => &[],
    };
    let through_zones = |name: &'static str, part: u64| zones(part).iter().map(move |p| (name, *p));
    let mut order: Vec<Named> = Vec::new();
    match request.collective {
        Collective::AllReduce => {
            let ranks = u64::from(request.ranks);
            let traffic = bytes.saturating_mul(ranks * ranks.saturating_sub(1));
            if traffic <= ONE_SHOT_BYTES {
                order.extend(through_zones("one_shot", bytes));
            }
            if block <= TWO_SHOT_BLOCK_BYTES {
                order.extend(through_zones("two_shot", block));
            }
            order.extend(specials(request).map(|special| (special.name, simple)));
            // Two steps through FIFOs in one lane: a text that grows with the square of the ranks, and half a minute
            // of compilation for eight.
            let rest = if request.ranks <= 4 { ["two_shot", "ring"] } else { ["ring", "two_shot"] };
            order.extend(rest.map(|name| (name, simple)));
        }
        Collective::Barrier => order.extend([("dissemination", Protocol::Ll), ("dissemination", simple)]),
        collective => {
            let part = if collective.blocked() { block } else { bytes };
            let first = candidates(collective).first().filter(|a| a.synchronises).map(|a| a.name);
            let meeting = specials(request).find(|s| s.way == Way::Zones).map(|s| s.name);
            if let Some(name) = first.or(meeting) {
                order.extend(through_zones(name, part));
            }
            order.extend(specials(request).filter(|s| s.way != Way::Zones).map(|s| (s.name, simple)));
            order.extend(candidates(collective).iter().filter(|a| !a.by_node).map(|a| (a.name, simple)));
        }
    }
    order
}

/// Sizes from which on [`plans`] may say something else, ascending: between two of them it says the same. For
/// whoever has to know the plans of a range of sizes.
pub fn thresholds(collective: Collective, ranks: u32) -> Vec<u64> {
    let n = u64::from(ranks.max(1));
    let parts = [LL_BYTES, LL128_BYTES, TWO_SHOT_BLOCK_BYTES].map(|most| most + 1);
    let mut all = vec![0, WIDE_BYTES];
    if collective == Collective::AllReduce {
        all.push(ONE_SHOT_BYTES / (n * (n - 1)).max(1) + 1);
    }
    all.extend(parts);
    all.extend(parts.map(|part| part * n));
    all.sort_unstable();
    all.dedup();
    all
}

/// The plan of an algorithm by name; `None` if it does not exist for the request.
pub fn make(request: &Request, name: &str, protocol: Protocol) -> Option<Plan> {
    let (threads, unroll) = match protocol {
        Protocol::Ll => (256, 1),
        Protocol::Ll128 => (if request.bytes < WIDE_BYTES { 256 } else { 512 }, 1),
        // More blocks of fewer threads suit two lanes a rank; copies alone want more threads.
        Protocol::Simple if name == "split_two_shot" => (256, 4),
        Protocol::Simple => (512, 4),
    };
    let fits = |special: &&Special| special.name == name && special.protocols().contains(&protocol);
    if let Some(special) = specials(request).find(fits) {
        let Request { collective, ranks, root, op, .. } = *request;
        let (program, arguments) = written_for(special.text, collective, ranks, root, op);
        return Some(Plan { algorithm: special.name, program, arguments, protocol, threads, unroll });
    }
    let fits = |a: &&Algorithm| {
        a.name == name && !a.by_node && a.applies.holds(request.ranks) && a.protocols().contains(&protocol)
    };
    let algorithm = candidates(request.collective).iter().find(fits)?;
    let shape = Shape { root: request.root.unwrap_or(0), ..request.ranks.into() };
    let (program, arguments) = instantiate(algorithm, shape, 1, request.op);
    Some(Plan { algorithm: algorithm.name, program, arguments, protocol, threads, unroll })
}

/// The programs for devices only that there are for a collective, by name, with the protocols that they can
/// run with; [`make`] makes their plans.
pub fn special_names(collective: Collective) -> impl Iterator<Item = (&'static str, &'static [Protocol])> {
    let of_collective = SPECIALS.iter().filter(move |special| special.collective == collective);
    of_collective.map(|special| (special.name, special.protocols()))
}

/// The names of all programs for devices only.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SPECIALS.iter().map(|special| special.name)
}

/// The texts of all programs for devices only.
pub(super) fn texts() -> impl Iterator<Item = &'static str> {
    SPECIALS.iter().map(|special| special.text)
}

/// The programs for devices that exist for a request.
fn specials(request: &Request) -> impl Iterator<Item = &'static Special> {
    let Request { collective, ranks, maps_buffers, .. } = *request;
    SPECIALS.iter().filter(move |special| {
        special.collective == collective && ranks > 1 && (maps_buffers || special.way != Way::Buffers)
    })
}

impl Special {
    fn protocols(&self) -> &'static [Protocol] {
        match self.way {
            Way::Zones => &[Protocol::Ll, Protocol::Ll128],
            Way::Fifos | Way::Buffers => &[Protocol::Simple],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower;
    use ringsmith_ir::expand::expand;
    use ringsmith_ir::kernel_plan::{KernelOp, KernelOpKind, KernelPlan, Place};
    use ringsmith_ir::{text, verify};

    /// Whether all that travels goes from user memory to user memory.
    fn has_no_slots(plan: &KernelPlan) -> bool {
        let is_direct = |op: &KernelOp| match &op.kind {
            KernelOpKind::Move { dst, src, .. } => {
                let mut places = dst.iter().copied().chain(src.iter().map(|s| s.place));
                !places.any(|p| matches!(p, Place::Slot(_) | Place::Scratch(..)))
            }
            KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => true,
        };
        plan.lanes.values().flat_map(|lane| &lane.ops).all(is_direct)
    }

    fn found(request: &Request, algorithms: &Filter, protocols: &Filter) -> Vec<Named> {
        plans(request, algorithms, protocols).iter().map(|p| (p.algorithm, p.protocol)).collect()
    }

    #[test]
    fn filters_choose_among_all_that_there_is() {
        let only = |names: &[&str]| Filter::Only(names.iter().map(|n| (*n).to_owned()).collect());
        let any = Filter::Any;
        let request = Request {
            collective: Collective::AllReduce,
            op: Some(ReduceOp::Sum),
            root: None,
            ranks: 4,
            bytes: 512 << 10,
            maps_buffers: false,
        };
        // Not what is preferred at this size, but what is asked for, the protocol that suits the size first.
        let trees = found(&request, &only(&["tree"]), &any);
        assert_eq!(trees, [("tree", Protocol::Ll128), ("tree", Protocol::Simple), ("tree", Protocol::Ll)]);
        let ll = found(&request, &any, &only(&["ll"]));
        assert!(ll.len() > 3 && ll.iter().all(|(_, protocol)| *protocol == Protocol::Ll), "{ll:?}");
        let preferred = found(&request, &any, &any);
        assert_eq!(preferred[0], ("one_shot", Protocol::Ll128));
        let without = found(&request, &Filter::Except(vec!["one_shot".to_owned()]), &any);
        assert!(
            without[0] != preferred[0] && without.iter().all(|(name, _)| *name != "one_shot"),
            "{without:?}"
        );
        assert_eq!(without[0], preferred[1], "the order of preference stays");
        let both = found(&request, &only(&["ring"]), &only(&["simple"]));
        assert_eq!(both, [("ring", Protocol::Simple)]);
        // Other names of an algorithm stand for it; programs for devices only have names too.
        let broadcast = Request { collective: Collective::Broadcast, op: None, root: Some(0), ..request };
        assert_eq!(found(&broadcast, &only(&["ring"]), &any), [("chain", Protocol::Simple)]);
        assert_eq!(
            found(&broadcast, &only(&["mesh"]), &any),
            [("mesh", Protocol::Ll128), ("mesh", Protocol::Ll)]
        );
        // Where buffers are not mapped, there is no zero_copy, whoever asks.
        assert_eq!(found(&request, &only(&["zero_copy"]), &any), []);
        assert_eq!(found(&broadcast, &only(&["chain"]), &only(&["ll"])), []);
        assert!(
            choices(&broadcast).starts_with("mesh (ll, ll128), direct (simple)"),
            "{}",
            choices(&broadcast)
        );
        for special in SPECIALS {
            assert!(super::super::names().contains(&special.name), "{} cannot be asked for", special.name);
        }
    }

    #[test]
    fn every_plan_is_proved() {
        for collective in Collective::ALL {
            for ranks in [1, 2, 3, 5, 8] {
                for bytes in [0, 8, 100 << 10, 3 << 20, 1 << 30] {
                    let op = collective.reduces().then_some(ReduceOp::Sum);
                    let root = collective.rooted().then_some(ranks - 1);
                    let request =
                        Request { collective, op, root, ranks, bytes, maps_buffers: ranks % 2 == 1 };
                    let all = plans(&request, &Filter::Any, &Filter::Any);
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
                        let plan =
                            lower::lower_direct(&schedule, options).expect("their kernel plans are right");
                        if best.algorithm == "zero_copy" {
                            assert!(has_no_slots(&plan), "{}", text::print_kernel_plan(&plan));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn between_two_thresholds_all_sizes_have_the_same_plans() {
        let shown = |request: &Request| -> Vec<_> {
            plans(request, &Filter::Any, &Filter::Any)
                .iter()
                .map(|p| (p.algorithm, p.protocol, p.threads, p.unroll))
                .collect()
        };
        for collective in Collective::ALL {
            for ranks in [1, 2, 3, 7, 8, 64] {
                let op = collective.reduces().then_some(ReduceOp::Sum);
                let root = collective.rooted().then_some(0);
                let at = |bytes| Request { collective, op, root, ranks, bytes, maps_buffers: false };
                let all = thresholds(collective, ranks);
                assert_eq!(all[0], 0);
                for (first, next) in all.iter().zip(all[1..].iter().chain([&(1 << 40)])) {
                    let expected = shown(&at(*first));
                    // Powers of two and their neighbours are where a limit would be.
                    let powers = (0..40).flat_map(|k| [(1_u64 << k) - 1, 1 << k, (1 << k) + 1]);
                    let blocks = powers.clone().map(|size| size * u64::from(ranks));
                    let inside = powers.chain(blocks).filter(|size| (*first..*next).contains(size));
                    for bytes in inside.chain([next - 1]) {
                        assert_eq!(shown(&at(bytes)), expected, "{collective}, {ranks} ranks, {bytes} bytes");
                    }
                }
            }
        }
    }
}
