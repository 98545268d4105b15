//! What is checked of a schedule that is too large to be proved whole: its form, that it ends, and what it computes
//! in one order of its ops. No maker of [`Verified`](super::Verified): races, lifetimes and the order of reductions
//! need clocks, which take as many words as there are pairs of lanes. Time and memory are linear in ops and chunks.
//!
//! A value is a number: the sum of a number for every contribution, which stands for nothing else. Sums that are equal
//! hold the same contributions as often, but for chances of one in 2^64 that no program can aim at by accident.

use super::bounds::{self, MAX_LOCATIONS};
use super::postcondition::expected_input;
use super::report::finish;
use super::schedule_rules::Ends;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::entity::{Lane, Link, Rank};
use crate::schedule::{BufferKind, OpKind, Place, Schedule, Slice};
use crate::types::Collective;
use cranelift_entity::{EntityRef, SecondaryMap};

/// Checks the form of a schedule (V01 and V02 but for V0105 to V0107 and V0206, which a run shows), and runs it once:
/// every lane must end, every signal be waited for, and every output hold what the collective prescribes.
///
/// Errors: one diagnostic per mistake.
pub fn outline(schedule: &Schedule) -> Result<(), Vec<Diagnostic>> {
    let ends = Ends::check(schedule)?;
    let mut memory = Memory::new(schedule).map_err(|diagnostic| vec![diagnostic])?;
    let mut signals: SecondaryMap<Link, u64> = SecondaryMap::new();
    let mut waiting: SecondaryMap<Link, Option<Lane>> = SecondaryMap::new();
    let mut next = vec![0; schedule.lanes.len()];
    let mut ready: Vec<Lane> = schedule.lanes.keys().rev().collect();
    while let Some(lane) = ready.pop() {
        let decl = &schedule.lanes[lane];
        let rank = decl.name.rank;
        while let Some(op) = decl.ops.get(next[lane.index()]) {
            match op.kind {
                OpKind::Signal { link } => {
                    signals[link] += 1;
                    ready.extend(waiting[link].take());
                }
                OpKind::Wait { link } if signals[link] == 0 => {
                    waiting[link] = Some(lane);
                    break;
                }
                OpKind::Wait { link } => signals[link] -= 1,
                OpKind::Put { src, peer, dst, .. } => memory.copy((rank, src), (peer, dst)),
                OpKind::Get { peer, src, dst, .. } => memory.copy((peer, src), (rank, dst)),
                OpKind::Copy { dst, src } => memory.copy((rank, src), (rank, dst)),
                OpKind::Reduce { dst, src } => memory.add((rank, src), (rank, dst)),
            }
            next[lane.index()] += 1;
        }
    }
    let mut found = Vec::new();
    for (link, lane) in schedule.links.keys().filter_map(|link| Some((link, waiting[link]?))) {
        let decl = &schedule.lanes[lane];
        let sender = ends.from[link].filter(|of| next[of.index()] < schedule.lanes[*of].ops.len());
        let (code, what) = match sender {
            Some(of) => (
                "V0501",
                format!("deadlock: {} waits on {link}, and {} too", decl.name, schedule.lanes[of].name),
            ),
            None => ("V0502", format!("{} waits on {link} for a signal that never comes", decl.name)),
        };
        let op = &decl.ops[next[lane.index()]];
        found.push(Diagnostic::new(Code(code), what, op.span, "waits here"));
    }
    for link in schedule.links.keys().filter(|link| signals[*link] > 0) {
        let what = format!("{link} is signalled {} times more than it is waited for", signals[link]);
        found.push(Diagnostic::new(Code("V0105"), what, schedule.links[link].span, "the link"));
    }
    // What is computed is news only where everything has run.
    if found.is_empty() {
        found.extend(memory.wrong_results());
    }
    if found.is_empty() { Ok(()) } else { Err(finish(found)) }
}

/// Every rank's chunks.
struct Memory<'a> {
    schedule: &'a Schedule,
    has_inout: bool,
    /// Where each buffer of scratch starts.
    scratch: Vec<usize>,
    per_rank: usize,
    values: Vec<u64>,
}

impl<'a> Memory<'a> {
    fn new(schedule: &'a Schedule) -> Result<Self, Diagnostic> {
        let has_inout = schedule.buffers.values().any(|b| b.kind == BufferKind::Inout);
        let mut per_rank = schedule.chunks as usize * if has_inout { 1 } else { 2 };
        let mut scratch = Vec::new();
        for buffer in schedule.buffers.values() {
            scratch.push(per_rank);
            if buffer.kind == BufferKind::Scratch {
                per_rank += buffer.chunks as usize;
            }
        }
        let all = per_rank as u64 * u64::from(schedule.ranks);
        if all > MAX_LOCATIONS {
            return Err(bounds::too_large(format!("{all} pieces of memory; the bound is {MAX_LOCATIONS}")));
        }
        // What nobody has written is like nothing else, so that it spoils every result that it gets into.
        let values = (0..all).map(|at| mixed(at | 1 << 63)).collect();
        let mut memory = Self { schedule, has_inout, scratch, per_rank, values };
        for rank in (0..schedule.ranks).map(Rank::from_u32) {
            for chunk in schedule.input_chunks(rank) {
                let at = memory.start(rank) + chunk as usize;
                memory.values[at] = contribution(rank.as_u32(), chunk);
            }
        }
        Ok(memory)
    }

    fn start(&self, rank: Rank) -> usize {
        rank.index() * self.per_rank
    }

    fn at(&self, (rank, slice): (Rank, Slice)) -> usize {
        let within = match self.schedule.place(rank, slice) {
            Place::Input(chunk) | Place::Inout(chunk) => chunk as usize,
            Place::Output(chunk) => self.schedule.chunks as usize + chunk as usize,
            Place::Scratch(buffer, chunk) => self.scratch[buffer.index()] + chunk as usize,
        };
        self.start(rank) + within
    }

    fn copy(&mut self, from: (Rank, Slice), to: (Rank, Slice)) {
        let (from, to) = (self.at(from), self.at(to));
        self.values[to] = self.values[from];
    }

    fn add(&mut self, from: (Rank, Slice), to: (Rank, Slice)) {
        let (from, to) = (self.at(from), self.at(to));
        self.values[to] = self.values[to].wrapping_add(self.values[from]);
    }

    fn wrong_results(&self) -> Vec<Diagnostic> {
        let schedule = self.schedule;
        if schedule.collective == Collective::Barrier {
            return Vec::new();
        }
        let all =
            |chunk| (0..schedule.ranks).fold(0u64, |sum, rank| sum.wrapping_add(contribution(rank, chunk)));
        let sums: Vec<u64> =
            if schedule.collective.reduces() { (0..schedule.chunks).map(all).collect() } else { Vec::new() };
        let mut found = Vec::new();
        for rank in (0..schedule.ranks).map(Rank::from_u32) {
            for chunk in schedule.output_chunks(rank) {
                let side = if self.has_inout { 0 } else { schedule.chunks as usize };
                let value = self.values[self.start(rank) + side + chunk as usize];
                let expected = match expected_input(schedule, rank, chunk) {
                    Some(input) => contribution(input.rank, input.chunk),
                    None => sums[chunk as usize],
                };
                if value != expected && found.len() < super::MAX_DIAGNOSTICS {
                    let what =
                        format!("chunk {chunk} of {rank}'s output does not end with each contribution once");
                    found.push(Diagnostic::new(
                        Code("V0401"),
                        what,
                        Span::default(),
                        "in the whole schedule",
                    ));
                }
            }
        }
        found
    }
}

/// A number for a rank's input chunk.
fn contribution(rank: u32, chunk: u32) -> u64 {
    mixed(u64::from(rank) << 32 | u64::from(chunk))
}

/// A number for a number; neighbours have nothing in common. The finaliser of SplitMix64.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
