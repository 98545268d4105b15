//! The rules of a kernel plan that need no run: what is declared, who stands at which end of a link, and
//! the order in which an end uses its messages.

use super::bounds::MAX_FOUND;
use super::kernel::{input_chunks, output_chunks, wrong};
use crate::diagnostic::Diagnostic;
use crate::entity::{LaneName, Link};
use crate::kernel_plan::{Counter, KernelOpKind, KernelPlan, Place};
use crate::schedule::Protocol;
use crate::types::Collective;
use std::collections::{BTreeMap, BTreeSet};

/// The rules that need no run: ends of links, bounds, shape.
pub(super) fn check_static(plan: &KernelPlan) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let names: BTreeSet<LaneName> = plan.lanes.values().map(|l| l.name).collect();
    if names.len() != plan.lanes.len() {
        found.push(wrong("V0603", "two lanes have the same name".to_owned()));
    }
    if plan.slots == 0 || plan.slots > 1024 {
        found.push(wrong("V0603", format!("{} slots; there must be 1 to 1024", plan.slots)));
    }
    if plan.ranks == 0 {
        found.push(wrong("V0603", "a plan for no rank".to_owned()));
    }
    if plan.collective.rooted() != plan.root.is_some() || plan.root.is_some_and(|r| r.as_u32() >= plan.ranks)
    {
        let root = plan.root.map_or_else(|| "no root".to_owned(), |r| format!("the root {r}"));
        found.push(wrong("V0603", format!("{} on {} ranks with {root}", plan.collective, plan.ranks)));
    }
    if plan.collective.has_blocks() && (plan.ranks == 0 || !plan.chunks.is_multiple_of(plan.ranks)) {
        found.push(wrong("V0603", format!("{} chunks do not divide by {} ranks", plan.chunks, plan.ranks)));
    }
    for (link, decl) in plan.links.iter() {
        for end in [decl.from, decl.to] {
            if !names.contains(&end) {
                found.push(wrong("V0603", format!("{link} ends at {end}, which is no lane")));
            }
        }
    }
    for (lane, decl) in plan.lanes.iter() {
        if decl.name.rank.as_u32() >= plan.ranks {
            found.push(wrong("V0603", format!("lane {} is of a rank that does not exist", decl.name)));
            continue;
        }
        for (index, op) in decl.ops.iter().enumerate() {
            if let Err(reason) = check_op(plan, decl.name, &op.kind) {
                found.push(wrong("V0603", format!("{}: {reason}", plan.address(lane, index))));
            }
            if found.len() >= MAX_FOUND {
                return found;
            }
        }
    }
    if found.is_empty() {
        check_messages(plan, &mut found);
        check_exchange(plan, &mut found);
    }
    found
}

/// Where sizes are known only to the call, lanes have different numbers of tiles, and the run has one
/// number for all. That is enough where each lane serves one pair of ranks and shares nothing: a link
/// with one message a tile, and user memory that no other lane touches.
fn check_exchange(plan: &KernelPlan, found: &mut Vec<Diagnostic>) {
    if !matches!(plan.collective, Collective::AllToAllV | Collective::SendRecv) {
        return;
    }
    let mut complain = |lane: LaneName, what: &str| {
        if found.len() < MAX_FOUND {
            let message = format!("lane {lane} of a plan of {} {what}", plan.collective);
            found.push(wrong("V0603", message).help("give every pair of ranks lanes of its own"));
        }
    };
    let mut owner: BTreeMap<(u32, Place), LaneName> = BTreeMap::new();
    for decl in plan.lanes.values() {
        let lane = decl.name;
        let mut links: BTreeSet<Link> = BTreeSet::new();
        for op in &decl.ops {
            match &op.kind {
                KernelOpKind::Wait(counter) | KernelOpKind::Signal(counter) => {
                    let (Counter::Full(link) | Counter::Free(link) | Counter::Cell(link, _)) = *counter;
                    links.insert(link);
                }
                KernelOpKind::Move { dst, src, .. } => {
                    for place in src.iter().map(|s| s.place).chain(dst.iter().copied()) {
                        match place {
                            Place::Slot(link) | Place::Cell(link, _) => {
                                links.insert(link);
                            }
                            Place::Scratch(..) => complain(lane, "uses scratch, which tiles share"),
                            Place::PeerInput(..) => complain(lane, "reads a peer's input"),
                            Place::PeerOutput(..) => complain(lane, "writes into a peer's output"),
                            Place::Input(_) | Place::Output(_) => {
                                if *owner.entry((lane.rank.as_u32(), place)).or_insert(lane) != lane {
                                    complain(lane, "shares user memory with another lane");
                                }
                            }
                        }
                    }
                }
            }
        }
        if links.len() > 1 || links.iter().any(|link| plan.links[*link].messages != 1) {
            complain(lane, "has more than one message a tile");
        }
    }
}

/// One end of a link, as its lane goes through the body.
#[derive(Clone, Copy, Default)]
struct End {
    /// Whether the lane has waited for the message at hand.
    waited: bool,
    messages: u32,
}

/// Each end of a FIFO uses its messages one after the other: wait, use the slot, signal. Each cell of a
/// zone is signalled once and waited for once. Waiting does not count anything: a second wait before
/// the signal would be for the same message, and a cell's flag stays up for the rest of the launch.
fn check_messages(plan: &KernelPlan, found: &mut Vec<Diagnostic>) {
    for (lane, decl) in plan.lanes.iter() {
        let mut ends: BTreeMap<(Link, bool), End> = BTreeMap::new();
        let mut cells: BTreeSet<(Link, u32, bool)> = BTreeSet::new();
        for (index, op) in decl.ops.iter().enumerate() {
            if found.len() >= MAX_FOUND {
                return;
            }
            if let Err(reason) = check_use(&op.kind, &mut ends, &mut cells) {
                found.push(wrong("V0607", format!("{}: {reason}", plan.address(lane, index))));
            }
        }
        for ((link, sends), end) in ends {
            let (counter, other) = if sends { ("free", "full") } else { ("full", "free") };
            if end.waited {
                let message = format!(
                    "lane {} ends between `wait {link}.{counter}` and `signal {link}.{other}`",
                    decl.name
                );
                found.push(wrong("V0607", message));
            } else if sends && end.messages != plan.links[link].messages {
                let (declared, sent) = (plan.links[link].messages, end.messages);
                let message =
                    format!("{link} is declared with {declared} messages a tile, and {sent} are sent");
                found.push(wrong("V0607", message));
            }
        }
    }
}

fn check_use(
    op: &KernelOpKind,
    ends: &mut BTreeMap<(Link, bool), End>,
    cells: &mut BTreeSet<(Link, u32, bool)>,
) -> Result<(), String> {
    match op {
        KernelOpKind::Wait(Counter::Cell(link, cell)) => once(cells, *link, *cell, false),
        KernelOpKind::Signal(Counter::Cell(link, cell)) => once(cells, *link, *cell, true),
        KernelOpKind::Wait(counter @ (Counter::Full(link) | Counter::Free(link))) => {
            let end = ends.entry((*link, matches!(counter, Counter::Free(_)))).or_default();
            if std::mem::replace(&mut end.waited, true) {
                return Err(format!(
                    "waits again for the same message of {link}, which it has not signalled"
                ));
            }
            Ok(())
        }
        KernelOpKind::Signal(counter @ (Counter::Full(link) | Counter::Free(link))) => {
            let end = ends.entry((*link, matches!(counter, Counter::Full(_)))).or_default();
            end.messages += 1;
            if !std::mem::replace(&mut end.waited, false) {
                return Err(format!("signals a message of {link} that it has not waited for"));
            }
            Ok(())
        }
        KernelOpKind::Move { dst, src, .. } => {
            let places = src.iter().map(|s| (s.place, false)).chain(dst.iter().map(|p| (*p, true)));
            places.into_iter().try_for_each(|(place, writes)| match place {
                Place::Cell(link, cell) => once(cells, link, cell, writes),
                Place::Slot(link) if !ends.entry((link, writes)).or_default().waited => {
                    let (counter, other) = if writes { ("free", "full") } else { ("full", "free") };
                    Err(format!(
                        "uses {link}.slot outside of `wait {link}.{counter}` and `signal {link}.{other}`"
                    ))
                }
                Place::Slot(_)
                | Place::Input(_)
                | Place::Output(_)
                | Place::PeerInput(..)
                | Place::PeerOutput(..)
                | Place::Scratch(..) => Ok(()),
            })
        }
    }
}

fn once(cells: &mut BTreeSet<(Link, u32, bool)>, link: Link, cell: u32, writes: bool) -> Result<(), String> {
    let verb = if writes { "sends" } else { "takes" };
    if cells.insert((link, cell, writes)) {
        Ok(())
    } else {
        Err(format!("{verb} {link}.cell[{cell}] a second time in one launch"))
    }
}

fn check_op(plan: &KernelPlan, lane: LaneName, op: &KernelOpKind) -> Result<(), String> {
    match op {
        KernelOpKind::Wait(counter) => check_counter(plan, lane, *counter, false),
        KernelOpKind::Signal(counter) => check_counter(plan, lane, *counter, true),
        KernelOpKind::Move { dst, src, chunk, .. } => {
            if dst.is_empty() || src.is_empty() {
                return Err("a move needs a source and a destination".to_owned());
            }
            if *chunk >= plan.chunks {
                return Err(format!("the move is sized as chunk {chunk} of {}", plan.chunks));
            }
            for source in src {
                check_place(plan, lane, source.place, false)?;
            }
            dst.iter().try_for_each(|place| check_place(plan, lane, *place, true))
        }
    }
}

fn check_end(plan: &KernelPlan, lane: LaneName, link: Link, sends: bool) -> Result<(), String> {
    let decl = plan.links.get(link).ok_or_else(|| format!("{link} is not declared"))?;
    let end = if sends { decl.from } else { decl.to };
    let verb = if sends { "sends" } else { "receives" };
    if end == lane { Ok(()) } else { Err(format!("only {end}, which {verb} on {link}, may do this")) }
}

fn check_protocol(plan: &KernelPlan, zone: bool) -> Result<(), String> {
    if (plan.protocol == Protocol::Simple) == zone {
        return Err(format!("a plan of protocol {} has no such place or counter", plan.protocol));
    }
    Ok(())
}

fn check_cell(plan: &KernelPlan, link: Link, cell: u32) -> Result<(), String> {
    let messages = plan.links.get(link).map_or(0, |l| l.messages);
    if cell < messages { Ok(()) } else { Err(format!("{link} has {messages} cells, this is cell {cell}")) }
}

fn check_counter(plan: &KernelPlan, lane: LaneName, counter: Counter, signals: bool) -> Result<(), String> {
    match counter {
        Counter::Full(link) => check_protocol(plan, false).and(check_end(plan, lane, link, signals)),
        Counter::Free(link) => check_protocol(plan, false).and(check_end(plan, lane, link, !signals)),
        Counter::Cell(link, cell) => check_protocol(plan, true)
            .and(check_end(plan, lane, link, signals))
            .and_then(|()| check_cell(plan, link, cell)),
    }
}

fn check_place(plan: &KernelPlan, lane: LaneName, place: Place, writes: bool) -> Result<(), String> {
    match place {
        Place::Input(chunk) if writes => Err(format!("input[{chunk}] is written")),
        Place::Input(chunk)
        | Place::Output(chunk)
        | Place::PeerInput(_, chunk)
        | Place::PeerOutput(_, chunk)
            if chunk >= plan.chunks =>
        {
            Err(format!("chunk {chunk} of {}", plan.chunks))
        }
        Place::Input(chunk) if !input_chunks(plan, lane.rank).contains(&chunk) => {
            Err(format!("input[{chunk}] is no part of {}'s input", lane.rank))
        }
        Place::Output(chunk) if !output_chunks(plan, lane.rank).contains(&chunk) => {
            Err(format!("output[{chunk}] is no part of {}'s result", lane.rank))
        }
        Place::Input(_) | Place::Output(_) => Ok(()),
        Place::PeerInput(..) if writes => Err("a peer's input is written".to_owned()),
        Place::PeerOutput(..) if !writes => Err("a peer's output is read".to_owned()),
        Place::PeerInput(peer, _) | Place::PeerOutput(peer, _)
            if peer.as_u32() >= plan.ranks || peer == lane.rank =>
        {
            Err(format!("{peer} is no peer of {}", lane.rank))
        }
        Place::PeerOutput(peer, chunk) if !output_chunks(plan, peer).contains(&chunk) => {
            Err(format!("{peer}.output[{chunk}] is no part of {peer}'s result"))
        }
        Place::PeerInput(peer, chunk) if !input_chunks(plan, peer).contains(&chunk) => {
            Err(format!("{peer}.input[{chunk}] is no part of {peer}'s input"))
        }
        Place::PeerInput(..) | Place::PeerOutput(..) => Ok(()),
        Place::Scratch(buffer, chunk) => match plan.scratch.get(buffer) {
            Some(decl) if chunk < decl.chunks => Ok(()),
            Some(decl) => Err(format!("`{}` has {} chunks, this is chunk {chunk}", decl.name, decl.chunks)),
            None => Err(format!("{buffer} is not declared")),
        },
        Place::Slot(link) => check_protocol(plan, false).and(check_end(plan, lane, link, writes)),
        Place::Cell(link, cell) => check_protocol(plan, true)
            .and(check_end(plan, lane, link, writes))
            .and_then(|()| check_cell(plan, link, cell)),
    }
}
