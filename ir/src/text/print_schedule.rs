//! Prints flat schedules. Reading what is printed gives the same schedule.

use super::extras::{Anchor, Extra, Extras};
use super::print::{buffer_line, collective_line, push_attributes};
use super::writer::Writer;
use crate::entity::Buffer;
use crate::program::CollectiveLine;
use crate::schedule::{BufferDecl, OpKind, Protocol, Schedule, Slice};
use crate::types::Collective;
use cranelift_entity::{EntityRef, PrimaryMap};

/// Prints a schedule in its canonical form. Reading it gives the same schedule.
pub fn print_schedule(schedule: &Schedule) -> String {
    print(schedule, None)
}

/// Prints a schedule with what surrounded its lines in the text it was read from, if it was.
pub(super) fn print(schedule: &Schedule, extras: Option<&Extras>) -> String {
    let nothing = Extras::default();
    let mut printer = Printer { writer: Writer::new(), extras: extras.unwrap_or(&nothing) };
    printer.schedule(schedule, extras.is_none());
    printer.writer.finish()
}

struct Printer<'e> {
    writer: Writer,
    extras: &'e Extras,
}

impl Printer<'_> {
    /// Prints everything; with an empty line above each lane if `spaced`.
    fn schedule(&mut self, schedule: &Schedule, spaced: bool) {
        let extras = self.extras;
        self.writer.before(&extras.before);
        self.writer.open(&format!("schedule @{}", schedule.name), extras.braces.opening.as_deref());
        self.heading(schedule);
        self.buffers(schedule);
        for (link, decl) in &schedule.links {
            self.line(Anchor::Link(link.index()), format!("link {link}: {} -> {}", decl.from, decl.to));
        }
        for lane in schedule.lanes.values() {
            if spaced {
                self.writer.blank();
            }
            let name = lane.name;
            if let Some(extra) = extras.lines.get(&Anchor::Lane(name)) {
                self.writer.before(&extra.trivia.before);
            }
            let braces = extras.lanes.get(&name);
            let opening = braces.and_then(|b| b.opening.as_deref());
            self.writer.open(&format!("lane {name}"), opening);
            for (i, op) in lane.ops.iter().enumerate() {
                self.line(Anchor::Op(name, i), op_line(&op.kind, &schedule.buffers));
            }
            let (last, closing) = braces.map_or((&[][..], None), |b| (&b.last[..], b.closing.as_deref()));
            self.writer.close(last, None, closing);
        }
        self.writer.close(&extras.braces.last, None, extras.braces.closing.as_deref());
        self.writer.before(&extras.footer);
    }

    fn heading(&mut self, schedule: &Schedule) {
        let Schedule { collective, op, order, .. } = *schedule;
        self.line(Anchor::Ranks, format!("ranks {}", schedule.ranks));
        self.line(Anchor::Collective, collective_line(CollectiveLine { collective, op, order }));
        if let Some(root) = schedule.root {
            self.line(Anchor::Root, format!("root {root}"));
        }
        // The other lines are needed only where they say something, but stay where they stood.
        let said = |anchor| self.extras.lines.contains_key(&anchor);
        let chunks = collective != Collective::Barrier || said(Anchor::Chunks);
        let lanes = schedule.lanes_per_lane != 1 || said(Anchor::Lanes);
        let protocol = schedule.protocol != Protocol::Simple || said(Anchor::Protocol);
        if chunks {
            self.line(Anchor::Chunks, format!("chunks {}", schedule.chunks));
        }
        if lanes {
            self.line(Anchor::Lanes, format!("lanes {}", schedule.lanes_per_lane));
        }
        if protocol {
            self.line(Anchor::Protocol, format!("protocol {}", schedule.protocol));
        }
    }

    fn buffers(&mut self, schedule: &Schedule) {
        let decls: Vec<&BufferDecl> = schedule.buffers.values().collect();
        let apart = |i: usize| {
            let extra = self.extras.lines.get(&Anchor::Buffer(i));
            extra.is_some_and(|e| !e.trivia.before.is_empty())
        };
        let mut start = 0;
        let mut runs = Vec::new();
        while start < decls.len() {
            let end = (start + 1..decls.len()).find(|i| apart(*i)).unwrap_or(decls.len());
            runs.push(start..end);
            start = end;
        }
        for run in runs {
            let width = decls[run.clone()].iter().map(|b| b.name.len()).max().unwrap_or(0);
            for i in run {
                let text = buffer_line(&decls[i].name, width, decls[i].kind.name(), &decls[i].chunks);
                self.line(Anchor::Buffer(i), text);
            }
        }
    }

    fn line(&mut self, anchor: Anchor, mut text: String) {
        match self.extras.lines.get(&anchor) {
            None => self.writer.line(&text, None),
            Some(Extra { trivia, attributes }) => {
                self.writer.before(&trivia.before);
                push_attributes(attributes, &mut text);
                self.writer.line(&text, trivia.after.as_deref());
            }
        }
    }
}

fn op_line(op: &OpKind, buffers: &PrimaryMap<Buffer, BufferDecl>) -> String {
    let slice = |s: Slice| format!("{}[{}]", buffers[s.buffer].name, s.chunk);
    match *op {
        OpKind::Put { src, peer, dst, link } => {
            format!("put    {} -> {peer}.{} via {link}", slice(src), slice(dst))
        }
        OpKind::Get { peer, src, dst, link } => {
            format!("get    {peer}.{} -> {} via {link}", slice(src), slice(dst))
        }
        OpKind::Signal { link } => format!("signal {link}"),
        OpKind::Wait { link } => format!("wait   {link}"),
        OpKind::Reduce { dst, src } => format!("reduce {} += {}", slice(dst), slice(src)),
        OpKind::Copy { src, dst } => format!("copy   {} -> {}", slice(src), slice(dst)),
    }
}
