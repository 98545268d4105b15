//! What was measured beside what is predicted, call by call and in a few figures.

use crate::outcome::{Outcome, Result};
use crate::output::Output;
use ringsmith_compiler::plan::{Costs, Measurement};
use ringsmith_compiler::tune::Call;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What counts as well predicted: off by no more than this part of the measured time.
const WELL: f64 = 0.25;

/// Ways whose measured times differ by no more than this part have no order.
const ALIKE: f64 = 0.2;

/// A line of `--show`.
#[derive(Serialize)]
struct Row {
    collective: &'static str,
    algorithm: &'static str,
    protocol: &'static str,
    channels: u32,
    ranks: u32,
    transport: &'static str,
    bytes: u64,
    measured_us: f64,
    /// What the simulator says; none where it would need too many ops.
    simulated_us: Option<f64>,
}

impl Row {
    fn of(call: &Call, costs: &Costs) -> Self {
        let Measurement {
            collective, algorithm, protocol, channels, ranks, shared_memory, bytes, us, ..
        } = call.measured;
        Self {
            collective: collective.name(),
            algorithm: algorithm.name,
            protocol: protocol.name(),
            channels,
            ranks,
            transport: if shared_memory { "shm" } else { "socket" },
            bytes,
            measured_us: us,
            simulated_us: call.simulated_us(costs),
        }
    }
}

/// Prints every call, and the figures.
pub(super) fn show(calls: &[Call], costs: &Costs, json: bool) -> Result {
    let mut output = Output::new();
    let rows = calls.iter().map(|call| Row::of(call, costs));
    if json {
        for row in rows {
            output.json(&row)?;
        }
    } else {
        output.line(format_args!(
            "{:<15} {:<18} {:<8} {:>8} {:<9} {:>10} {:>12} {:>12} {:>9}",
            "collective",
            "algorithm",
            "protocol",
            "channels",
            "transport",
            "bytes",
            "measured us",
            "simulated",
            "ratio"
        ))?;
        for row in rows {
            let Row { collective, algorithm, protocol, channels, transport, bytes, measured_us, .. } = row;
            let (simulated, ratio) = match row.simulated_us {
                Some(us) => (format!("{us:.2}"), format!("{:.2}", us / measured_us)),
                None => ("too long".to_owned(), String::new()),
            };
            output.line(format_args!(
                "{collective:<15} {algorithm:<18} {protocol:<8} {channels:>8} {transport:<9} {bytes:>10} {measured_us:>12.2} {simulated:>12} {ratio:>9}"
            ))?;
        }
        output.text(&self::costs(costs))?;
        output.text(&summary("figures", calls, costs))?;
    }
    output.flush()?;
    Ok(Outcome::Done)
}

/// Costs that were found, beside those that are known without.
pub(super) fn costs(found: &Costs) -> String {
    let (mut known, mut found) = (Costs::CPU, *found);
    let mut text = format!("\n{:<21} {:>12} {:>12}\n", "cost", "by default", "here");
    for ((name, known), (_, found)) in known.numbers().into_iter().zip(found.numbers()) {
        let _ = writeln!(text, "{name:<21} {:>12} {:>12}", short(*known), short(*found));
    }
    text
}

/// Three digits and a power of a thousand.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e9.. => (value / 1e9, "G"),
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{value:.3}{unit}")
}

/// How many calls are well predicted, and how many pairs of ways in the right order.
pub(super) fn summary(title: &str, calls: &[Call], costs: &Costs) -> String {
    let simulated: Vec<Option<f64>> = calls.iter().map(|call| call.simulated_us(costs)).collect();
    let mut text = format!("\n{title}\n");
    for (shared_memory, transport) in [(true, "shm"), (false, "socket")] {
        let here: Vec<(&Measurement, f64)> = calls
            .iter()
            .zip(&simulated)
            .filter(|(call, _)| call.measured.shared_memory == shared_memory)
            .filter_map(|(call, us)| Some((&call.measured, (*us)?)))
            .collect();
        if here.is_empty() {
            continue;
        }
        let well = |measured: &Measurement, us: f64| (us / measured.us - 1.0).abs() <= WELL;
        let all = here.iter().filter(|(measured, us)| well(measured, *us)).count();
        // What the planner would choose by itself is what users see: the fastest of each size.
        let mut fastest: BTreeMap<(&str, u64), (&Measurement, f64)> = BTreeMap::new();
        for &(measured, us) in &here {
            let best = fastest.entry((measured.collective.name(), measured.bytes)).or_insert((measured, us));
            if measured.us < best.0.us {
                *best = (measured, us);
            }
        }
        let chosen = fastest.values().filter(|(measured, us)| well(measured, *us)).count();
        let (right, pairs) = order(&here);
        let _ = writeln!(
            text,
            "  {transport:<6} within {:.0} %: {all} of {} calls, {chosen} of the {} that are the fastest of their size; in the right order: {right} of {pairs} pairs",
            WELL * 100.0,
            here.len(),
            fastest.len()
        );
    }
    text
}

/// Pairs of ways to do the same whose order is predicted as it was measured, and all of those that are not alike.
fn order(here: &[(&Measurement, f64)]) -> (usize, usize) {
    let (mut right, mut pairs) = (0, 0);
    for (at, (one, one_us)) in here.iter().enumerate() {
        for (other, other_us) in &here[at + 1..] {
            let same =
                one.collective == other.collective && one.bytes == other.bytes && one.ranks == other.ranks;
            let ratio = one.us / other.us;
            if same && ratio.max(1.0 / ratio) > 1.0 + ALIKE {
                pairs += 1;
                right += usize::from((one_us < other_us) == (one.us < other.us));
            }
        }
    }
    (right, pairs)
}
