//! Who has heard of whom within a launch: what owners of buffers, epoch zones and barriers need.
//!
//! A peer's input and output belong to a launch between that peer's first and last op; a zone, and a barrier, ask that
//! every rank hears from every rank.

use super::bounds::MAX_FOUND;
use super::kernel::{Run, wrong};
use super::machine::OpRef;
use crate::diagnostic::Diagnostic;
use crate::entity::{Lane, Rank};
use cranelift_entity::EntityRef;

impl Run<'_> {
    /// A peer's input and output belong to the launch between that peer's first and last op.
    pub(super) fn enter_peer(&mut self, at: OpRef, owner: Rank, use_of_it: &'static str) {
        let is_in = |&l: &Lane| self.machine.seen(at.lane, l) > self.started[l.index()];
        if !self.lanes_of[owner.index()].iter().any(is_in) {
            let message = format!("{owner}'s {use_of_it}, and {owner} may not have entered the launch");
            self.complain("V0304", at, message);
        }
        let tick = self.machine.seen(at.lane, at.lane);
        self.peer_uses.push((owner, at, tick, use_of_it));
    }

    pub(super) fn check_owners_stay(&mut self) {
        for (owner, at, tick, use_of_it) in std::mem::take(&mut self.peer_uses) {
            let sees = |&l: &Lane| self.machine.seen(l, at.lane) >= tick;
            if !self.lanes_of[owner.index()].iter().any(sees) {
                let message = format!("{owner}'s {use_of_it}, and {owner} may leave before that is done");
                self.complain("V0305", at, message);
            }
        }
    }

    pub(super) fn check_synchronising(&mut self) {
        self.each_unheard(|rank, other| {
            wrong("V0602", format!("r{rank} may end the launch before r{other} has started it"))
                .note("two parities of an epoch zone are enough only if every launch hears from every rank")
                .help(format!("let r{rank} wait for an empty message from r{other}, or use protocol simple"))
        });
    }

    pub(super) fn check_barrier(&mut self) {
        self.each_unheard(|rank, other| {
            wrong("V0403", format!("r{rank} may leave the barrier before r{other} has entered it"))
        });
    }

    /// Complains of every pair of ranks of which the first has not heard from the second.
    fn each_unheard(&mut self, complaint: impl Fn(usize, usize) -> Diagnostic) {
        let ranks = self.plan.ranks as usize;
        for rank in 0..ranks {
            if self.found.len() >= MAX_FOUND {
                return;
            }
            for other in (0..ranks).filter(|&other| other != rank) {
                let hears = |&x: &Lane| self.lanes_of[other].iter().any(|&of| self.machine.has_heard(x, of));
                if !self.lanes_of[rank].iter().any(hears) {
                    self.found.push(complaint(rank, other));
                }
            }
        }
    }
}
