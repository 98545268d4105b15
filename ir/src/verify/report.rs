//! What both verifiers do with mistakes: put them in order, drop repetitions, find who waits for whom.

use super::MAX_DIAGNOSTICS;
use crate::diagnostic::{Diagnostic, Span};
use crate::entity::Lane;
use std::collections::{BTreeMap, HashSet};

/// Sorts by place, drops repetitions of one mistake over many ranks, and cuts the list.
pub(super) fn finish(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    found.sort_by_key(|d| (d.span(), d.code));
    let mut kept: Vec<(Diagnostic, usize)> = Vec::new();
    for diagnostic in found {
        let spans = |d: &Diagnostic| d.labels.iter().map(|l| l.span).collect::<Vec<_>>();
        let same = |d: &Diagnostic| {
            let same_place = d.span() != Span::default() || d.message == diagnostic.message;
            d.code == diagnostic.code && spans(d) == spans(&diagnostic) && same_place
        };
        match kept.iter_mut().find(|(d, _)| same(d)) {
            Some((_, more)) => *more += 1,
            None => kept.push((diagnostic, 0)),
        }
    }
    let left_off = kept.len().saturating_sub(MAX_DIAGNOSTICS);
    kept.truncate(MAX_DIAGNOSTICS);
    let mut found: Vec<Diagnostic> = kept
        .into_iter()
        .map(|(d, more)| match more {
            0 => d,
            1 => d.note("the same happens once more, on other ranks or in later steps"),
            _ => d.note(format!("the same happens {more} more times, on other ranks or in later steps")),
        })
        .collect();
    if left_off > 0 {
        let last = found.last_mut().expect("the list was longer than its bound");
        last.notes.push(format!("{left_off} further mistakes are not listed"));
    }
    found
}

/// The cycles among blocked lanes, each once, starting at its smallest lane.
pub(super) fn cycles<L: Copy>(
    blocked: &BTreeMap<Lane, L>,
    sender: impl Fn(L) -> Option<Lane>,
) -> Vec<Vec<Lane>> {
    let mut done: HashSet<Lane> = HashSet::new();
    let mut cycles = Vec::new();
    for &start in blocked.keys() {
        let mut path: Vec<Lane> = Vec::new();
        let mut lane = Some(start);
        while let Some(at) = lane {
            if !done.insert(at) {
                if let Some(from) = path.iter().position(|&l| l == at) {
                    let mut cycle = path.split_off(from);
                    let smallest = (0..cycle.len()).min_by_key(|&i| cycle[i]).expect("a cycle is not empty");
                    cycle.rotate_left(smallest);
                    cycles.push(cycle);
                }
                break;
            }
            path.push(at);
            lane = blocked.get(&at).and_then(|&l| sender(l)).filter(|next| blocked.contains_key(next));
        }
    }
    cycles
}
