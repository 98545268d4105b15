//! Mistakes of instances: the first with its values, the others counted.

use super::resolve::{Node, Slot, Value};
use super::{Expansion, Stop};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::text::{MAX_DIAGNOSTICS, in_order};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// How many values a label shows.
const MAX_VALUES: usize = 8;

/// What is wrong so far.
#[derive(Default, Debug)]
pub(super) struct Reports {
    diagnostics: Vec<Diagnostic>,
    /// For each kind and place: which diagnostic, and how many instances came after the first.
    places: HashMap<(Code, Span), (usize, u64)>,
}

impl Reports {
    pub(super) fn is_empty(&self) -> bool {
        self.diagnostics.is_empty()
    }

    /// Adds a mistake, or counts it if its place has one of its kind already.
    pub(super) fn add(&mut self, diagnostic: Diagnostic) {
        if self.first(diagnostic.code, diagnostic.span()) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Whether a mistake is the first of its kind and place, and worth describing. Counts it if not.
    fn first(&mut self, code: Code, span: Span) -> bool {
        let full = self.diagnostics.len() > MAX_DIAGNOSTICS;
        let index = self.diagnostics.len();
        match self.places.entry((code, span)) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().1 += 1;
                false
            }
            Entry::Vacant(_) if full => false,
            Entry::Vacant(entry) => {
                entry.insert((index, 0));
                true
            }
        }
    }

    /// Everything that is wrong, in the order of the text.
    pub(super) fn finish(self) -> Vec<Diagnostic> {
        let Self { mut diagnostics, places } = self;
        for (index, more) in places.into_values().filter(|(_, more)| *more > 0) {
            let times = if more == 1 { "once".to_owned() } else { format!("{more} times") };
            diagnostics[index].notes.push(format!("the same happens {times} more"));
        }
        in_order(diagnostics)
    }
}

impl Expansion<'_, '_> {
    /// Reports that an instance failed. `describe` makes the message and the label; it gets a function
    /// that puts the values at hand, and those used by `values`, in front of a label.
    pub(super) fn mistake(
        &mut self,
        code: Code,
        span: Span,
        values: &[Value],
        describe: impl FnOnce(&dyn Fn(String) -> String) -> (String, String),
    ) -> Stop {
        // Counting takes longer than a step, and is bounded with the steps.
        self.work += 16;
        if self.reports.first(code, span) {
            let (message, label) = describe(&|label| self.situation(values, label));
            self.reports.diagnostics.push(Diagnostic::new(code, message, span, label));
        }
        Stop::Instance
    }

    /// `label` with the values at hand in front: those of the loops that are running, and of the names
    /// in `values`.
    pub(super) fn situation(&self, values: &[Value], label: String) -> String {
        let mut slots: Vec<Slot> = self.running.clone();
        for value in values {
            for node in &self.resolved.nodes.nodes[value.first as usize..=value.last as usize] {
                match node {
                    Node::Slot(slot) if !slots.contains(slot) => slots.push(*slot),
                    _ => {}
                }
                if slots.len() > MAX_VALUES {
                    break;
                }
            }
        }
        slots.truncate(MAX_VALUES);
        if slots.is_empty() {
            return label;
        }
        let shown: Vec<String> = slots
            .iter()
            .map(|s| format!("{} = {}", self.resolved.names[*s as usize], self.slots[*s as usize]))
            .collect();
        format!("here {}: {label}", shown.join(", "))
    }

    /// Where an expression stands.
    pub(super) fn span(&self, value: Value) -> Span {
        self.resolved.nodes.spans[value.last as usize]
    }
}
