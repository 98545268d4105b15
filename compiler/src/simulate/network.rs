//! What a plan runs on, as the simulator sees it: resources that ops share, what each part of an op takes
//! of them, and how long a signal travels.
//!
//! Two kinds: ranks on CPUs, with the constants of the planner's [`Machine`], and ranks on the GPUs of a
//! [`Topology`], with the rates and latencies of its paths.

use super::gpus::{Gpus, Unreachable};
use super::hosts;
use crate::plan::Machine;
use ringsmith_ir::entity::LaneName;
use ringsmith_ir::kernel_plan::{Counter, KernelOpKind, KernelPlan, Place};
use ringsmith_ir::topology::Topology;

/// What amounts of a resource are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes; the rate is in bytes a nanosecond, which is GB/s.
    Bytes,
    /// Nanoseconds of one thread's work; the rate is how many threads work at once.
    Work,
}

/// Something that ops share: a direction of a link, a memory, a thread.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// What to call it.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// How much of it there is in a nanosecond.
    pub per_ns: f64,
}

/// A part of an op that takes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// One end's handling of a message to or from a rank.
    Message(u32),
    /// Bytes into a rank's memory.
    Send(u32),
    /// Bytes out of the own scratch where a rank has put them.
    Receive(u32),
    /// Bytes out of a rank's memory.
    Read(u32),
    /// Bytes stored at the own rank.
    Store,
    /// Bytes of one more source combined.
    Combine,
}

/// What an op takes of one resource: an amount for the op, and one for every byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Take {
    pub(super) resource: usize,
    pub(super) fixed: f64,
    pub(super) per_byte: f64,
}

/// What an op takes, a resource once.
pub(super) type Cost = Vec<Take>;

/// What a plan runs on.
#[derive(Clone, Debug)]
pub struct Network {
    pub(super) resources: Vec<Resource>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Hosts(Machine),
    Gpus(Gpus),
}

impl Network {
    /// Ranks on CPUs, for calls whose larger side has `bytes` bytes at each rank. The machine passes its own check.
    pub fn of_hosts(machine: &Machine, bytes: u64) -> Self {
        let costs = machine.costs.touching(machine.touched(bytes));
        let machine = Machine { costs, ..machine.clone() };
        Self { resources: hosts::resources(&machine), kind: Kind::Hosts(machine) }
    }

    /// The first `ranks` GPUs of a topology, node by node.
    ///
    /// Errors: GPUs that no path joins, found for every pair.
    pub fn of_topology(topology: &Topology, ranks: u32) -> Result<Self, Unreachable> {
        let (gpus, resources) = Gpus::of(topology, ranks)?;
        Ok(Self { resources, kind: Kind::Gpus(gpus) })
    }

    /// What ops share.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// How many ranks there is room for.
    pub fn ranks(&self) -> u32 {
        match &self.kind {
            Kind::Hosts(machine) => machine.ranks(),
            Kind::Gpus(gpus) => gpus.ranks(),
        }
    }

    /// The machine by which the planner prices plans for this network: `base`, with the numbers of the
    /// network's paths in place of its own.
    pub fn machine(&self, base: &Machine) -> Machine {
        match &self.kind {
            Kind::Hosts(machine) => machine.clone(),
            Kind::Gpus(gpus) => gpus.machine(base),
        }
    }

    /// From the call to the first op.
    pub(super) fn launch_ns(&self) -> f64 {
        match &self.kind {
            Kind::Hosts(machine) => machine.costs.launch_ns,
            Kind::Gpus(_) => 0.0,
        }
    }

    /// From a rank's signal to another's first look at it.
    pub(super) fn latency_ns(&self, plan: &KernelPlan, from: LaneName, to: u32) -> f64 {
        match &self.kind {
            Kind::Hosts(machine) => hosts::latency_ns(machine, plan.protocol, from.rank.as_u32(), to),
            Kind::Gpus(gpus) => gpus.latency_ns(from.rank.as_u32(), to),
        }
    }

    /// What an op of a lane takes.
    pub(super) fn cost(&self, plan: &KernelPlan, lane: LaneName, op: &KernelOpKind) -> Cost {
        let mut cost = Cost::new();
        for part in parts(plan, lane, op) {
            let takes = match &self.kind {
                Kind::Hosts(machine) => hosts::takes(machine, plan.protocol, lane.rank.as_u32(), part),
                Kind::Gpus(gpus) => gpus.takes(plan.protocol, lane, part),
            };
            for take in takes {
                match cost.iter_mut().find(|known| known.resource == take.resource) {
                    Some(known) => {
                        known.fixed += take.fixed;
                        known.per_byte += take.per_byte;
                    }
                    None => cost.push(take),
                }
            }
        }
        cost
    }
}

/// What an op consists of.
fn parts(plan: &KernelPlan, lane: LaneName, op: &KernelOpKind) -> Vec<Part> {
    let ends = |link| (plan.links[link].from.rank.as_u32(), plan.links[link].to.rank.as_u32());
    let peer = |link| if ends(link).0 == lane.rank.as_u32() { ends(link).1 } else { ends(link).0 };
    match op {
        // A credit is a word that is written beside something else.
        KernelOpKind::Wait(Counter::Free(_)) | KernelOpKind::Signal(Counter::Free(_)) => Vec::new(),
        KernelOpKind::Wait(Counter::Full(link) | Counter::Cell(link, _))
        | KernelOpKind::Signal(Counter::Full(link) | Counter::Cell(link, _)) => {
            vec![Part::Message(peer(*link))]
        }
        KernelOpKind::Move { dst, src, .. } => {
            let mut parts = vec![Part::Combine; src.len().saturating_sub(1)];
            for source in src {
                match source.place {
                    Place::Slot(link) => parts.push(Part::Receive(ends(link).0)),
                    Place::Cell(link, _) => {
                        parts.extend([Part::Message(ends(link).0), Part::Receive(ends(link).0)]);
                    }
                    Place::PeerInput(rank, _) | Place::PeerOutput(rank, _) => {
                        parts.push(Part::Read(rank.as_u32()));
                    }
                    Place::Input(_) | Place::Output(_) | Place::Scratch(..) => {}
                }
            }
            for place in dst {
                match *place {
                    Place::Slot(link) => parts.push(Part::Send(ends(link).1)),
                    Place::Cell(link, _) => {
                        parts.extend([Part::Message(ends(link).1), Part::Send(ends(link).1)]);
                    }
                    Place::PeerInput(rank, _) | Place::PeerOutput(rank, _) => {
                        parts.push(Part::Send(rank.as_u32()));
                    }
                    // What is combined is stored as it goes.
                    Place::Input(_) | Place::Output(_) | Place::Scratch(..) if src.len() > 1 => {}
                    Place::Input(_) | Place::Output(_) | Place::Scratch(..) => parts.push(Part::Store),
                }
            }
            parts
        }
    }
}
