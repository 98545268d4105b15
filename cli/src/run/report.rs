//! What rank 0 prints: nccl-tests' table, or one JSON object a row.

use super::arguments::RunArguments;
use super::cases::Case;
use super::sizes;
use crate::outcome::{Outcome, Result};
use crate::output::{Output, remark};
use crate::values::print_size;
use crate::verify::counted;
use ringsmith_ir::types::Collective;
use ringsmith_runtime::reference;
use serde::Serialize;

/// What was measured of a case in one kind of memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Measured {
    /// Whether input and output shared memory.
    pub(crate) in_place: bool,
    /// Time of a call: the slowest rank's average.
    pub(crate) time_us: f64,
    /// Wrong elements on all ranks together; none where results were not checked.
    pub(crate) wrong: Option<u64>,
    /// What ran.
    pub(crate) plan: String,
}

/// Measures every case in each kind of memory that was asked for. `heading`: of the process that prints.
pub(super) fn table(
    arguments: &RunArguments,
    heading: Option<Vec<String>>,
    cases: &[Case],
    mut measure: impl FnMut(&Case, bool) -> Result<Measured>,
) -> Result {
    let mut report = heading.map(|lines| Report::new(arguments, &lines)).transpose()?;
    let mut wrong = 0;
    for case in cases {
        let mut measured = Vec::new();
        for &in_place in arguments.inplace.kinds() {
            if in_place && !case.has_in_place() {
                continue;
            }
            measured.push(measure(case, in_place)?);
        }
        wrong += measured.iter().filter_map(|m| m.wrong).sum::<u64>();
        if let Some(report) = &mut report {
            report.row(case, &measured)?;
        }
    }
    if let Some(report) = report {
        report.close()?;
    }
    Ok(if wrong == 0 { Outcome::Done } else { Outcome::No })
}

/// One row of `run --json`.
#[derive(Serialize)]
struct Row<'a> {
    collective: &'a str,
    dtype: Option<&'a str>,
    op: Option<&'a str>,
    root: Option<u32>,
    ranks: u32,
    bytes: u64,
    count: u64,
    inplace: bool,
    time_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
    wrong: Option<u64>,
    plan: &'a str,
}

/// Prints rows as they come and remembers what the last lines say.
pub(crate) struct Report {
    output: Output,
    json: bool,
    bus_sum_gbs: f64,
    rows: u64,
    wrong: Option<u64>,
}

impl Report {
    /// Prints what stands above the rows: `heading`, each line a comment, and the columns' names.
    pub(crate) fn new(arguments: &RunArguments, heading: &[String]) -> Result<Self> {
        let mut output = Output::new();
        if !arguments.json {
            for line in heading {
                output.line(format_args!("# {line}"))?;
            }
            output.line("#")?;
            output.line(HEADER)?;
            output.flush()?;
        }
        let wrong = arguments.check.then_some(0);
        Ok(Self { output, json: arguments.json, bus_sum_gbs: 0.0, rows: 0, wrong })
    }

    /// Prints a case.
    pub(crate) fn row(&mut self, case: &Case, measured: &[Measured]) -> Result<()> {
        let bytes = case.bytes();
        let mut columns = [const { String::new() }; 2];
        for one in measured {
            let algorithm_gbs = sizes::bandwidth_gbs(bytes, one.time_us);
            let bus_gbs = algorithm_gbs * sizes::bus_factor(case.collective, case.ranks);
            self.bus_sum_gbs += bus_gbs;
            self.rows += 1;
            self.wrong = self.wrong.zip(one.wrong).map(|(sum, wrong)| sum + wrong);
            if self.json {
                self.output.json(&json(case, one, algorithm_gbs, bus_gbs))?;
            }
            columns[usize::from(one.in_place)] = columns_of(one, algorithm_gbs, bus_gbs);
        }
        if !self.json {
            let [apart, in_place] = columns.map(|c| if c.is_empty() { columns_without() } else { c });
            let dtype = if case.moves_data() { case.dtype.name() } else { "none" };
            let op = case.op.map_or("none", |op| op.name());
            // nccl-tests' spelling of no root.
            let root = case.root.map_or_else(|| "-1".to_owned(), |root| root.to_string());
            self.output.line(format_args!(
                "{bytes:>12}  {:>12}  {dtype:>10}  {op:>9}  {root:>5}  {apart}  {in_place}",
                case.count
            ))?;
        }
        self.output.flush()
    }

    /// Prints what stands below the rows. Returns how many elements were wrong.
    pub(crate) fn close(mut self) -> Result<Option<u64>> {
        if !self.json {
            let wrong = match self.wrong {
                None => "not checked".to_owned(),
                Some(0) => "0 OK".to_owned(),
                Some(wrong) => format!("{wrong} FAILED"),
            };
            let average = if self.rows > 0 { self.bus_sum_gbs / self.rows as f64 } else { 0.0 };
            self.output.line(format_args!("# Wrong elements: {wrong}"))?;
            self.output.line(format_args!("# Avg bus bandwidth: {average:.4} GB/s"))?;
            self.output.flush()?;
        }
        Ok(self.wrong)
    }
}

/// The first line above the rows.
pub(crate) fn title(arguments: &RunArguments, ranks: u32) -> String {
    let check = if arguments.check { "checked" } else { "not checked" };
    format!(
        "ringsmith {}: {} on {}, {} after {}, results {check}",
        env!("CARGO_PKG_VERSION"),
        arguments.collective,
        counted(ranks as usize, "rank"),
        counted(arguments.iters as usize, "timed call"),
        arguments.warmup
    )
}

/// A line above the rows where the largest size that was asked for has none.
pub(crate) fn last_size(arguments: &RunArguments) -> Option<String> {
    let RunArguments { collective, min, max, factor, .. } = *arguments;
    if collective == Collective::Barrier {
        return None;
    }
    let last = sizes::sweep(min, max, factor).last().copied().filter(|&last| last != max)?;
    Some(format!(
        "  sizes: {} to {}, each {factor} times the one before, none above --max {}",
        print_size(min),
        print_size(last),
        print_size(max)
    ))
}

/// Names the first wrong elements of a rank.
pub(crate) fn tell_wrong(rank: u32, case: &Case, in_place: bool, found: &reference::Report) {
    /// Ours: enough to see a pattern.
    const MAX_NAMED: usize = 3;
    let place = if in_place { "in place" } else { "out of place" };
    remark(format_args!("rank {rank}: {} of {} elements, {place}:", case.collective, case.count));
    for mismatch in found.first.iter().take(MAX_NAMED) {
        remark(format_args!("  {mismatch}"));
    }
}

const HEADER: &str = "\
#                                                                    out-of-place                          in-place
#       size         count        type      redop   root       time   algbw   busbw   #wrong       time   algbw   busbw   #wrong
#        (B)    (elements)                                      (us)  (GB/s)  (GB/s)                (us)  (GB/s)  (GB/s)";

fn columns_of(measured: &Measured, algorithm_gbs: f64, bus_gbs: f64) -> String {
    let wrong = measured.wrong.map_or_else(|| "N/A".to_owned(), |wrong| wrong.to_string());
    format!("{:>9}  {algorithm_gbs:>6.2}  {bus_gbs:>6.2}  {wrong:>7}", time(measured.time_us))
}

fn columns_without() -> String {
    format!("{:>9}  {:>6}  {:>6}  {:>7}", "N/A", "N/A", "N/A", "N/A")
}

/// A time with about four digits, as nccl-tests prints it.
fn time(us: f64) -> String {
    match us {
        us if us >= 10_000.0 => format!("{us:.0}"),
        us if us >= 100.0 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}

fn json<'a>(case: &Case, measured: &'a Measured, algbw_gbs: f64, busbw_gbs: f64) -> Row<'a> {
    Row {
        collective: case.collective.name(),
        dtype: case.moves_data().then(|| case.dtype.name()),
        op: case.op.map(|op| op.name()),
        root: case.root,
        ranks: case.ranks,
        bytes: case.bytes(),
        count: case.count,
        inplace: measured.in_place,
        time_us: measured.time_us,
        algbw_gbs,
        busbw_gbs,
        wrong: measured.wrong,
        plan: &measured.plan,
    }
}
