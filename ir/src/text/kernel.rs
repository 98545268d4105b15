//! Prints and reads kernel plans; the two are inverses.
//!
//! The text is for people and for files that go with compiled kernels. It has no expressions, and its
//! comments mean nothing but one: that at an op's end, if it lists addresses of ops, says which ops of
//! the schedule the op stands for. Whether a plan is right is the verifier's business; reading checks
//! only that what an op names exists.

use super::codes;
use super::lexer::Kind;
use super::parser::{Failed, Parse, Parser};
use super::print::collective_line;
use super::program::PROTOCOLS;
use super::structure;
use super::writer::Writer;
use crate::diagnostic::{Diagnostic, Span};
use crate::entity::{Buffer, LaneName, Link, OpAddress, Rank};
use crate::expand::resolve::{missing, unknown_buffer};
use crate::expand::{
    MAX_CHUNKS, MAX_LANE_INDEX, MAX_LANES, MAX_LANES_PER_LANE, MAX_LINKS, MAX_OPS, MAX_RANKS,
};
use crate::kernel_plan::{
    Counter, KernelLane, KernelLink, KernelOp, KernelOpKind, KernelPlan, Place, ScratchDecl, Source,
};
use crate::program::{Braces, CollectiveLine};
use crate::schedule::Protocol;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::HashMap;

/// Lines up to this length have the addresses at their ends in one column.
const MAX_ORIGIN_COLUMN: usize = 64;

/// Prints a kernel plan. Reading it gives the same plan.
pub fn print_kernel_plan(plan: &KernelPlan) -> String {
    let mut writer = Writer::new();
    writer.open(&format!("kernel_plan @{}", plan.name), None);
    let KernelPlan { collective, op, order, .. } = *plan;
    let mut heading = vec![
        format!("ranks {}", plan.ranks),
        collective_line(CollectiveLine { collective, op, order }),
        plan.root.map_or_else(String::new, |root| format!("root {root}")),
        format!("chunks {}", plan.chunks),
        format!("protocol {}", plan.protocol),
        format!("slots {}", plan.slots),
        format!("slot_bytes {}", plan.slot_bytes),
    ];
    if plan.lanes_per_lane != 1 {
        heading.insert(4, format!("lanes {}", plan.lanes_per_lane));
    }
    let scratch = plan.scratch.values().map(|s| format!("scratch {}: [{}]", s.name, s.chunks));
    let links = plan
        .links
        .iter()
        .map(|(id, l)| format!("link {id}: {} -> {} {{ messages = {} }}", l.from, l.to, l.messages));
    for text in heading.into_iter().filter(|t| !t.is_empty()).chain(scratch).chain(links) {
        writer.line(&text, None);
    }
    for lane in plan.lanes.values() {
        writer.blank();
        writer.open(&format!("lane {}", lane.name), None);
        let lines: Vec<String> = lane.ops.iter().map(|op| op_line(&op.kind, &plan.scratch)).collect();
        let column = lines.iter().map(String::len).filter(|len| *len <= MAX_ORIGIN_COLUMN).max().unwrap_or(0);
        for (op, line) in lane.ops.iter().zip(lines) {
            let origin: Vec<String> = op.origin.iter().map(OpAddress::to_string).collect();
            if origin.is_empty() {
                writer.line(&line, None);
            } else {
                writer.line(&format!("{line:column$}"), Some(&format!("// {}", origin.join(" "))));
            }
        }
        writer.close(&[], None, None);
    }
    writer.close(&[], None, None);
    writer.finish()
}

fn op_line(op: &KernelOpKind, scratch: &PrimaryMap<Buffer, ScratchDecl>) -> String {
    let place = |place: Place| match place {
        Place::Input(chunk) => format!("input[{chunk}]"),
        Place::Output(chunk) => format!("output[{chunk}]"),
        Place::PeerInput(rank, chunk) => format!("{rank}.input[{chunk}]"),
        Place::PeerOutput(rank, chunk) => format!("{rank}.output[{chunk}]"),
        Place::Scratch(buffer, chunk) => format!("{}[{chunk}]", scratch[buffer].name),
        Place::Slot(link) => format!("{link}.slot"),
        Place::Cell(link, cell) => format!("{link}.cell[{cell}]"),
    };
    let counter = |counter: Counter| match counter {
        Counter::Full(link) => format!("{link}.full"),
        Counter::Free(link) => format!("{link}.free"),
        Counter::Cell(link, cell) => format!("{link}.cell[{cell}]"),
    };
    match op {
        KernelOpKind::Wait(c) => format!("wait   {}", counter(*c)),
        KernelOpKind::Signal(c) => format!("signal {}", counter(*c)),
        KernelOpKind::Move { dst, src, post, chunk } => {
            let to: Vec<String> = dst.iter().map(|d| place(*d)).collect();
            let from: Vec<String> = src
                .iter()
                .map(|s| if s.pre { format!("pre({})", place(s.place)) } else { place(s.place) })
                .collect();
            let from = from.join(" + ");
            let from = if *post { format!("post({from})") } else { from };
            let size = match user_chunk(dst, src) {
                Some(user) if user == *chunk => String::new(),
                _ => format!(" of {chunk}"),
            };
            format!("move   {} <- {from}{size}", to.join(", "))
        }
    }
}

/// The chunk whose size a move has unless it says otherwise.
fn user_chunk(dst: &[Place], src: &[Source]) -> Option<u32> {
    let places = dst.iter().copied().chain(src.iter().map(|s| s.place));
    places.into_iter().find_map(|place| match place {
        Place::Input(chunk)
        | Place::Output(chunk)
        | Place::PeerInput(_, chunk)
        | Place::PeerOutput(_, chunk) => Some(chunk),
        Place::Scratch(..) | Place::Slot(_) | Place::Cell(..) => None,
    })
}

/// Reads a kernel plan. Lanes come out ordered by rank and index, whatever their order in the text.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn parse_kernel_plan(source: &str) -> Result<KernelPlan, Vec<Diagnostic>> {
    let mut parser = Parser::new(source)?;
    if !parser.at_word("kernel_plan") {
        return Err(parser.wrong_form("`kernel_plan`"));
    }
    match parser.kernel_plan() {
        Ok(plan) if parser.diagnostics.is_empty() => Ok(plan),
        _ => Err(parser.finish()),
    }
}

const ITEMS: [&str; 11] = [
    "ranks",
    "collective",
    "root",
    "chunks",
    "lanes",
    "protocol",
    "slots",
    "slot_bytes",
    "scratch",
    "link",
    "lane",
];
const OPS: [&str; 3] = ["wait", "move", "signal"];

/// A number that may be said once.
type Once<T> = Option<(T, Span)>;

/// A kernel plan while it is read.
#[derive(Default)]
struct Draft<'a> {
    ranks: Once<u32>,
    collective: Once<CollectiveLine>,
    root: Once<Rank>,
    chunks: Once<u32>,
    lanes_per_lane: Once<u32>,
    protocol: Once<Protocol>,
    slots: Once<u32>,
    slot_bytes: Once<u64>,
    scratch: PrimaryMap<Buffer, ScratchDecl>,
    scratch_names: HashMap<&'a str, Buffer>,
    links: PrimaryMap<Link, KernelLink>,
    lanes: Vec<(KernelLane, Span)>,
    ops: usize,
    /// First words of lines that could not be read.
    lost: Vec<&'a str>,
}

/// The two things that a link's name and a dot can begin.
enum LinkPart {
    Full,
    Free,
    Slot,
    Cell(u32),
}

impl<'a> Parser<'a> {
    fn kernel_plan(&mut self) -> Parse<KernelPlan> {
        let mut draft = Draft::default();
        let start = self.advance().span.start;
        let name = self.title("kernel_plan")?;
        self.expect("{", "the name")?;
        while !self.at_end() && !self.at("}") {
            let word = if self.token.kind == Kind::Name { self.text(self.token.span) } else { "" };
            if self.kernel_line(word, &mut draft).is_err() {
                draft.lost.push(word);
                if self.skip_line() {
                    self.skip_block();
                }
            }
            self.forget_comments();
        }
        self.close(start, false, &mut Braces::default());
        self.text_end();
        self.finish_kernel_plan(name.text, name.span, draft)
    }

    /// Drops comments in front of the token at hand.
    fn forget_comments(&mut self) {
        self.lines_before(false);
    }

    fn kernel_line(&mut self, word: &'a str, draft: &mut Draft<'a>) -> Parse<()> {
        if !ITEMS.contains(&word) {
            return Err(self.unknown_line(&ITEMS, &OPS, "belongs into a lane"));
        }
        let start = self.advance().span.start;
        match word {
            "ranks" => {
                let ranks = self.count(word, 1, MAX_RANKS, codes::RANKS)?;
                self.set_once(word, start, ranks, &mut draft.ranks);
            }
            "collective" => {
                let line = self.collective_line()?;
                self.set_once(word, start, line, &mut draft.collective);
            }
            "root" => {
                let root = self.kernel_rank("`root`", draft)?;
                self.set_once(word, start, root, &mut draft.root);
            }
            "chunks" => {
                let chunks = self.count(word, 0, MAX_CHUNKS, codes::SIZE)?;
                self.set_once(word, start, chunks, &mut draft.chunks);
            }
            "lanes" => {
                let lanes = self.count(word, 1, MAX_LANES_PER_LANE, codes::SIZE)?;
                self.set_once(word, start, lanes, &mut draft.lanes_per_lane);
            }
            "protocol" => {
                let protocol = self.word("a protocol", "`protocol`", &PROTOCOLS)?;
                self.set_once(word, start, protocol, &mut draft.protocol);
            }
            "slots" => {
                let slots = self.count(word, 0, u32::MAX, codes::SIZE)?;
                self.set_once(word, start, slots, &mut draft.slots);
            }
            "slot_bytes" => {
                // A number of the text is never negative.
                let bytes = self.flat_int("`slot_bytes`")?.unsigned_abs();
                self.set_once(word, start, bytes, &mut draft.slot_bytes);
            }
            "scratch" => self.scratch(draft)?,
            "link" => self.kernel_link(start, draft)?,
            _ => return self.kernel_lane(start, draft),
        }
        self.line_end("this")
    }

    fn kernel_rank(&mut self, after: &str, draft: &Draft<'a>) -> Parse<Rank> {
        let (number, span) = self.flat_id('r', "a rank", after)?;
        if let Some((ranks, _)) = draft.ranks.filter(|(ranks, _)| number >= *ranks) {
            let label = format!("there are {ranks}, r0 to r{}", ranks - 1);
            let message = structure::rank_message(i64::from(number));
            return Err(self.report(Diagnostic::new(codes::RANK_INDEX, message, span, label)));
        }
        Ok(Rank::from_u32(number))
    }

    fn kernel_lane_name(&mut self, after: &str, draft: &Draft<'a>) -> Parse<LaneName> {
        let rank = self.kernel_rank(after, draft)?;
        self.expect(".", "the rank")?;
        let index = self.count("a lane", 0, MAX_LANE_INDEX, codes::LANE_INDEX)?;
        Ok(LaneName { rank, index })
    }

    fn scratch(&mut self, draft: &mut Draft<'a>) -> Parse<()> {
        let name = self.name("a buffer's name", "`scratch`")?;
        self.expect(":", "a buffer's name")?;
        self.expect("[", "`:`")?;
        let chunks = self.count("chunks", 0, MAX_CHUNKS, codes::SIZE)?;
        self.expect("]", "the number of chunks")?;
        let user = name.text == "input" || name.text == "output";
        if user && chunks > 0 {
            let message = format!("scratch cannot be called `{}`", name.text);
            let label = "this is the caller's memory";
            return Err(self.report(Diagnostic::new(codes::BUFFER_SET, message, name.span, label)));
        }
        let buffer = draft.scratch.push(ScratchDecl { name: name.text, chunks });
        if draft.scratch_names.insert(self.text(name.span), buffer).is_some() {
            let message = format!("the buffer `{}` is declared already", self.text(name.span));
            self.report(Diagnostic::new(codes::DUPLICATE_NAME, message, name.span, "declared again"));
        }
        Ok(())
    }

    fn kernel_link(&mut self, start: u32, draft: &mut Draft<'a>) -> Parse<()> {
        let (number, span) = self.flat_id('l', "a link", "`link`")?;
        self.expect(":", "the link")?;
        let from = self.kernel_lane_name("`:`", draft)?;
        self.expect("->", "the sending lane")?;
        let to = self.kernel_lane_name("`->`", draft)?;
        self.expect("{", "the receiving lane")?;
        self.expect_word("messages", "`{`")?;
        self.expect("=", "`messages`")?;
        let messages = self.count("messages", 0, u32::MAX, codes::SIZE)?;
        self.expect("}", "the number of messages")?;
        let next = draft.links.len();
        if number as usize != next {
            let message = format!("this link should be `l{next}`");
            let label = format!("expected `l{next}`");
            self.report(Diagnostic::new(codes::LINK_ORDER, message, span, label));
        }
        let span = self.span_from(start);
        self.within(next, MAX_LINKS, "links", span)?;
        draft.links.push(KernelLink { from, to, messages });
        Ok(())
    }

    fn kernel_lane(&mut self, start: u32, draft: &mut Draft<'a>) -> Parse<()> {
        let name = self.kernel_lane_name("`lane`", draft)?;
        let span = self.span_from(start);
        if self.token.first {
            return Err(self.expected("`{`", "the lane"));
        }
        let open = self.token.span.start;
        self.expect("{", "the lane")?;
        self.within(draft.lanes.len(), MAX_LANES, "lanes", span)?;
        let mut ops = Vec::new();
        while !self.at_end() && !self.at("}") {
            self.forget_comments();
            match self.kernel_op(draft) {
                Ok(kind) => {
                    let comment = self.line_comment(&mut Vec::new());
                    let origin = comment.map_or_else(Vec::new, |c| addresses(&c));
                    ops.push(KernelOp { kind, origin });
                    draft.ops += 1;
                }
                Err(Failed) => {
                    if self.skip_line() {
                        self.skip_block();
                    }
                }
            }
        }
        self.close(open, false, &mut Braces::default());
        draft.lanes.push((KernelLane { name, ops }, span));
        Ok(())
    }

    fn kernel_op(&mut self, draft: &Draft<'a>) -> Parse<KernelOpKind> {
        let span = self.token.span;
        let word = if self.token.kind == Kind::Name { self.text(span) } else { "" };
        if !OPS.contains(&word) {
            return Err(self.unknown_line(&OPS, &ITEMS, "belongs outside the lanes"));
        }
        self.advance();
        self.within(draft.ops, MAX_OPS, "ops", span)?;
        let op = match word {
            "wait" => KernelOpKind::Wait(self.counter("`wait`", draft)?),
            "signal" => KernelOpKind::Signal(self.counter("`signal`", draft)?),
            _ => self.kernel_move(draft)?,
        };
        self.line_end("this")?;
        Ok(op)
    }

    fn kernel_move(&mut self, draft: &Draft<'a>) -> Parse<KernelOpKind> {
        let mut dst = vec![self.place("`move`", draft)?];
        while self.eat(",") {
            dst.push(self.place("`,`", draft)?);
        }
        self.expect("<", "the destinations")?;
        self.expect("-", "`<`")?;
        let post = self.eat_call("post");
        let mut src = vec![self.source("`<-`", draft)?];
        while self.eat("+") {
            src.push(self.source("`+`", draft)?);
        }
        if post {
            self.expect(")", "the sources")?;
        }
        let user = user_chunk(&dst, &src);
        let chunk = if !self.token.first && self.eat_word("of") {
            let most = draft.chunks.map_or(MAX_CHUNKS, |(chunks, _)| chunks.saturating_sub(1));
            self.count("a chunk", 0, most, codes::CHUNK_INDEX)?
        } else if let Some(user) = user {
            user
        } else {
            return Err(self.expected("`of` and a chunk", "a move without the caller's memory"));
        };
        Ok(KernelOpKind::Move { dst, src, post, chunk })
    }

    /// Consumes `word(` if it is next. A buffer of this name is followed by `[`.
    fn eat_call(&mut self, word: &str) -> bool {
        let at = self.at_word(word)
            && self.source[self.token.span.end as usize..].trim_start_matches([' ', '\t']).starts_with('(');
        if at {
            self.advance();
            self.advance();
        }
        at
    }

    fn source(&mut self, after: &str, draft: &Draft<'a>) -> Parse<Source> {
        let pre = self.eat_call("pre");
        let place = self.place(after, draft)?;
        if pre {
            self.expect(")", "the source")?;
        }
        Ok(Source { place, pre })
    }

    fn place(&mut self, after: &str, draft: &Draft<'a>) -> Parse<Place> {
        if self.token.kind != Kind::Name || self.token.first {
            return Err(self.expected("a place", after));
        }
        let span = self.token.span;
        let name = self.text(span);
        let bracket = self.source[span.end as usize..].trim_start_matches([' ', '\t']).starts_with('[');
        if self.at_peer_place(name) {
            return self.peer_place(after, draft);
        }
        if !bracket {
            let (link, part) = self.link_part("a place", after, draft)?;
            return match part {
                LinkPart::Slot => Ok(Place::Slot(link)),
                LinkPart::Cell(cell) => Ok(Place::Cell(link, cell)),
                LinkPart::Full | LinkPart::Free => Err(self.wrong_part(span, "a counter holds no data")),
            };
        }
        self.advance();
        self.advance();
        let number = self.token.span;
        let chunk = self.count("a chunk", 0, MAX_CHUNKS, codes::CHUNK_INDEX)?;
        self.expect("]", "the chunk's number")?;
        let (chunks, place) = match (name, draft.scratch_names.get(name)) {
            ("input", _) => (draft.chunks.map(|(c, _)| c), Place::Input(chunk)),
            ("output", _) => (draft.chunks.map(|(c, _)| c), Place::Output(chunk)),
            (_, Some(buffer)) => (Some(draft.scratch[*buffer].chunks), Place::Scratch(*buffer, chunk)),
            (_, None) if draft.lost.contains(&"scratch") => return Err(Failed),
            (_, None) => {
                let mut known: Vec<&str> = draft.scratch_names.keys().copied().collect();
                known.extend(["input", "output"]);
                return Err(self.report(unknown_buffer(name, span, known, &[])));
            }
        };
        if let Some(chunks) = chunks.filter(|chunks| chunk >= *chunks) {
            let message = structure::chunk_message(name, i64::from(chunk));
            let label = format!("it has {chunks} chunks");
            return Err(self.report(Diagnostic::new(codes::CHUNK_INDEX, message, number, label)));
        }
        Ok(place)
    }

    /// Whether `r1.input` or `r1.output` comes next.
    fn at_peer_place(&self, name: &str) -> bool {
        let rest = |text: &'a str, next: &str| text.trim_start_matches([' ', '\t']).strip_prefix(next);
        let is_rank = name.strip_prefix('r').is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()));
        let side = rest(&self.source[self.token.span.end as usize..], ".");
        let is_user = |side: &&'a str| rest(side, "input").or_else(|| rest(side, "output")).is_some();
        is_rank && side.as_ref().is_some_and(is_user)
    }

    fn peer_place(&mut self, after: &str, draft: &Draft<'a>) -> Parse<Place> {
        let rank = self.kernel_rank(after, draft)?;
        self.expect(".", "the rank")?;
        let is_input = self.at_word("input");
        let side = if is_input { "input" } else { "output" };
        self.advance();
        self.expect("[", &format!("`{side}`"))?;
        let number = self.token.span;
        let chunk = self.count("a chunk", 0, MAX_CHUNKS, codes::CHUNK_INDEX)?;
        self.expect("]", "the chunk's number")?;
        if let Some((chunks, _)) = draft.chunks.filter(|(chunks, _)| chunk >= *chunks) {
            let message = structure::chunk_message(side, i64::from(chunk));
            let label = format!("it has {chunks} chunks");
            return Err(self.report(Diagnostic::new(codes::CHUNK_INDEX, message, number, label)));
        }
        Ok(if is_input { Place::PeerInput(rank, chunk) } else { Place::PeerOutput(rank, chunk) })
    }

    fn counter(&mut self, after: &str, draft: &Draft<'a>) -> Parse<Counter> {
        let span = self.token.span;
        let (link, part) = self.link_part("a counter", after, draft)?;
        match part {
            LinkPart::Full => Ok(Counter::Full(link)),
            LinkPart::Free => Ok(Counter::Free(link)),
            LinkPart::Cell(cell) => Ok(Counter::Cell(link, cell)),
            LinkPart::Slot => Err(self.wrong_part(span, "a slot is no counter: write `full` or `free`")),
        }
    }

    fn wrong_part(&mut self, span: Span, label: &str) -> Failed {
        let span = self.span_from(span.start);
        let message = format!("`{}` cannot stand here", self.text(span));
        self.report(Diagnostic::new(codes::OP_SHAPE, message, span, label))
    }

    fn link_part(&mut self, what: &str, after: &str, draft: &Draft<'a>) -> Parse<(Link, LinkPart)> {
        let (number, span) = self.flat_id('l', what, after)?;
        if number as usize >= draft.links.len() && !draft.lost.contains(&"link") {
            let message = format!("there is no link `l{number}`");
            let label = format!("{} links are declared above", draft.links.len());
            return Err(self.report(Diagnostic::new(codes::UNKNOWN_LINK, message, span, label)));
        }
        self.expect(".", "the link")?;
        let parts = [("full", 0), ("free", 1), ("slot", 2), ("cell", 3)];
        let part = match self.word("a part of a link", "`.`", &parts)? {
            0 => LinkPart::Full,
            1 => LinkPart::Free,
            2 => LinkPart::Slot,
            _ => {
                self.expect("[", "`cell`")?;
                let cell = self.count("a cell", 0, u32::MAX, codes::SIZE)?;
                self.expect("]", "the cell's number")?;
                LinkPart::Cell(cell)
            }
        };
        Ok((Link::from_u32(number), part))
    }

    fn finish_kernel_plan(&mut self, name: String, span: Span, mut draft: Draft<'a>) -> Parse<KernelPlan> {
        draft.lanes.sort_by_key(|(lane, _)| lane.name);
        for pair in draft.lanes.windows(2).filter(|w| w[0].0.name == w[1].0.name) {
            self.report(structure::duplicate_lane(pair[1].0.name, pair[1].1, pair[0].1));
        }
        let rooted = draft.collective.is_some_and(|(line, _)| line.collective.rooted());
        for (what, found, example) in [
            ("ranks", draft.ranks.is_some(), "ranks 4"),
            ("collective", draft.collective.is_some(), "collective all_reduce(sum)"),
            ("root", draft.root.is_some() || !rooted, "root r0"),
            ("chunks", draft.chunks.is_some(), "chunks 4"),
            ("protocol", draft.protocol.is_some(), "protocol simple"),
            ("slots", draft.slots.is_some(), "slots 8"),
            ("slot_bytes", draft.slot_bytes.is_some(), "slot_bytes 131072"),
        ] {
            if !found && !draft.lost.contains(&what) {
                self.report(missing("kernel plan", what, span, example));
            }
        }
        let line = draft.collective.ok_or(Failed)?.0;
        Ok(KernelPlan {
            name,
            ranks: draft.ranks.ok_or(Failed)?.0,
            collective: line.collective,
            op: line.op,
            order: line.order,
            root: draft.root.map(|(root, _)| root),
            chunks: draft.chunks.ok_or(Failed)?.0,
            lanes_per_lane: draft.lanes_per_lane.map_or(1, |(lanes, _)| lanes),
            protocol: draft.protocol.ok_or(Failed)?.0,
            slots: draft.slots.ok_or(Failed)?.0,
            slot_bytes: draft.slot_bytes.ok_or(Failed)?.0,
            scratch: draft.scratch,
            links: draft.links,
            lanes: draft.lanes.into_iter().map(|(lane, _)| lane).collect(),
        })
    }
}

/// The addresses that a comment lists, if it lists nothing else.
fn addresses(comment: &str) -> Vec<OpAddress> {
    let words = comment.trim_start_matches('/').split_ascii_whitespace();
    words.map(address).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Reads `r0.1#4`.
fn address(word: &str) -> Option<OpAddress> {
    let (lane, op) = word.strip_prefix('r')?.split_once('#')?;
    let (rank, index) = lane.split_once('.')?;
    let number =
        |digits: &str| digits.parse::<u32>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    let rank = number(rank).filter(|r| *r < MAX_RANKS)?;
    let lane = LaneName { rank: Rank::new(rank as usize), index: number(index)? };
    Some(OpAddress { lane, op: number(op)? })
}
