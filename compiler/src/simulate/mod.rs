//! The simulator: what a kernel plan takes on a network, by discrete events, without running it.
//!
//! It reads the same plan as the executors, op by op, with finite slots, tiles and lanes, and moves no
//! data: an op has a cost on resources ([`Network`]), ops at work share those (`sharing`), and a signal
//! arrives one latency later (`engine`). What comes out is a [`Timeline`]: every op with its times and
//! what it waited for, what every resource carried, and the critical path. A plan that cannot end is
//! found by the same run: [`Failure::Hang`] names every lane that waits, and for whom.
//!
//! It is no executor: it touches no memory, so that plans that are not proved may be tried, too. All
//! numbers come from the planner's machine or from the topology; there are none here.
//! docs/simulator.md has the model and what it leaves out.

mod critical;
mod engine;
mod gpus;
mod hang;
mod hosts;
mod network;
mod sharing;

pub use critical::Part as CriticalPart;
pub use engine::{Launch, MAX_OPS, Record, Start, Timeline, Usage, simulate};
pub use gpus::Unreachable;
pub use hang::{Blocked, Failure, Hang, may_run};
pub use network::{Network, Resource, Unit};

#[cfg(test)]
mod tests;
