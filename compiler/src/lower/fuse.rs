//! Fusing: neighbouring ops of a lane become one move.
//!
//! | pass | before | after |
//! | --- | --- | --- |
//! | land | `move acc <- l.slot; signal l.free; …; move out <- in + acc` | `move out <- in + l.slot; signal l.free` |
//! | | `move acc <- r1.input; move out <- in + acc` | `move out <- in + r1.input` |
//! | chain | `move acc <- a + b; …; move out <- acc + c` | `move out <- a + b + c` |
//! | forward | `move out <- …; …; wait m.free; move m.slot <- out; signal m.full` | `wait m.free; move out, m.slot <- …; signal m.full` |
//! | | `move acc <- a + b; move out <- acc` | `move acc, out <- a + b` |
//! | fan out | `move m.slot <- in; …; move n.slot <- in` | `move m.slot, n.slot <- in` |
//! | drop | `move acc, m.slot <- …` with nobody reading `acc` | `move m.slot <- …` |
//!
//! Only memory that one lane alone touches is forwarded through or dropped. Waits move back and
//! signals move on with their moves, which can only make a plan wait longer; the verifier decides
//! whether it still ends.

use super::stage::compact_scratch;
use ringsmith_ir::entity::{Link, OpAddress};
use ringsmith_ir::kernel_plan::{Counter, KernelOp, KernelOpKind, KernelPlan, Place, Source};
use std::collections::{BTreeMap, BTreeSet};

/// Fuses every lane.
pub(super) fn fuse(mut plan: KernelPlan) -> KernelPlan {
    let shared = shared_places(&plan);
    for decl in plan.lanes.values_mut() {
        let rank = decl.name.rank.as_u32();
        let private = |place: Place| {
            matches!(place, Place::Scratch(..) | Place::Output(_)) && !shared.contains(&(rank, place))
        };
        let mut ops = LaneOps { ops: std::mem::take(&mut decl.ops), private: &private };
        ops.land();
        ops.chain();
        ops.forward();
        ops.fan_out();
        ops.drop_dead();
        decl.ops = ops.ops;
    }
    tidy(plan)
}

/// What every plan gets, fused or not: unused scratch goes.
pub(super) fn tidy(mut plan: KernelPlan) -> KernelPlan {
    compact_scratch(&mut plan);
    plan
}

/// Memory that more than one lane of a rank touches.
fn shared_places(plan: &KernelPlan) -> BTreeSet<(u32, Place)> {
    let mut first: BTreeMap<(u32, Place), u32> = BTreeMap::new();
    let mut shared = BTreeSet::new();
    for decl in plan.lanes.values() {
        for op in &decl.ops {
            let KernelOpKind::Move { dst, src, .. } = &op.kind else { continue };
            for place in dst.iter().copied().chain(src.iter().map(|s| s.place)) {
                if matches!(place, Place::Slot(_) | Place::Cell(..)) {
                    continue;
                }
                let key = (decl.name.rank.as_u32(), place);
                if *first.entry(key).or_insert(decl.name.index) != decl.name.index {
                    shared.insert(key);
                }
            }
        }
    }
    shared
}

fn reads(op: &KernelOp, place: Place) -> usize {
    match &op.kind {
        KernelOpKind::Move { src, .. } => src.iter().filter(|s| s.place == place).count(),
        KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => 0,
    }
}

fn writes(op: &KernelOp, place: Place) -> bool {
    match &op.kind {
        KernelOpKind::Move { dst, .. } => dst.contains(&place),
        KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => false,
    }
}

/// Whether an op takes part in receiving on a FIFO link.
fn receives(op: &KernelOp, link: Link) -> bool {
    match &op.kind {
        KernelOpKind::Wait(Counter::Full(l)) | KernelOpKind::Signal(Counter::Free(l)) => *l == link,
        KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => false,
        KernelOpKind::Move { src, .. } => src.iter().any(|s| s.place == Place::Slot(link)),
    }
}

/// Whether an op takes part in sending on a link.
fn sends(op: &KernelOp, link: Link) -> bool {
    match &op.kind {
        KernelOpKind::Wait(Counter::Free(l))
        | KernelOpKind::Signal(Counter::Full(l) | Counter::Cell(l, _)) => *l == link,
        KernelOpKind::Wait(_) | KernelOpKind::Signal(_) => false,
        KernelOpKind::Move { dst, .. } => {
            dst.iter().any(|p| matches!(p, Place::Slot(l) | Place::Cell(l, _) if *l == link))
        }
    }
}

/// Whether an op neither waits nor signals: a peer's input may be read behind it as well as before.
fn is_move(op: &KernelOp) -> bool {
    matches!(op.kind, KernelOpKind::Move { .. })
}

fn is(op: &KernelOp, kind: &KernelOpKind) -> bool {
    op.kind == *kind
}

struct LaneOps<'a> {
    ops: Vec<KernelOp>,
    /// Whether this lane alone touches a place.
    private: &'a dyn Fn(Place) -> bool,
}

impl LaneOps<'_> {
    /// The next op after `at` that reads or writes `place`.
    fn next_access(&self, at: usize, place: Place) -> Option<usize> {
        (at + 1..self.ops.len()).find(|&i| reads(&self.ops[i], place) > 0 || writes(&self.ops[i], place))
    }

    /// Whether nobody reads `place` after op `at` before it is written again.
    fn dead_after(&self, at: usize, place: Place) -> bool {
        match self.next_access(at, place) {
            Some(next) => reads(&self.ops[next], place) == 0,
            None => matches!(place, Place::Scratch(..)),
        }
    }

    fn absorb_origin(&mut self, into: usize, origin: &[OpAddress]) {
        for address in origin {
            if !self.ops[into].origin.contains(address) {
                self.ops[into].origin.push(*address);
            }
        }
        self.ops[into].origin.sort_unstable();
    }

    /// A landing in scratch that one later move reads is read out of the slot instead.
    fn land(&mut self) {
        let mut at = 0;
        while at < self.ops.len() {
            if !self.try_land(at) {
                at += 1;
            }
        }
    }

    fn try_land(&mut self, at: usize) -> bool {
        let KernelOpKind::Move { dst, src, post: false, .. } = &self.ops[at].kind else { return false };
        let ([landing @ Place::Scratch(..)], [from]) = (&dst[..], &src[..]) else { return false };
        let (landing, from) = (*landing, *from);
        let Some(user) = self.next_access(at, landing) else { return false };
        let dead = writes(&self.ops[user], landing) || self.dead_after(user, landing);
        if !(self.private)(landing) || reads(&self.ops[user], landing) != 1 || !dead {
            return false;
        }
        let free = match from.place {
            Place::Slot(link) => {
                let free = KernelOpKind::Signal(Counter::Free(link));
                let others = at + 2..user;
                if !self.ops.get(at + 1).is_some_and(|op| is(op, &free))
                    || others.clone().any(|i| receives(&self.ops[i], link))
                    || receives(&self.ops[user], link)
                {
                    return false;
                }
                Some(self.ops[at + 1].clone())
            }
            Place::Cell(..) => None,
            Place::PeerInput(..) if (at..user).all(|i| is_move(&self.ops[i])) => None,
            Place::Input(_)
            | Place::Output(_)
            | Place::PeerInput(..)
            | Place::PeerOutput(..)
            | Place::Scratch(..) => return false,
        };
        let origin = std::mem::take(&mut self.ops[at].origin);
        if let KernelOpKind::Move { src, .. } = &mut self.ops[user].kind {
            let source = src.iter_mut().find(|s| s.place == landing).expect("the user reads it once");
            *source = from;
        }
        self.absorb_origin(user, &origin);
        match free {
            Some(free) => {
                self.ops.insert(user + 1, free);
                self.ops.drain(at..at + 2);
            }
            None => {
                self.ops.remove(at);
            }
        }
        true
    }

    /// A move whose only result is the first term of the next move joins it.
    fn chain(&mut self) {
        let mut at = 0;
        while at < self.ops.len() {
            if !self.try_chain(at) {
                at += 1;
            }
        }
    }

    fn try_chain(&mut self, at: usize) -> bool {
        let KernelOpKind::Move { dst, src, post: false, .. } = &self.ops[at].kind else { return false };
        let ([acc], terms) = (&dst[..], src.clone()) else { return false };
        let acc = *acc;
        if !(self.private)(acc) {
            return false;
        }
        let Some(user) = self.next_access(at, acc) else { return false };
        let dead = writes(&self.ops[user], acc) || self.dead_after(user, acc);
        if reads(&self.ops[user], acc) != 1 || !dead {
            return false;
        }
        let KernelOpKind::Move { src: user_terms, .. } = &self.ops[user].kind else { return false };
        let position = user_terms.iter().position(|s| s.place == acc).expect("the user reads it");
        if position != 0 && !(position == 1 && user_terms.len() == 2) {
            return false;
        }
        let between = at + 1..user;
        let overwritten = |place: Place| between.clone().any(|i| writes(&self.ops[i], place));
        let mut frees = Vec::new();
        for term in &terms {
            match term.place {
                Place::Slot(link) => {
                    let touching: Vec<usize> =
                        between.clone().filter(|&i| receives(&self.ops[i], link)).collect();
                    let free = KernelOpKind::Signal(Counter::Free(link));
                    match touching[..] {
                        [only] if is(&self.ops[only], &free) => frees.push(only),
                        _ => return false,
                    }
                }
                Place::Cell(..) => {}
                Place::PeerInput(..) if !between.clone().all(|i| is_move(&self.ops[i])) => return false,
                place if overwritten(place) => return false,
                _ => {}
            }
        }
        self.join_chain(at, user, position, terms, frees);
        true
    }

    fn join_chain(
        &mut self,
        at: usize,
        user: usize,
        position: usize,
        terms: Vec<Source>,
        mut frees: Vec<usize>,
    ) {
        let origin = std::mem::take(&mut self.ops[at].origin);
        if let KernelOpKind::Move { src, .. } = &mut self.ops[user].kind {
            let mut rest = std::mem::take(src);
            rest.remove(position);
            *src = terms.into_iter().chain(rest).collect();
        }
        self.absorb_origin(user, &origin);
        frees.sort_unstable();
        let moved: Vec<KernelOp> = frees.iter().map(|&i| self.ops[i].clone()).collect();
        self.ops.splice(user + 1..user + 1, moved);
        for &free in frees.iter().rev() {
            self.ops.remove(free);
        }
        self.ops.remove(at);
    }

    /// A copy of what a move has just made is made by that move too.
    fn forward(&mut self) {
        let mut at = 0;
        while at < self.ops.len() {
            match self.copy_of(at) {
                Some(send) => at = self.join_send(at, send),
                None => at += 1,
            }
        }
    }

    /// The next op that copies a destination of the move at `at`, if it may join it.
    fn copy_of(&self, at: usize) -> Option<usize> {
        let KernelOpKind::Move { dst, .. } = &self.ops[at].kind else { return None };
        let made = dst.iter().copied().filter(|p| matches!(p, Place::Scratch(..) | Place::Output(_)));
        made.filter_map(|made| {
            let copy = self.next_access(at, made)?;
            let KernelOpKind::Move { dst: to, src, post: false, .. } = &self.ops[copy].kind else {
                return None;
            };
            let is_copy = matches!(src[..], [Source { place, pre: false }] if place == made);
            (is_copy && self.may_write_early(at, copy, to) && self.may_join(at, copy)).then_some(copy)
        })
        .min()
    }

    /// Whether the local places of `to` may be written at `at` instead of at `later`.
    fn may_write_early(&self, at: usize, later: usize, to: &[Place]) -> bool {
        to.iter().all(|place| match place {
            Place::Slot(_) | Place::Cell(..) => true,
            local => {
                let touches = |i: usize| reads(&self.ops[i], *local) > 0 || writes(&self.ops[i], *local);
                (self.private)(*local) && !writes(&self.ops[at], *local) && !(at + 1..later).any(touches)
            }
        })
    }

    /// Whether the send at `send` may be made at `at`: nothing between them is part of its links, and
    /// no lane waits in between for anything but room.
    fn may_join(&self, at: usize, send: usize) -> bool {
        let KernelOpKind::Move { dst: to, .. } = &self.ops[send].kind else { return false };
        let links: Vec<Link> = to
            .iter()
            .filter_map(|p| match p {
                Place::Slot(link) | Place::Cell(link, _) => Some(*link),
                Place::Input(_)
                | Place::Output(_)
                | Place::PeerInput(..)
                | Place::PeerOutput(..)
                | Place::Scratch(..) => None,
            })
            .collect();
        (at..send).all(|i| {
            let op = &self.ops[i];
            let room = matches!(op.kind, KernelOpKind::Wait(Counter::Free(l)) if links.contains(&l));
            room || !links.iter().any(|&l| sends(op, l))
        })
    }

    /// Joins the send at `send` to the move at `at`: its waits go before, its signals after. Returns
    /// where the move is now.
    fn join_send(&mut self, at: usize, send: usize) -> usize {
        let KernelOpKind::Move { dst: to, .. } = self.ops[send].kind.clone() else {
            unreachable!("the send is a move")
        };
        let origin = self.ops[send].origin.clone();
        let mut waits = Vec::new();
        let mut signals = Vec::new();
        let mut gone = vec![send];
        for place in &to {
            let Place::Slot(link) = *place else { continue };
            let wait = KernelOpKind::Wait(Counter::Free(link));
            let signal = KernelOpKind::Signal(Counter::Full(link));
            if let Some(i) = (at..send).find(|&i| is(&self.ops[i], &wait)) {
                waits.push(self.ops[i].clone());
                gone.push(i);
            }
            if let Some(i) = (send..self.ops.len()).find(|&i| is(&self.ops[i], &signal)) {
                signals.push(self.ops[i].clone());
                gone.push(i);
            }
        }
        if let KernelOpKind::Move { dst, .. } = &mut self.ops[at].kind {
            dst.extend(to);
        }
        self.absorb_origin(at, &origin);
        gone.sort_unstable();
        gone.iter().rev().for_each(|&i| {
            self.ops.remove(i);
        });
        let moved = at + waits.len();
        self.ops.splice(at + 1..at + 1, signals);
        self.ops.splice(at..at, waits);
        moved
    }

    /// Copies of one unchanged source become one move.
    fn fan_out(&mut self) {
        let mut at = 0;
        while at < self.ops.len() {
            match self.same_source(at) {
                Some(other) => at = self.join_send(at, other),
                None => at += 1,
            }
        }
    }

    fn same_source(&self, at: usize) -> Option<usize> {
        let KernelOpKind::Move { src, post, .. } = &self.ops[at].kind else { return None };
        let [source] = src[..] else { return None };
        if !matches!(source.place, Place::Input(_) | Place::Output(_) | Place::Scratch(..)) {
            return None;
        }
        let same = |op: &KernelOp| matches!(&op.kind, KernelOpKind::Move { src: s, post: p, .. } if s[..] == [source] && p == post);
        let other = (at + 1..self.ops.len())
            .take_while(|&i| !writes(&self.ops[i], source.place))
            .find(|&i| same(&self.ops[i]))?;
        // Waiting for messages in between would be put off behind this send.
        let waits = (at + 1..other).any(|i| {
            matches!(self.ops[i].kind, KernelOpKind::Wait(Counter::Full(_) | Counter::Cell(..)))
                || matches!(&self.ops[i].kind, KernelOpKind::Move { src, .. } if src.iter().any(|s| matches!(s.place, Place::Cell(..))))
        });
        let KernelOpKind::Move { dst: to, .. } = &self.ops[other].kind else { return None };
        (!waits && self.may_write_early(at, other, to) && self.may_join(at, other)).then_some(other)
    }

    /// Destinations that nobody reads go.
    fn drop_dead(&mut self) {
        for at in 0..self.ops.len() {
            let KernelOpKind::Move { dst, .. } = &self.ops[at].kind else { continue };
            let kept: Vec<Place> = dst
                .iter()
                .copied()
                .filter(|&place| {
                    let local = matches!(place, Place::Scratch(..) | Place::Output(_));
                    !(local && (self.private)(place) && self.dead_after(at, place))
                })
                .collect();
            if !kept.is_empty()
                && let KernelOpKind::Move { dst, .. } = &mut self.ops[at].kind
            {
                *dst = kept;
            }
        }
    }
}
