//! Proof by instances: where a schedule is too large to be proved whole, its program is, for fewer ranks.
//!
//! Every small number of ranks that the algorithm is for, and, where there are several hosts, as many hosts with one
//! to three ranks each: a program that tells hosts apart, or that goes wrong where their number is odd or large,
//! goes wrong there. It is evidence and no proof for the ranks at hand, and is called by its name wherever it is
//! all there is.

use super::{Choice, Shape, instantiate};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::expand;
use ringsmith_ir::verify;
use std::fmt;

/// Up to this number of ranks, every one is an instance. Ours: past four levels of a tree, and 100 ms.
const SMALL_RANKS: u32 = 16;

/// The most ranks of an instance. Ours: 300 MB, and a fraction of a second.
const LARGEST_RANKS: u32 = 2048;

/// The most ranks of a host in instances with all hosts.
const PER_NODE: u32 = 3;

/// What was proved in a schedule's place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instances {
    /// Up to this number of ranks, every one that the algorithm is for.
    pub small: u32,
    /// The number of hosts that was proved whole, with the most ranks each; none if it is too large, or there
    /// is one host.
    pub hosts: Option<(u32, u32)>,
}

impl fmt::Display for Instances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by instances: the same program, whole, for 1 to {} ranks", self.small)?;
        match self.hosts {
            None => Ok(()),
            Some((hosts, 1)) => write!(f, ", and for {hosts} hosts of 1 rank"),
            Some((hosts, most)) => write!(f, ", and for {hosts} hosts of 1 to {most} ranks"),
        }
    }
}

/// Proves the program of a choice for fewer ranks.
///
/// Errors: what is wrong with an instance.
pub fn prove_instances(choice: &Choice) -> Result<Instances, Vec<Diagnostic>> {
    let by_node = choice.algorithm.by_node;
    for ranks in (1..=SMALL_RANKS).filter(|ranks| choice.algorithm.applies.holds(*ranks)) {
        let even = (1..=ranks).filter(|per_node| ranks.is_multiple_of(*per_node));
        for per_node in even.take_while(|per_node| by_node || *per_node == 1) {
            prove(choice, Shape { ranks, per_node, root: 0 })?;
        }
    }
    let mut hosts = None;
    for per_node in (1..=PER_NODE).filter(|_| choice.hosts > 1) {
        let ranks = choice.hosts.saturating_mul(per_node);
        if ranks > LARGEST_RANKS {
            break;
        }
        let shape = Shape { ranks, per_node, root: ranks - 1 };
        if choice.algorithm.applies.holds(ranks) {
            prove(choice, shape)?;
            hosts = Some((choice.hosts, per_node));
        }
    }
    Ok(Instances { small: SMALL_RANKS, hosts })
}

fn prove(choice: &Choice, shape: Shape) -> Result<(), Vec<Diagnostic>> {
    let (program, arguments) = instantiate(choice.algorithm, shape, choice.channels, None);
    let mut schedule = expand(&program, &arguments)?;
    schedule.protocol = choice.protocol;
    verify::schedule(schedule).map(|_| ())
}
