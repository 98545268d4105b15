//! Lowering: a proved schedule becomes a kernel plan.
//!
//! Two steps. `stage` turns every put, get and signal into messages through the links' slots or
//! cells, which is always right and seldom fast. `fuse` then joins neighbouring ops: a landing and
//! its reduction, a reduction and the send of its result, one source sent to several peers.
//!
//! Neither is trusted: the result goes through the verifier again, and where fusing would deadlock
//! or change the order of reduction on some rank only, [`lower`] falls back to the plan without it.

mod direct;
mod fuse;
mod stage;

use ringsmith_ir::diagnostic::{Diagnostic, Span};
use ringsmith_ir::entity::{LaneName, OpAddress};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::verify::{self, Verified};
use std::collections::{HashMap, HashSet};

/// What a communicator fixes for all its plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How messages travel.
    pub protocol: Protocol,
    /// Slots per FIFO link.
    pub slots: u32,
    /// Bytes per slot.
    pub slot_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { protocol: Protocol::Simple, slots: 8, slot_bytes: 128 << 10 }
    }
}

/// Lowers and proves.
///
/// Errors: the verifier's on the plan without fusing; for a proved schedule that means too few
/// slots, a zone that the plan may not use, or a size beyond the verifier's bound. Their places are
/// those of the schedule.
pub fn lower(
    schedule: &Verified<Schedule>,
    options: Options,
) -> Result<Verified<KernelPlan>, Vec<Diagnostic>> {
    let staged = stage::stage(schedule, options, stage::Gets::Sent);
    let fused = fuse::fuse(staged.clone());
    verify::kernel_plan(fused)
        .or_else(|_| verify::kernel_plan(fuse::tidy(staged)))
        .map_err(|found| in_text(schedule, found))
}

/// Gives mistakes of a kernel plan the places of the schedule's ops that they come from. What comes from
/// no op is a matter of the whole, and stands at the first lane.
fn in_text(schedule: &Schedule, mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let lanes: HashMap<LaneName, _> = schedule.lanes.values().map(|lane| (lane.name, lane)).collect();
    let whole = schedule.lanes.values().next().map_or_else(Span::default, |lane| lane.span);
    let place = |op: OpAddress| lanes.get(&op.lane)?.ops.get(op.op as usize).map(|op| op.span);
    for diagnostic in &mut found {
        for label in &mut diagnostic.labels {
            label.span = label.op.and_then(place).unwrap_or(whole);
        }
        // Ranks that run one line are one place.
        let mut seen = HashSet::new();
        diagnostic.labels.retain(|label| seen.insert(label.span));
    }
    found
}

/// As [`lower`], for ranks that map each other's buffers: a get reads the peer's input where it lies, and what
/// would land in an output by way of a slot is written there by its sender, wherever the verifier agrees.
///
/// Errors: as [`lower`].
pub fn lower_direct(
    schedule: &Verified<Schedule>,
    options: Options,
) -> Result<Verified<KernelPlan>, Vec<Diagnostic>> {
    let fused = fuse::fuse(stage::stage(schedule, options, stage::Gets::Mapped));
    verify::kernel_plan(direct::direct(fused)).or_else(|_| lower(schedule, options))
}
