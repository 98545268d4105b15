//! What a schedule must have computed at its end: every output chunk from the right contributions, each
//! once, and in one order on every rank; for a barrier, that nobody leaves before all have come.
//!
//! A part of the verifier on schedules, which runs it after a run without other mistakes.

use super::super::machine::LocationId;
use super::super::postcondition::expected_input;
use super::super::value::{Content, Input, Value};
use super::{Run, count, has_inout, list_ranks, ranks_in_word, same_chunk};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::entity::Rank;
use crate::schedule::{BufferKind, Order};
use crate::types::Collective;
use cranelift_entity::EntityRef;
use std::collections::BTreeMap;

impl Run<'_> {
    pub(super) fn check_results(&mut self) {
        if self.schedule.collective == Collective::Barrier {
            self.check_barrier();
            return;
        }
        let has_inout = has_inout(self.schedule);
        let mut trees: BTreeMap<u32, (Value, Rank)> = BTreeMap::new();
        for rank in (0..self.schedule.ranks).map(Rank::from_u32) {
            for chunk in self.schedule.output_chunks(rank) {
                if self.is_full() {
                    return;
                }
                let location = self.user(rank, chunk, !has_inout);
                let value = self.machine.value(location);
                if self.check_result(rank, chunk, location, value) && self.schedule.collective.reduces() {
                    let (first, of) = *trees.entry(chunk).or_insert((value, rank));
                    if first != value && self.schedule.order == Order::Same {
                        self.report_order(chunk, (rank, location, value), (of, first));
                    }
                }
            }
        }
    }

    fn check_barrier(&mut self) {
        for rank in (0..self.schedule.ranks).map(Rank::from_u32) {
            if self.is_full() {
                return;
            }
            for other in (0..self.schedule.ranks).map(Rank::from_u32).filter(|o| *o != rank) {
                let heard = self.lanes_of[rank.index()]
                    .iter()
                    .any(|&x| self.lanes_of[other.index()].iter().any(|&of| self.machine.has_heard(x, of)));
                if !heard {
                    let span = self.lanes_of[rank.index()]
                        .first()
                        .map_or_else(Span::default, |&l| self.schedule.lanes[l].span);
                    self.complain(
                        Diagnostic::new(
                            Code("V0403"),
                            format!("{rank} may leave the barrier before {other} has entered it"),
                            span,
                            format!("no op of {rank} happens after one of {other}"),
                        )
                        .help(format!(
                            "let {rank} wait, directly or through others, for a signal that {other} sends"
                        )),
                    );
                }
            }
        }
    }

    fn check_result(&mut self, rank: Rank, chunk: u32, location: LocationId, value: Value) -> bool {
        let expected = expected_input(self.schedule, rank, chunk);
        let right = match expected {
            Some(input) => self.machine.values.input(input) == value,
            None => {
                let of = self.machine.values.input(Input { rank: 0, chunk, tile: 0, launch: 0 });
                same_chunk(&self.machine, of, value)
                    && self.machine.values.complete(value, self.schedule.ranks)
            }
        };
        if right {
            return true;
        }
        if matches!(self.machine.values.content(value), Content::Twice { .. } | Content::Mixed) {
            // Said where it was made.
            return false;
        }
        let wanted = match expected {
            Some(input) => format!("r{}[{}]", input.rank, input.chunk),
            None => format!("chunk {chunk} of r0 to r{}, each once", self.schedule.ranks - 1),
        };
        let (_, what) = self.describe_location(location);
        let (span, label) = match self.machine.writer(location) {
            Some(op) => (self.span(op), format!("{} wrote it last", self.name(op))),
            None => (self.output_span(), "nobody writes it".to_owned()),
        };
        let reason = self.wrong_result(expected, chunk, value);
        self.complain(
            Diagnostic::new(
                Code("V0401"),
                format!("{rank}'s {what} ends with the wrong content: {reason}"),
                span,
                label,
            )
            .note(format!("expected {wanted}"))
            .note(format!("found    {}", self.machine.values.describe(value))),
        );
        false
    }

    /// What a result lacks, or holds instead.
    fn wrong_result(&self, expected: Option<Input>, chunk: u32, value: Value) -> String {
        match (self.machine.values.content(value), expected) {
            (Content::Parts { of, ranks }, None) if of.chunk == chunk => {
                let missing: Vec<u64> = (0..ranks.len() as u32)
                    .map(|word| !ranks[word as usize] & ranks_in_word(self.schedule.ranks, word))
                    .collect();
                let (verb, plural) = if count(&missing) == 1 { ("is", "") } else { ("are", "s") };
                format!("the contribution{plural} of {} {verb} missing", list_ranks(&missing))
            }
            (Content::Parts { of, .. }, None) => format!("it is of chunk {}, not {chunk}", of.chunk),
            (Content::Parts { .. }, Some(input)) => {
                format!("{} instead of r{}[{}]", self.machine.values.describe(value), input.rank, input.chunk)
            }
            (Content::Undefined | Content::Twice { .. } | Content::Mixed, _) => {
                "nothing is ever written there".to_owned()
            }
        }
    }

    fn output_span(&self) -> Span {
        let user =
            |b: &&crate::schedule::BufferDecl| matches!(b.kind, BufferKind::Output | BufferKind::Inout);
        self.schedule.buffers.values().find(user).map_or_else(Span::default, |b| b.span)
    }

    fn report_order(&mut self, chunk: u32, at: (Rank, LocationId, Value), first: (Rank, Value)) {
        let span = self.machine.writer(at.1).map_or_else(Span::default, |op| self.span(op));
        self.complain(
            Diagnostic::new(
                Code("V0402"),
                format!("{} and {} reduce chunk {chunk} in different orders", first.0, at.0),
                span,
                "the last bits of the result may differ between ranks",
            )
            .note(format!("{}: {}", first.0, self.machine.values.describe(first.1)))
            .note(format!("{}: {}", at.0, self.machine.values.describe(at.2)))
            .help("reduce in one order on every rank, or say `{ order = any }` after the collective"),
        );
    }
}
