//! The rules of a schedule that need no run: what is declared, who stands at which end of a link, which
//! chunks an op may name. What they establish, the run takes for granted.

use super::bounds::MAX_FOUND;
use super::report::finish;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::entity::{Lane, Link, Rank};
use crate::schedule::{BufferKind, OpKind, Place, Schedule};
use crate::types::Collective;
use cranelift_entity::SecondaryMap;
use std::collections::BTreeMap;

/// Which lanes a link joins.
pub(super) struct Ends {
    pub(super) from: SecondaryMap<Link, Option<Lane>>,
    pub(super) to: SecondaryMap<Link, Option<Lane>>,
    /// Whether some get reads over the link.
    pub(super) read_by_get: SecondaryMap<Link, bool>,
}

impl Ends {
    /// The rules that need no run.
    pub(super) fn check(schedule: &Schedule) -> Result<Self, Vec<Diagnostic>> {
        let mut ends =
            Self { from: SecondaryMap::new(), to: SecondaryMap::new(), read_by_get: SecondaryMap::new() };
        let mut first_use: BTreeMap<(Link, bool), Span> = BTreeMap::new();
        let mut found = Vec::new();
        check_shape(schedule, &mut found);
        if !found.is_empty() {
            return Err(finish(found));
        }
        check_buffers(schedule, &mut found);
        for (lane, decl) in schedule.lanes.iter() {
            for op in &decl.ops {
                if found.len() >= MAX_FOUND {
                    return Err(finish(found));
                }
                check_slices(schedule, decl.name.rank, op.kind, op.span, &mut found);
                let (link, sends) = match op.kind {
                    OpKind::Put { link, .. } | OpKind::Signal { link } => (link, true),
                    OpKind::Get { link, .. } | OpKind::Wait { link } => (link, false),
                    OpKind::Reduce { .. } | OpKind::Copy { .. } => continue,
                };
                let Some(declared) = schedule.links.get(link) else {
                    found.push(Diagnostic::new(
                        Code("V0103"),
                        format!("{link} is not declared"),
                        op.span,
                        "used here",
                    ));
                    continue;
                };
                let (own, other) =
                    if sends { (declared.from, declared.to) } else { (declared.to, declared.from) };
                if own != decl.name.rank {
                    found.push(wrong_end(schedule, link, decl.name.rank, sends, op.span));
                    continue;
                }
                ends.read_by_get[link] |= matches!(op.kind, OpKind::Get { .. });
                if let OpKind::Put { peer, .. } | OpKind::Get { peer, .. } = op.kind
                    && peer != other
                {
                    found.push(wrong_peer(schedule, link, peer, other, op.span));
                    continue;
                }
                let end = if sends { &mut ends.from[link] } else { &mut ends.to[link] };
                match *end {
                    None => {
                        *end = Some(lane);
                        first_use.insert((link, sends), op.span);
                    }
                    Some(first) if first != lane => {
                        let (code, verb) = if sends { ("V0101", "send") } else { ("V0102", "receive") };
                        let message =
                            format!("{} and {} both {verb} on {link}", schedule.lanes[first].name, decl.name);
                        found.push(
                            Diagnostic::new(Code(code), message, op.span, "second lane")
                                .label(first_use[&(link, sends)], "first lane")
                                .help("give each lane a link of its own"),
                        );
                    }
                    Some(_) => {}
                }
            }
        }
        if found.is_empty() { Ok(ends) } else { Err(finish(found)) }
    }
}

/// What texts cannot say wrongly, and programs that build schedules can.
fn check_shape(schedule: &Schedule, found: &mut Vec<Diagnostic>) {
    let ranks = schedule.ranks;
    let mut wrong = |span: Span, message: String| {
        found.push(Diagnostic::new(Code("V0207"), message, span, "does not fit the collective"));
    };
    let start = Span::default();
    if ranks == 0 {
        wrong(start, "a schedule for no rank".to_owned());
        return;
    }
    let collective = schedule.collective;
    if matches!(collective, Collective::AllToAllV | Collective::SendRecv) {
        wrong(
            start,
            format!("{collective} has sizes that only a call knows, and no schedule for all of them"),
        );
        return;
    }
    if collective.rooted() != schedule.root.is_some() || schedule.root.is_some_and(|r| r.as_u32() >= ranks) {
        let root = schedule.root.map_or_else(|| "no root".to_owned(), |r| format!("the root {r}"));
        wrong(start, format!("{collective} on {ranks} ranks with {root}"));
    }
    if collective.has_blocks() && !schedule.chunks.is_multiple_of(ranks) {
        wrong(start, format!("{} chunks cannot be shared out among {ranks} ranks", schedule.chunks));
        return;
    }
    let mut user: Vec<BufferKind> = Vec::new();
    for buffer in schedule.buffers.values() {
        if let Some(needed) = schedule.buffer_chunks(buffer.kind).filter(|n| *n != buffer.chunks) {
            let message = format!("`{}` must have {needed} chunks, not {}", buffer.name, buffer.chunks);
            wrong(buffer.span, message);
        }
        if buffer.kind != BufferKind::Scratch {
            if user.contains(&buffer.kind) {
                let kind = buffer.kind.name();
                wrong(buffer.span, format!("`{}` is a second `{kind}` buffer", buffer.name));
            }
            user.push(buffer.kind);
        }
    }
    for (link, decl) in schedule.links.iter() {
        if decl.from.as_u32().max(decl.to.as_u32()) >= ranks {
            wrong(decl.span, format!("{link} goes from {} to {} of {ranks} ranks", decl.from, decl.to));
        }
    }
    let mut last = None;
    for decl in schedule.lanes.values() {
        if decl.name.rank.as_u32() >= ranks {
            wrong(decl.span, format!("lane {} on {ranks} ranks", decl.name));
        }
        if last.is_some_and(|l| l >= decl.name) {
            wrong(decl.span, format!("lane {} is declared twice or out of order", decl.name));
        }
        last = Some(decl.name);
    }
}

fn wrong_end(schedule: &Schedule, link: Link, rank: Rank, sends: bool, span: Span) -> Diagnostic {
    let decl = &schedule.links[link];
    let owner = if sends { decl.from } else { decl.to };
    let (code, what) = if sends { ("V0103", "sends") } else { ("V0104", "receives") };
    Diagnostic::new(
        Code(code),
        format!("{rank} {what} on {link}, which goes from {} to {}", decl.from, decl.to),
        span,
        if sends {
            "only the link's first rank may put and signal"
        } else {
            "only the link's second rank may wait and get"
        },
    )
    .label(decl.span, "the link")
    .help(format!(
        "use a link {} {rank}, or move this op to {}",
        if sends { "from" } else { "to" },
        owner
    ))
}

fn wrong_peer(schedule: &Schedule, link: Link, peer: Rank, other: Rank, span: Span) -> Diagnostic {
    Diagnostic::new(
        Code("V0103"),
        format!("{link} joins this rank to {other}, not to {peer}"),
        span,
        format!("names memory of {peer}"),
    )
    .label(schedule.links[link].span, "the link")
    .help(format!("name memory of {other}, or use a link between this rank and {peer}"))
}

fn check_buffers(schedule: &Schedule, found: &mut Vec<Diagnostic>) {
    let inout = schedule.buffers.values().find(|b| b.kind == BufferKind::Inout);
    for buffer in schedule.buffers.values() {
        let user = matches!(buffer.kind, BufferKind::Input | BufferKind::Output);
        if let (Some(inout), true) = (inout, user) {
            found.push(
                Diagnostic::new(
                    Code("V0204"),
                    format!("`{}` stands beside the inout buffer `{}`", buffer.name, inout.name),
                    buffer.span,
                    "a second name for the same memory",
                )
                .label(inout.span, "already names input and output")
                .help("use one inout buffer, or an input and an output"),
            );
        }
    }
}

fn check_slices(schedule: &Schedule, rank: Rank, op: OpKind, span: Span, found: &mut Vec<Diagnostic>) {
    let (src, dst, dst_rank) = match op {
        OpKind::Put { src, peer, dst, .. } => ((rank, src), (peer, dst), peer),
        OpKind::Get { peer, src, dst, .. } => ((peer, src), (rank, dst), rank),
        OpKind::Reduce { dst, src } | OpKind::Copy { src, dst } => ((rank, src), (rank, dst), rank),
        OpKind::Signal { .. } | OpKind::Wait { .. } => return,
    };
    let before = found.len();
    for (at, slice) in [src, dst] {
        match schedule.buffers.get(slice.buffer) {
            None => found.push(Diagnostic::new(
                Code("V0201"),
                format!("{} is not declared", slice.buffer),
                span,
                "used here",
            )),
            Some(decl) if slice.chunk >= decl.chunks => found.push(
                Diagnostic::new(
                    Code("V0201"),
                    format!("{at}'s `{}` has {} chunks", decl.name, decl.chunks),
                    span,
                    format!("this is chunk {}", slice.chunk),
                )
                .label(decl.span, "declared here"),
            ),
            Some(_) => {}
        }
        if at.as_u32() >= schedule.ranks {
            found.push(Diagnostic::new(
                Code("V0103"),
                format!("there is no {at}"),
                span,
                format!("the last rank is r{}", schedule.ranks.saturating_sub(1)),
            ));
        }
    }
    if found.len() > before {
        return;
    }
    let decl = &schedule.buffers[dst.1.buffer];
    let writable = match schedule.place(dst_rank, dst.1) {
        Place::Input(_) => {
            found.push(
                Diagnostic::new(
                    Code("V0202"),
                    format!("writes the input buffer `{}`", decl.name),
                    span,
                    "the caller's input must stay as it is",
                )
                .label(decl.span, "declared input here")
                .help("copy it to the output or to scratch, and work there"),
            );
            true
        }
        Place::Output(chunk) | Place::Inout(chunk) => schedule.output_chunks(dst_rank).contains(&chunk),
        Place::Scratch(..) => true,
    };
    if !writable {
        let message = format!(
            "chunk {} of `{}` is no part of {dst_rank}'s result in {}",
            dst.1.chunk, decl.name, schedule.collective
        );
        found.push(
            Diagnostic::new(Code("V0203"), message, span, "written here")
                .note("outside its result a rank has no memory to write but scratch")
                .help("keep intermediate values in a scratch buffer"),
        );
    }
    if src == dst {
        found.push(
            Diagnostic::new(
                Code("V0205"),
                "source and destination are the same chunk",
                span,
                "does nothing, or counts a contribution twice",
            )
            .help("leave it out, or name the chunk that was meant"),
        );
    }
}
