//! The critical path: the chain of ops, each begun by the one before, that ends with the last op of all.

use super::engine::Record;
use super::network::Resource;
use ringsmith_ir::kernel_plan::KernelPlan;
use std::collections::BTreeMap;

/// What a part of the critical path was spent on.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What: the resource that limited the ops, or signals on their way.
    pub what: String,
    /// How long, all together.
    pub ns: f64,
    /// How many times.
    pub times: u64,
}

/// The path, from the first op on.
pub(super) fn path(records: &[Record]) -> Vec<u32> {
    // Of several that end at once, the first to be noted.
    let last = (0..records.len())
        .reduce(|best, next| if records[next].ended_ns > records[best].ended_ns { next } else { best });
    let mut path: Vec<u32> = Vec::new();
    let mut at = last.map(|last| last as u32);
    while let Some(record) = at {
        path.push(record);
        // A cause was noted before what it began, so that this ends.
        at = records[record as usize].cause;
    }
    path.reverse();
    path
}

/// The time of a path by what it was spent on, the longest first.
pub(super) fn parts(
    plan: &KernelPlan,
    records: &[Record],
    path: &[u32],
    resources: &[Resource],
    tiles_of_a_call: u64,
) -> Vec<Part> {
    let mut sums: BTreeMap<String, (f64, u64)> = BTreeMap::new();
    let mut add = |what: String, ns: f64| {
        if ns > 0.0 {
            let sum = sums.entry(what).or_default();
            (sum.0, sum.1) = (sum.0 + ns, sum.1 + 1);
        }
    };
    let call = |record: &Record| u64::from(record.tile) / tiles_of_a_call;
    let mut before: Option<&Record> = None;
    for record in path.iter().map(|at| &records[*at as usize]) {
        let rank = |record: &Record| plan.lanes[record.lane].name.rank;
        match before {
            None => add("entering the call".to_owned(), record.began_ns),
            Some(cause) if call(record) > call(cause) => {
                add("entering the call".to_owned(), record.began_ns - cause.ended_ns);
            }
            Some(cause) if cause.lane == record.lane => {}
            Some(cause) => {
                let within = if rank(cause) == rank(record) {
                    "signals within a rank"
                } else {
                    "signals between ranks"
                };
                add(within.to_owned(), record.began_ns - cause.ended_ns);
            }
        }
        if let Some(limit) = record.limit {
            add(resources[limit as usize].name.clone(), record.ended_ns - record.began_ns);
        }
        before = Some(record);
    }
    let mut parts: Vec<Part> = sums.into_iter().map(|(what, (ns, times))| Part { what, ns, times }).collect();
    parts.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    parts
}
