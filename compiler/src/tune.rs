//! What a machine costs, from what calls took there: the numbers with which the simulator comes closest.
//!
//! Every measured call is simulated, and one number after the other is made larger or smaller as long as that
//! brings the simulations closer to the measurements; the steps become smaller until they no longer matter. A
//! search that plain finds no best of all, but one that cannot be bettered by any single number; it starts from the
//! constants that are known, and leaves alone what no call depends on.

use crate::lower::{self, Options};
use crate::plan::{self, Costs, Machine, Measurement};
use crate::simulate::{Launch, Network, Start, simulate};
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::types::{DataType, ReduceOp};
use ringsmith_ir::verify;

/// By what a number is multiplied or divided first, and below which step the search ends.
const FIRST_STEP: f64 = 2.0;
const LAST_STEP: f64 = 1.02;

/// How far a number may go from where it began, either way. Ours: no host is so unlike.
const FARTHEST: f64 = 100.0;

/// Errors below this count by their square, larger ones by themselves: a few calls that went wrong do not pull
/// everything to them.
const SQUARED_BELOW: f64 = 0.2;

/// How much being off from where it began by a factor of e weighs for a number, in calls. Ours: enough to keep
/// those that no call depends on.
const TIED_BY: f64 = 0.05;

/// How many calls are simulated before those that count, and how many that do: enough for FIFOs to fill, and fewer
/// where a call has many tiles that fill them.
const MANY_CALLS: u32 = 5;
const FEW_CALLS: u32 = 2;
const FEW_BYTES: u64 = 128 << 10;

/// A measured call and the plan that it ran, ready to be simulated.
#[derive(Clone, Debug)]
pub struct Call {
    /// What was measured.
    pub measured: Measurement,
    plan: KernelPlan,
    machine: Machine,
}

impl Call {
    /// Plans the call again, as ranks on `machine` did: they say what their FIFOs and zones were like.
    ///
    /// Errors: what the verifier finds, which is a mistake of the planner.
    pub fn new(measured: Measurement, machine: &Machine) -> Result<Self, Vec<Diagnostic>> {
        let Measurement { collective, algorithm, protocol, channels, .. } = measured;
        let op = collective.reduces().then_some(ReduceOp::Sum);
        let root = collective.rooted().then_some(0);
        let options = Options { protocol, slots: machine.slots, slot_bytes: machine.slot_bytes };
        let mut schedule = plan::schedule(algorithm, &plan::rank_order(machine), root, channels, op)?;
        schedule.protocol = protocol;
        let plan = lower::lower(&verify::schedule(schedule)?, options)?.into_inner();
        Ok(Self { measured, plan, machine: machine.clone() })
    }

    /// What the simulator says that one of many such calls takes, each as soon as the one before is over, with other
    /// costs; none if it has too many ops for a run.
    pub fn simulated_us(&self, costs: &Costs) -> Option<f64> {
        let Measurement { collective, ranks, bytes, .. } = self.measured;
        let dtype = DataType::Float32;
        let elements = bytes / dtype.size_bytes() as u64;
        let count = if collective.blocked() { elements / u64::from(ranks) } else { elements };
        let network = Network::of_hosts(&Machine { costs: *costs, ..self.machine.clone() }, bytes);
        // Ranks that only send are ahead of the others after the first calls, and held up by full slots later.
        let calls = if bytes <= FEW_BYTES { MANY_CALLS } else { FEW_CALLS };
        let launch = Launch { dtype, count, calls: 2 * calls };
        let timeline = simulate(&self.plan, launch, &network, Start::default()).ok()?;
        let first_half =
            timeline.records.iter().filter(|at| u64::from(at.tile) < timeline.tiles * u64::from(calls));
        let half_ns = first_half.map(|record| record.ended_ns).fold(0.0, f64::max);
        Some((timeline.total_ns - half_ns) / f64::from(calls) / 1e3)
    }

    /// How far the simulator is off: the logarithm of its time over the measured one.
    fn error(&self, costs: &Costs) -> f64 {
        self.simulated_us(costs).map_or(0.0, |us| (us / self.measured.us).ln())
    }
}

/// The costs with which the simulator comes closest to what calls took, from `start` on.
pub fn fit(calls: &[Call], start: &Costs) -> Costs {
    let (mut best, mut step) = (*start, FIRST_STEP);
    let mut least = distance(calls, &best, start);
    while step > LAST_STEP {
        let mut improved = false;
        for number in 0..best.numbers().len() {
            for factor in [step, 1.0 / step] {
                let mut tried = best;
                *tried.numbers()[number].1 *= factor;
                if moved(&tried, start, number).abs() > FARTHEST.ln() {
                    continue;
                }
                let found = distance(calls, &tried, start);
                if found < least {
                    (best, least, improved) = (tried, found, true);
                    break;
                }
            }
        }
        if !improved {
            step = step.sqrt();
        }
    }
    best
}

/// What the search makes small.
fn distance(calls: &[Call], costs: &Costs, start: &Costs) -> f64 {
    let missed = |call: &Call| {
        let error = call.error(costs).abs();
        if error < SQUARED_BELOW { error * error / SQUARED_BELOW } else { 2.0 * error - SQUARED_BELOW }
    };
    let tie = |number| TIED_BY * moved(costs, start, number).powi(2);
    let ties: f64 = (0..start.clone().numbers().len()).map(tie).sum();
    calls.iter().map(missed).sum::<f64>() + ties
}

/// How far a number is from where it began, as a logarithm.
fn moved(costs: &Costs, start: &Costs, number: usize) -> f64 {
    let value = |costs: &Costs| *costs.clone().numbers()[number].1;
    (value(costs) / value(start)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::candidates;
    use ringsmith_ir::types::Collective;

    /// Calls on a machine of known costs, and costs that are far from them.
    #[test]
    fn known_costs_are_found_again() {
        let mut truth = Costs::CPU;
        truth.shm.latency_ns *= 3.0;
        truth.shm.bytes_per_s /= 4.0;
        truth.reduce_bytes_per_s /= 5.0;
        truth.socket.bytes_per_s *= 2.0;
        let mut calls = Vec::new();
        for shared_memory in [true, false] {
            let machine = Machine { shared_memory, ..Machine::cpu(vec![0; 2], 2) };
            for algorithm in candidates(Collective::AllReduce).iter().take(3) {
                for bytes in [64, 4 << 10, 256 << 10, 4 << 20] {
                    let measured = Measurement {
                        collective: Collective::AllReduce,
                        algorithm,
                        protocol: ringsmith_ir::schedule::Protocol::Simple,
                        channels: 1,
                        ranks: 2,
                        cores: 2,
                        shared_memory,
                        bytes,
                        us: 1.0,
                    };
                    let mut call = Call::new(measured, &machine).expect("a plan");
                    call.measured.us = call.simulated_us(&truth).expect("few ops");
                    calls.push(call);
                }
            }
        }
        let off = |costs: &Costs| calls.iter().map(|call| call.error(costs).abs()).fold(0.0, f64::max);
        assert!(off(&Costs::CPU) > 0.5);
        let found = fit(&calls, &Costs::CPU);
        assert!(off(&found) < 0.08, "off by {} with {found:?}", off(&found));
        // Nothing here crosses a zone, or has more ranks than cores.
        assert_eq!((found.zone, found.switch_ns), (Costs::CPU.zone, Costs::CPU.switch_ns));
    }
}
