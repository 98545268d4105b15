//! Planning: which program to run, with which protocol and how many channels.
//!
//! One file per algorithm holds its program (the `.sched` beside it), where it applies, and what it
//! sends. [`choose`] prices every algorithm on a [`Machine`] and takes the cheapest; [`instantiate`]
//! makes the program and arguments that [`ringsmith_ir::expand`] turns into a schedule, [`schedule`] the
//! schedule itself, with the ranks of a host side by side. Nothing is trusted for being built in: the verifier sees every schedule that comes out of here.
//!
//! Everything is a function of its arguments: no environment, clock, randomness or hash order.
//! `docs/algorithms.md` describes each algorithm; a test compares that page with
//! [`candidates`].

mod bruck_all_gather;
mod bruck_all_to_all;
mod chain_broadcast;
mod chain_reduce;
mod choice;
mod cost;
mod direct_all_gather;
mod direct_all_to_all;
mod direct_broadcast;
mod direct_gather;
mod direct_reduce;
mod direct_reduce_scatter;
mod direct_scatter;
mod dissemination_barrier;
mod double_tree_all_reduce;
mod explain;
pub mod gpu;
mod halving_reduce_scatter;
mod hierarchical_all_reduce;
mod instances;
mod machine;
mod one_shot_all_reduce;
mod order;
mod pairwise_all_to_all;
mod rabenseifner_all_reduce;
mod recursive_doubling_all_reduce;
mod ring_all_gather;
mod ring_all_reduce;
mod ring_reduce_scatter;
mod scatter_gather_broadcast;
mod traffic;
mod tree_all_reduce;
mod tree_broadcast;
mod tree_gather;
mod tree_reduce;
mod tree_scatter;
mod tuning;
mod two_shot_all_reduce;

pub use choice::{
    Candidate, Choice, Filter, NothingLeft, Options, Request, Stretch, Verdict, choose, choose_range,
    stretch_at,
};
pub use cost::Predicted;
pub use explain::explain;
pub use instances::{Instances, prove_instances};
pub use machine::{Costs, LinkClass, MAX_RANKS, Machine, MachineError};
pub use order::{Order, rank_order, schedule};
pub use traffic::{Flow, Landing, Message, Round, Shape, Traffic};
pub use tuning::{Measurement, Measurements, Tuning};

use ringsmith_ir::expand::Arguments;
use ringsmith_ir::program::{ItemKind, Program};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::text;
use ringsmith_ir::types::{Collective, ReduceOp};
use std::fmt;

/// The most ranks of algorithms in which everybody talks to everybody: links, and FIFO memory with
/// them, grow with the square. Ours.
pub const MESH_RANKS: u32 = 128;

/// How many chunks the batched algorithms send before they take what comes back. Ours: half the usual
/// number of slots, so that a fused receive and send finds a free one.
pub const BATCH: u32 = 4;

/// For which numbers of ranks an algorithm works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// All.
    Always,
    /// Up to this many.
    UpTo(u32),
    /// Powers of two.
    PowerOfTwo,
}

impl Applies {
    /// Whether it works for `ranks` ranks.
    pub fn holds(self, ranks: u32) -> bool {
        match self {
            Self::Always => ranks > 0,
            Self::UpTo(most) => (1..=most).contains(&ranks),
            Self::PowerOfTwo => ranks.is_power_of_two(),
        }
    }
}

impl fmt::Display for Applies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("any number of ranks"),
            Self::UpTo(most) => write!(f, "at most {most} ranks"),
            Self::PowerOfTwo => f.write_str("a power of two of ranks"),
        }
    }
}

/// A way to do a collective.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// Its name in filters and plans; unique within its collective.
    pub name: &'static str,
    /// Other names that filters may use for it.
    pub aliases: &'static [&'static str],
    /// What it does.
    pub collective: Collective,
    /// Its program.
    pub text: &'static str,
    /// Where it works.
    pub applies: Applies,
    /// Whether every rank hears from every rank, which epoch zones demand.
    pub synchronises: bool,
    /// Whether the program has a parameter `channels`: how many lanes, with a family of links each,
    /// share the work of a rank.
    pub has_channels: bool,
    /// Whether the program has a parameter `batch`: how many chunks are sent ahead on a link.
    pub batched: bool,
    /// The most links from one rank to another with one channel: FIFOs that a pair of ranks needs.
    pub links_per_pair: u32,
    /// Whether the program has a parameter `per_node`: how many ranks each host has, side by side. Such a
    /// program is for several hosts, with equally many ranks and at least two each.
    pub by_node: bool,
    /// What it sends with one channel, for a number of ranks that it applies to (at least 1).
    pub traffic: fn(Shape) -> Traffic,
}

impl Algorithm {
    /// The protocols that it can run with.
    pub fn protocols(&self) -> &'static [Protocol] {
        if self.synchronises {
            &[Protocol::Ll, Protocol::Ll128, Protocol::Simple]
        } else {
            &[Protocol::Simple]
        }
    }

    /// The parameters of its program that a caller may set, with what each means.
    pub fn parameters(&self) -> Vec<(&'static str, &'static str)> {
        let channels = self.has_channels.then_some(("channels", "lanes that share the work of a rank"));
        let batch = self.batched.then_some(("batch", "chunks sent ahead of the other end's"));
        let per_node = self.by_node.then_some(("per_node", "ranks of each host, side by side"));
        channels.into_iter().chain(batch).chain(per_node).collect()
    }
}

/// Algorithms are the same if they do the same collective under the same name.
impl PartialEq for Algorithm {
    fn eq(&self, other: &Self) -> bool {
        (self.collective, self.name) == (other.collective, other.name)
    }
}

impl Eq for Algorithm {}

static ALL_REDUCE: [Algorithm; 8] = [
    one_shot_all_reduce::ALGORITHM,
    two_shot_all_reduce::ALGORITHM,
    ring_all_reduce::ALGORITHM,
    tree_all_reduce::ALGORITHM,
    double_tree_all_reduce::ALGORITHM,
    recursive_doubling_all_reduce::ALGORITHM,
    rabenseifner_all_reduce::ALGORITHM,
    hierarchical_all_reduce::ALGORITHM,
];
static ALL_GATHER: [Algorithm; 3] =
    [direct_all_gather::ALGORITHM, ring_all_gather::ALGORITHM, bruck_all_gather::ALGORITHM];
static REDUCE_SCATTER: [Algorithm; 3] =
    [direct_reduce_scatter::ALGORITHM, ring_reduce_scatter::ALGORITHM, halving_reduce_scatter::ALGORITHM];
static BROADCAST: [Algorithm; 4] = [
    direct_broadcast::ALGORITHM,
    chain_broadcast::ALGORITHM,
    tree_broadcast::ALGORITHM,
    scatter_gather_broadcast::ALGORITHM,
];
static REDUCE: [Algorithm; 3] = [direct_reduce::ALGORITHM, chain_reduce::ALGORITHM, tree_reduce::ALGORITHM];
static GATHER: [Algorithm; 2] = [direct_gather::ALGORITHM, tree_gather::ALGORITHM];
static SCATTER: [Algorithm; 2] = [direct_scatter::ALGORITHM, tree_scatter::ALGORITHM];
static ALL_TO_ALL: [Algorithm; 3] =
    [direct_all_to_all::ALGORITHM, pairwise_all_to_all::ALGORITHM, bruck_all_to_all::ALGORITHM];
static BARRIER: [Algorithm; 1] = [dissemination_barrier::ALGORITHM];

/// The algorithms of a collective. None for `all_to_all_v` and `send_recv`, whose messages are known
/// only at run time: those are exchanged pair by pair, without a plan.
pub fn candidates(collective: Collective) -> &'static [Algorithm] {
    match collective {
        Collective::AllReduce => &ALL_REDUCE,
        Collective::AllGather => &ALL_GATHER,
        Collective::ReduceScatter => &REDUCE_SCATTER,
        Collective::Broadcast => &BROADCAST,
        Collective::Reduce => &REDUCE,
        Collective::Gather => &GATHER,
        Collective::Scatter => &SCATTER,
        Collective::AllToAll => &ALL_TO_ALL,
        Collective::Barrier => &BARRIER,
        Collective::AllToAllV | Collective::SendRecv => &[],
    }
}

/// Every name that a filter may use for an algorithm, those for GPUs only among them, sorted.
pub fn names() -> Vec<&'static str> {
    let algorithms = Collective::ALL.into_iter().flat_map(candidates);
    let general = algorithms.flat_map(|a| a.aliases.iter().copied().chain([a.name]));
    let mut names: Vec<&str> = general.chain(gpu::names()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The texts of all built-in programs, in one order: what two planners must have in common to mean the same by a name.
pub fn texts() -> impl Iterator<Item = &'static str> {
    Collective::ALL.into_iter().flat_map(candidates).map(|a| a.text).chain(gpu::texts())
}

/// The program of an algorithm, written for `op` if there is one, and what to expand it with.
///
/// `channels` and `shape.per_node` count where the algorithm has them, `shape.root` where the collective has
/// one.
pub fn instantiate(
    algorithm: &Algorithm,
    shape: Shape,
    channels: u32,
    op: Option<ReduceOp>,
) -> (Program, Arguments) {
    let Shape { ranks, per_node, root } = shape;
    let (program, mut arguments) = written_for(algorithm.text, algorithm.collective, ranks, Some(root), op);
    if algorithm.has_channels {
        arguments = arguments.set("channels", i64::from(channels));
    }
    if algorithm.by_node {
        arguments = arguments.set("per_node", i64::from(per_node));
    }
    (program, arguments)
}

/// A built-in program, written for `op` if there is one, and the ranks and root to expand it with.
fn written_for(
    text: &str,
    collective: Collective,
    ranks: u32,
    root: Option<u32>,
    op: Option<ReduceOp>,
) -> (Program, Arguments) {
    let mut program = text::parse_program(text).expect("a test reads every built-in program");
    for item in &mut program.items {
        if let ItemKind::Collective(line) = &mut item.kind {
            line.op = op.filter(|_| collective.reduces()).or(line.op);
        }
    }
    let arguments = Arguments::ranks(ranks);
    if !collective.rooted() {
        return (program, arguments);
    }
    (program, arguments.root(root.unwrap_or(0)))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod choice_tests;
