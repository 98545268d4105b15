//! A simulation as programs read it: one object.

use super::Simulated;
use ringsmith_compiler::simulate::{Hang, Unit};
use serde::Serialize;

/// A run that came to its end.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    plan: &'a str,
    machine: &'a str,
    collective: &'static str,
    dtype: &'static str,
    ranks: u32,
    bytes: u64,
    tiles: u64,
    ops: usize,
    seed: Option<u64>,
    total_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
    predicted_us: Option<f64>,
    links: Vec<Link<'a>>,
    critical_path: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Link<'a> {
    name: &'a str,
    /// Bytes, or microseconds of work.
    unit: &'static str,
    carried: f64,
    utilisation: f64,
}

#[derive(Serialize)]
struct Part<'a> {
    what: &'a str,
    us: f64,
    times: u64,
}

/// A run that stands still.
#[derive(Serialize)]
pub(super) struct HangRow<'a> {
    plan: &'a str,
    hang_us: f64,
    waits: Vec<Wait>,
}

#[derive(Serialize)]
struct Wait {
    rank: u32,
    peer: u32,
    op: String,
    tile: u64,
    peer_waits_at: Option<String>,
    message: String,
}

pub(super) fn of<'a>(simulated: &'a Simulated<'_>) -> Row<'a> {
    let (plan, timeline) = (simulated.plan(), simulated.timeline);
    let links = timeline.usage.iter().map(|usage| {
        let (unit, carried) = match usage.unit {
            Unit::Bytes => ("bytes", usage.carried),
            Unit::Work => ("us", usage.carried / 1e3),
        };
        Link { name: &usage.name, unit, carried, utilisation: usage.share }
    });
    let parts = timeline.parts.iter();
    Row {
        plan: &simulated.subject.name,
        machine: &simulated.machine,
        collective: plan.collective.name(),
        dtype: simulated.arguments.load.dtype.name(),
        ranks: plan.ranks,
        bytes: simulated.bytes,
        tiles: timeline.tiles,
        ops: timeline.records.len(),
        seed: simulated.arguments.seed,
        total_us: simulated.total_us(),
        algbw_gbs: simulated.algbw_gbs(),
        busbw_gbs: simulated.busbw_gbs(),
        predicted_us: simulated.subject.predicted_us,
        links: links.collect(),
        critical_path: parts.map(|p| Part { what: &p.what, us: p.ns / 1e3, times: p.times }).collect(),
    }
}

pub(super) fn of_hang<'a>(hang: &Hang, plan: &'a str) -> HangRow<'a> {
    let waits = hang.blocked.iter().map(|blocked| Wait {
        rank: blocked.op.lane.rank.as_u32(),
        peer: blocked.peer.rank.as_u32(),
        op: blocked.op.to_string(),
        tile: blocked.tile,
        peer_waits_at: blocked.peer_waits_at.map(|op| op.to_string()),
        message: blocked.to_string(),
    });
    HangRow { plan, hang_us: hang.at_ns / 1e3, waits: waits.collect() }
}
