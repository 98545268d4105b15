//! Why a run did not come to its end.

use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::entity::{LaneName, OpAddress};
use ringsmith_ir::kernel_plan::{Counter, KernelPlan};
use std::fmt;

/// At most this many waiting lanes are listed in a message. Ours: a screen.
const LISTED: usize = 16;

/// Lanes that wait for each other, waits without a signal, links that are left otherwise than they were found,
/// and messages that are not signalled: the rules whose breach can have a plan hang.
const HANGS: [&str; 4] = ["V0501", "V0502", "V0601", "V0607"];

/// Whether a plan that the verifier refuses for these reasons may be simulated: it is wrong in nothing but its
/// signals and waits, so that a run shows how far it comes.
pub fn may_run(mistakes: &[Diagnostic]) -> bool {
    mistakes.iter().all(|mistake| HANGS.contains(&mistake.code.0))
}

/// Why there is no timeline.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Lanes wait for what nobody will signal.
    Hang(Hang),
    /// More ops than [`super::MAX_OPS`].
    TooLong {
        /// Ops of all lanes for one tile.
        ops: u64,
        /// Tiles.
        tiles: u64,
    },
}

/// A run that stands still.
#[derive(Clone, Debug, PartialEq)]
pub struct Hang {
    /// Since when.
    pub at_ns: f64,
    /// Every lane that waits, in the order of lanes.
    pub blocked: Vec<Blocked>,
}

/// A lane that waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The op at which it waits.
    pub op: OpAddress,
    /// The tile, from 0.
    pub tile: u64,
    /// What it waits for.
    pub counter: Counter,
    /// The lane that would have to signal.
    pub peer: LaneName,
    /// Where that one waits itself; none if it has come to its end.
    pub peer_waits_at: Option<OpAddress>,
}

/// The lane that signals a counter.
pub(super) fn speaker(plan: &KernelPlan, counter: Counter) -> LaneName {
    match counter {
        Counter::Full(link) | Counter::Cell(link, _) => plan.links[link].from,
        Counter::Free(link) => plan.links[link].to,
    }
}

/// The lane that waits for it.
pub(super) fn listener(plan: &KernelPlan, counter: Counter) -> LaneName {
    match counter {
        Counter::Full(link) | Counter::Cell(link, _) => plan.links[link].to,
        Counter::Free(link) => plan.links[link].from,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hang(hang) => hang.fmt(f),
            Self::TooLong { ops, tiles } => write!(
                f,
                "{ops} ops for each of {tiles} tiles are more than a simulation goes through ({}); give fewer bytes, or larger slots",
                super::MAX_OPS
            ),
        }
    }
}

impl std::error::Error for Failure {}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, us) = (self.blocked.len(), self.at_ns / 1e3);
        let lanes = if count == 1 { "1 lane waits" } else { "lanes wait" };
        let lanes = if count == 1 { lanes.to_owned() } else { format!("{count} {lanes}") };
        write!(f, "the plan hangs after {us:.3} us: {lanes} for what never comes")?;
        for blocked in self.blocked.iter().take(LISTED) {
            write!(f, "\n  {blocked}")?;
        }
        if count > LISTED {
            write!(f, "\n  and {} more", count - LISTED)?;
        }
        Ok(())
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, peer) = (self.op.lane.rank.as_u32(), self.peer.rank.as_u32());
        let what = match self.counter {
            Counter::Full(link) => format!("a message on {link} ({link}.full)"),
            Counter::Free(link) => format!("a free slot of {link} ({link}.free)"),
            Counter::Cell(link, cell) => format!("cell {cell} of {link} ({link}.cell[{cell}])"),
        };
        let (op, tile) = (self.op, self.tile + 1);
        write!(f, "rank {rank}, op {op}, tile {tile}: waits for rank {peer} to signal {what}; ")?;
        match self.peer_waits_at {
            Some(op) => write!(f, "rank {peer} waits itself at {op}"),
            None => write!(f, "lane {} of rank {peer} has ended and signals no more", self.peer),
        }
    }
}
