//! The kernels that communicators ask for, found where no GPU is: what `compile` puts into a bundle.
//!
//! Sizes are a range, so plans are asked for at the sizes where they may change and followed as far as they
//! have room. Of a plan, one kernel is for memory that allows wide accesses, and others are for what does not.
//! Those others say in their source how many blocks a multiprocessor is to hold, which on a GPU the driver
//! answers and here [`resident_blocks`] computes; should the driver of some GPU differ, those kernels are not in
//! the bundle, and are compiled or refused by name as any that it lacks.

use super::GpuError;
use super::choice::{CAPACITIES, GpuRequest, Source, Terms, in_bytes, in_elements, left};
use crate::config::selection::Selection;
use crate::jit::{Architecture, Cubin};
use ringsmith_compiler::emit::Access;
use ringsmith_compiler::plan::Filter;
use ringsmith_compiler::plan::gpu::{self, Plan};
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Calls that kernels are wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purpose {
    /// What is computed.
    pub collective: Collective,
    /// Element type.
    pub dtype: DataType,
    /// The operation, where something is reduced.
    pub op: Option<ReduceOp>,
    /// The root, where there is one.
    pub root: Option<u32>,
    /// Sizes of the larger side, in bytes.
    pub bytes: RangeInclusive<u64>,
    /// The least alignment of buffers, in bytes: a power of two.
    pub alignment: u64,
}

/// A kernel that is wanted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// What people call it.
    pub name: &'a str,
    /// The canonical text of its plan.
    pub plan_text: &'a str,
    /// CUDA C++.
    pub source: &'a str,
}

/// Wide accesses are of so many bytes.
const WIDE: u64 = 16;

/// Has `make` make every kernel that communicators of these terms and choices ask for, each once for each call of this
/// function. Where `make` gives none, kernels that depend on others' registers are left out.
///
/// Errors: the first of `make`; a plan that cannot be generated.
pub fn kernels(
    terms: &Terms,
    selection: &Selection,
    purpose: &Purpose,
    architecture: Architecture,
    mut make: impl FnMut(Wanted<'_>) -> Result<Option<Arc<Cubin>>, GpuError>,
) -> Result<(), GpuError> {
    let Purpose { collective, dtype, op, root, .. } = *purpose;
    let is_exchanged = matches!(collective, Collective::SendRecv | Collective::AllToAllV);
    // An all_to_all within one process is copied as messages are.
    if is_exchanged || (collective == Collective::AllToAll && terms.has_all()) {
        exchanges(terms, &mut make)?;
    }
    let request = GpuRequest { collective, dtype, op, scalar_bits: 0, root, count: 0, is_apart: false };
    let mut done = BTreeSet::new();
    if is_exchanged {
        return Ok(());
    }
    let filters = left(selection, collective);
    for (plan, source) in wanted_plans(terms, &filters, purpose, &request)? {
        if !done.insert((plan.algorithm, plan.protocol, plan.threads)) {
            continue;
        }
        let Some(cubin) = make(wanted(&source))? else { continue };
        let kernel = &source.kernel;
        let resident = cubin.entry(&kernel.name).map_or(0, |entry| {
            resident_blocks(architecture, kernel.threads, entry.registers, entry.shared_bytes)
        });
        if resident == 0 {
            continue;
        }
        for (own, access) in others(purpose, &request)? {
            make(wanted(&terms.generate(&own, &plan, access, Some(resident))?))?;
        }
    }
    Ok(())
}

fn wanted(source: &Source) -> Wanted<'_> {
    Wanted { name: &source.kernel.name, plan_text: &source.canonical, source: &source.kernel.source }
}

fn exchanges(
    terms: &Terms,
    make: &mut impl FnMut(Wanted<'_>) -> Result<Option<Arc<Cubin>>, GpuError>,
) -> Result<(), GpuError> {
    for messages in CAPACITIES {
        for access in [Access::Vector, Access::Element, Access::Byte] {
            let source = terms.exchange(access, messages)?;
            let (name, plan_text) = (&source.kernel.name, &source.canonical);
            make(Wanted { name, plan_text, source: &source.kernel.source })?;
        }
    }
    Ok(())
}

/// The plans of a range of sizes, with the kernel of each that is for wide accesses.
fn wanted_plans(
    terms: &Terms,
    filters: &(Filter, Filter),
    purpose: &Purpose,
    request: &GpuRequest,
) -> Result<Vec<(Plan, Source)>, GpuError> {
    let parts = if request.collective.blocked() { u64::from(terms.ranks()) } else { 1 };
    let unit = parts * request.dtype.size_bytes() as u64;
    let is_barrier = request.collective == Collective::Barrier;
    let (least, most) = if is_barrier { (0, 0) } else { (*purpose.bytes.start(), *purpose.bytes.end()) };
    let thresholds = gpu::thresholds(request.collective, terms.ranks());
    let ends = thresholds.iter().skip(1).map(|next| next - 1).chain([u64::MAX]);
    let mut found: Vec<(Plan, Source)> = Vec::new();
    for (first, last) in thresholds.iter().zip(ends) {
        // Counts of elements whose bytes lie there.
        let (first, last) = ((*first).max(least).div_ceil(unit), last.min(most) / unit);
        if first > last {
            continue;
        }
        let at = |count| in_bytes(&GpuRequest { count, ..*request });
        let (first, last) = (at(first)?, at(last)?);
        let mut reasons = Vec::new();
        let mut is_whole = false;
        for plan in terms.plans(&first, filters)? {
            let known = found.iter().find(|(p, _)| {
                (p.algorithm, p.protocol, p.threads) == (plan.algorithm, plan.protocol, plan.threads)
            });
            let sizes = match known {
                Some((_, source)) => source.sizes,
                None => match terms.generate(&first, &plan, Access::Vector, None) {
                    Ok(source) if source.sizes.chunk_bytes(&first).is_ok() => {
                        let sizes = source.sizes;
                        found.push((plan.clone(), source));
                        sizes
                    }
                    // The next may have more room, and so it is with calls.
                    Ok(source) => source.sizes,
                    Err(GpuError::Plan(reason) | GpuError::Argument(reason)) => {
                        reasons.push(format!("{} {}: {reason}", plan.algorithm, plan.protocol));
                        continue;
                    }
                    Err(other) => return Err(other),
                },
            };
            if sizes.chunk_bytes(&last).is_ok() {
                is_whole = true;
                break;
            }
        }
        if !is_whole {
            let (collective, ranks) = (request.collective, terms.ranks());
            return Err(GpuError::Plan(format!(
                "no plan of {collective} for {ranks} ranks fits all sizes from {least} to {most} bytes: {}",
                if reasons.is_empty() { "there is none".to_owned() } else { reasons.join("; ") }
            )));
        }
    }
    Ok(found)
}

/// What else calls may ask of a plan, whose buffers or blocks do not allow wide accesses. Of lengths and
/// addresses only the lowest four bits count, so these are all.
fn others(purpose: &Purpose, request: &GpuRequest) -> Result<Vec<(GpuRequest, Access)>, GpuError> {
    let size = request.dtype.size_bytes() as u64;
    let powers = [WIDE, 8, 4, 2, 1];
    let mut found: Vec<(GpuRequest, Access)> = Vec::new();
    for alignment in powers.into_iter().filter(|power| *power >= purpose.alignment) {
        for bytes in powers.into_iter().filter(|power| power.is_multiple_of(size)) {
            let count = in_bytes(&GpuRequest { count: bytes / size, ..*request })?;
            let (own, access) = in_elements(&count, alignment);
            let is_usual = own.dtype == count.dtype && access == Access::Vector;
            let is_known = |(o, a): &(GpuRequest, Access)| o.dtype == own.dtype && *a == access;
            if !is_usual && !found.iter().any(is_known) {
                found.push((own, access));
            }
        }
    }
    Ok(found)
}

/// Blocks that a multiprocessor holds at once of a kernel with so many threads a block, registers a thread and
/// bytes of shared memory a block: what the driver answers on such a GPU. From the table of compute
/// capabilities in the CUDA programming guide, and its occupancy calculator.
pub fn resident_blocks(architecture: Architecture, threads: u32, registers: u32, shared_bytes: u64) -> u32 {
    let limits = Limits::of(architecture);
    // Registers are given to warps, 256 at a time, in each of a multiprocessor's four quarters.
    let of_warp = (registers.max(1) * 32).next_multiple_of(256);
    let warps = 4 * ((64 << 10) / 4 / of_warp);
    let by_registers = warps / threads.div_ceil(32).next_multiple_of(4).max(1);
    let by_threads = limits.threads / threads.next_multiple_of(32).max(1);
    let of_block =
        shared_bytes.saturating_add(limits.reserved_shared_bytes).next_multiple_of(limits.shared_unit);
    let by_shared = limits.shared_bytes.checked_div(of_block).unwrap_or(u64::MAX);
    let by_shared = u32::try_from(by_shared).unwrap_or(u32::MAX);
    by_registers.min(by_threads).min(by_shared).min(limits.blocks)
}

/// Multiprocessors of the usual data-centre GPU of an architecture. What a communicator has of them decides how
/// many FIFOs its ranks have, up to 66.
pub fn usual_multiprocessors(architecture: Architecture) -> u32 {
    match architecture.number() {
        ..75 => 80,
        75..80 => 40,
        80..86 => 108,
        86..89 => 84,
        89 => 142,
        90..100 => 132,
        100..110 => 148,
        110..120 => 20,
        120.. => 188,
    }
}

/// What a multiprocessor has.
struct Limits {
    threads: u32,
    blocks: u32,
    shared_bytes: u64,
    /// Of each block, the system's own.
    reserved_shared_bytes: u64,
    shared_unit: u64,
}

impl Limits {
    fn of(architecture: Architecture) -> Self {
        let (threads, blocks, shared_kib) = match architecture.number() {
            ..75 => (2048, 32, 96),
            75..80 => (1024, 16, 64),
            80..86 => (2048, 32, 164),
            87 => (1536, 16, 164),
            86 | 88 => (1536, 16, 100),
            89 => (1536, 24, 100),
            90..110 => (2048, 32, 228),
            110..120 => (1536, 24, 228),
            120.. => (1536, 24, 100),
        };
        let is_recent = architecture.number() >= 80;
        Self {
            threads,
            blocks,
            shared_bytes: shared_kib << 10,
            reserved_shared_bytes: if is_recent { 1 << 10 } else { 0 },
            shared_unit: if is_recent { 128 } else { 256 },
        }
    }
}

#[cfg(test)]
#[path = "offline_tests.rs"]
mod tests;
