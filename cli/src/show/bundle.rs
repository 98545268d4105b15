//! `show DIR`: what a bundle holds, by plan and architecture, and all that is wrong with it.

use super::{field, tally};
use crate::input::name_of;
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress, remark};
use crate::verify::counted;
use ringsmith_ir::text;
use ringsmith_ir::verify;
use ringsmith_runtime::jit::Bundle;
use ringsmith_runtime::jit::bundle::{Checked, CheckedText, TextKind};
use ringsmith_runtime::shown::escaped;
use std::collections::BTreeMap;
use std::path::Path;

/// Largest text of a plan that is proved. Ours: what `compile` writes is far shorter.
const MAX_PLAN_BYTES: usize = 4 << 20;

/// Shows a bundle; damage is told on standard error, file by file, with status 2.
pub(super) fn show(folder: &Path) -> Result {
    let mut progress = Progress::new();
    progress.show(format_args!("{}: reading", name_of(folder)));
    let checked = Bundle::check(folder);
    progress.clear();
    let Checked { bundle, kernels, texts, mut damage } = checked.map_err(Failure::unusable)?;
    let mut output = Output::new();
    let manifest = bundle.manifest();
    output.line(format_args!("bundle {}", name_of(folder)))?;
    for purpose in &manifest.purposes {
        field(&mut output, "for", escaped(purpose))?;
    }
    field(&mut output, "made by", format_args!("Ringsmith {}", manifest.generator.name()))?;
    let plans: Vec<&CheckedText> = texts.iter().filter(|text| text.kind == TextKind::Plan).collect();
    let bytes: u64 = manifest.entries.iter().map(|entry| u128::from(entry.bytes)).sum::<u128>() as u64;
    let architectures: Vec<String> = bundle.architectures().iter().map(ToString::to_string).collect();
    let of = match &architectures[..] {
        [] => "no kernel: plans and sources alone, which no run can use".to_owned(),
        all => format!("{} for {}", counted(kernels.len(), "kernel"), all.join(", ")),
    };
    field(&mut output, "holds", format_args!("{}, {of}, {bytes} bytes", counted(plans.len(), "plan")))?;
    field(&mut output, "hash", bundle.digest())?;
    let mut by_plan: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for kernel in &kernels {
        let entry = kernel.cubin.entry(&kernel.name);
        let registers = entry.map_or(String::new(), |entry| format!(", {} registers", entry.registers));
        let spills = match kernel.cubin.spill_bytes() {
            0 => String::new(),
            spilled => format!(", spills {spilled} bytes"),
        };
        by_plan.entry(&kernel.plan).or_default().push(format!(
            "{:<7} NVRTC {}, {} bytes{registers}{spills}, from {}",
            kernel.cubin.architecture().to_string(),
            kernel.version,
            kernel.cubin.bytes().len(),
            kernel.source
        ));
    }
    output.flush()?;
    for plan in plans {
        progress.show(format_args!("{}: proving", plan.path));
        let said = described(&plan.text);
        progress.clear();
        output.line(format_args!("plan {}", plan.path))?;
        match said {
            Ok(lines) => lines.iter().try_for_each(|(name, value)| field(&mut output, name, value))?,
            Err(reason) => damage.push(bundle.wrong_plan(&plan.path, reason)),
        }
        for kernel in by_plan.remove(plan.path.as_str()).unwrap_or_default() {
            field(&mut output, "kernel", kernel)?;
        }
        output.flush()?;
    }
    for error in &damage {
        remark(format_args!("error: {error}"));
    }
    if damage.is_empty() {
        output
            .line("every file is as its hash says, and every kernel of the plan and source that it names")?;
    }
    output.flush()?;
    Ok(if damage.is_empty() { Outcome::Done } else { Outcome::Unusable })
}

/// What a plan computes, and its proof.
///
/// Errors: what is wrong with it, in a line.
fn described(text: &str) -> std::result::Result<Vec<(&'static str, String)>, String> {
    if text.len() > MAX_PLAN_BYTES {
        return Err(format!("it has {} bytes; plans of at most {MAX_PLAN_BYTES} are proved", text.len()));
    }
    let first = |found: Vec<ringsmith_ir::diagnostic::Diagnostic>| {
        found.first().map_or_else(String::new, |d| escaped(&d.message).into_owned())
    };
    let plan = text::parse_kernel_plan(text).map_err(first)?;
    let mut protocols: BTreeMap<&str, usize> = BTreeMap::new();
    let protocol = plan.protocol.to_string();
    protocols.insert(&protocol, plan.links.len());
    let lines = vec![
        ("computes", super::computes(plan.collective, plan.op, plan.order)),
        (
            "ranks",
            plan.root.map_or_else(|| plan.ranks.to_string(), |root| format!("{}, root {root}", plan.ranks)),
        ),
        ("links", tally(&protocols)),
    ];
    let proved = verify::kernel_plan(plan).map_err(first)?;
    drop(proved);
    Ok([lines, vec![("proof", "whole".to_owned())]].concat())
}
