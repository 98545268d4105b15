//! A simulation for people.

use super::Simulated;
use crate::values::print_size;
use crate::verify::counted;
use ringsmith_compiler::simulate::{Unit, Usage};
use std::fmt::Write;

/// At most this many rows of a table. Ours: both tables on a screen.
const ROWS: usize = 12;

/// Ends with a line feed.
pub(super) fn of(simulated: &Simulated<'_>) -> String {
    let mut text = String::new();
    let timeline = simulated.timeline;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<11} {value}");
    };
    line("plan", simulated.subject.name.clone());
    line("machine", simulated.machine.clone());
    let dtype = simulated.arguments.load.dtype;
    line(
        "data",
        format!(
            "{} of {dtype}, {} a chunk",
            print_size(simulated.bytes),
            counted(timeline.tiles as usize, "tile")
        ),
    );
    if let Some(seed) = simulated.arguments.seed {
        line("start", format!("within {} us, seed {seed}", simulated.arguments.skew));
    }
    let total_us = simulated.total_us();
    let (algbw, busbw) = (simulated.algbw_gbs(), simulated.busbw_gbs());
    line("total", format!("{total_us:.3} us, algbw {algbw:.2} GB/s, busbw {busbw:.2} GB/s"));
    if let Some(us) = simulated.subject.predicted_us {
        line("cost model", format!("{us:.3} us"));
    }
    let _ = writeln!(text, "\ncritical path: {}", counted(timeline.critical.len(), "op"));
    for part in timeline.parts.iter().take(ROWS) {
        let share = if total_us > 0.0 { part.ns / 10.0 / total_us } else { 0.0 };
        let times = counted(part.times as usize, "time");
        let _ = writeln!(text, "  {share:5.1} % {:>12.3} us  {} ({times})", part.ns / 1e3, part.what);
    }
    more(&mut text, timeline.parts.len(), "part");
    let _ = writeln!(text, "\nutilisation");
    for usage in busiest(simulated).into_iter().take(ROWS) {
        let carried = match usage.unit {
            Unit::Bytes => format!("{:.3} MB", usage.carried / 1e6),
            Unit::Work => format!("{:.3} us", usage.carried / 1e3),
        };
        let _ = writeln!(text, "  {:5.1} % {carried:>15}  {}", usage.share * 100.0, usage.name);
    }
    more(&mut text, timeline.usage.len(), "resource");
    text
}

/// What carried something, the busiest first.
pub(super) fn busiest<'a>(simulated: &Simulated<'a>) -> Vec<&'a Usage> {
    let mut all: Vec<&Usage> = simulated.timeline.usage.iter().collect();
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all
}

fn more(text: &mut String, count: usize, what: &str) {
    if count > ROWS {
        let _ = writeln!(text, "  and {} more; --json lists all", counted(count - ROWS, what));
    }
}
