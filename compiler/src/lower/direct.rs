//! Direct writes: what a receiver would only copy from a slot into its output, the sender writes there.
//!
//! | | before | after |
//! | --- | --- | --- |
//! | sender | `move …, l.slot <- x` | `move …, r1.output[c] <- x` |
//! | receiver | `wait l.full; move output[c] <- l.slot; signal l.free` | `wait l.full; signal l.free` |
//!
//! For devices that map each other's memory. The message stays, without payload: it says that the write
//! is done. Whether the receiver has entered the launch by then, and is done with what was there, the
//! verifier decides.

use ringsmith_ir::entity::{Link, Rank};
use ringsmith_ir::kernel_plan::{Counter, KernelOp, KernelOpKind, KernelPlan, Place};
use std::collections::BTreeMap;

/// Makes every message direct that can be.
pub(super) fn direct(mut plan: KernelPlan) -> KernelPlan {
    let landings = landings(&plan);
    for lane in plan.lanes.values_mut() {
        let mut sent: BTreeMap<Link, u32> = BTreeMap::new();
        for op in &mut lane.ops {
            match &mut op.kind {
                KernelOpKind::Signal(Counter::Full(link)) => *sent.entry(*link).or_default() += 1,
                KernelOpKind::Move { dst, .. } => {
                    for place in dst {
                        if let Place::Slot(link) = *place
                            && let Some((rank, chunk)) =
                                landings.get(&(link, sent.get(&link).copied().unwrap_or(0)))
                        {
                            *place = Place::PeerOutput(*rank, *chunk);
                        }
                    }
                }
                KernelOpKind::Signal(Counter::Free(_) | Counter::Cell(..)) | KernelOpKind::Wait(_) => {}
            }
        }
        let mut taken: BTreeMap<Link, u32> = BTreeMap::new();
        lane.ops.retain(|op| match &op.kind {
            KernelOpKind::Signal(Counter::Free(link)) => {
                *taken.entry(*link).or_default() += 1;
                true
            }
            KernelOpKind::Move { .. } => lands(op).is_none_or(|(link, _)| {
                !landings.contains_key(&(link, taken.get(&link).copied().unwrap_or(0)))
            }),
            KernelOpKind::Signal(Counter::Full(_) | Counter::Cell(..)) | KernelOpKind::Wait(_) => true,
        });
    }
    plan
}

/// Messages that are only copied into the output: link and place in the tile, to rank and chunk.
fn landings(plan: &KernelPlan) -> BTreeMap<(Link, u32), (Rank, u32)> {
    let mut found = BTreeMap::new();
    for lane in plan.lanes.values() {
        let mut taken: BTreeMap<Link, u32> = BTreeMap::new();
        for op in &lane.ops {
            if let KernelOpKind::Signal(Counter::Free(link)) = op.kind {
                *taken.entry(link).or_default() += 1;
            }
            if let Some((link, chunk)) = lands(op) {
                found.insert((link, taken.get(&link).copied().unwrap_or(0)), (lane.name.rank, chunk));
            }
        }
    }
    found
}

/// The link and chunk of a move that only copies a slot into the output.
fn lands(op: &KernelOp) -> Option<(Link, u32)> {
    let KernelOpKind::Move { dst, src, post: false, .. } = &op.kind else { return None };
    let ([Place::Output(chunk)], [source]) = (&dst[..], &src[..]) else { return None };
    match source.place {
        Place::Slot(link) if !source.pre => Some((link, *chunk)),
        _ => None,
    }
}
