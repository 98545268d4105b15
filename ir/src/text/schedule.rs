//! Reads flat schedules.
//!
//! A flat text has numbers where a program has expressions, so ops are checked as they are read.
//! What an op refers to may be declared below it: such a reference is kept and checked at the end.

use super::codes;
use super::extras::{Anchor, Extra, Extras};
use super::lexer::Kind;
use super::parser::{Failed, Parse, Parser};
use super::program::{BUFFER_KINDS, PROTOCOLS};
use super::structure;
use super::suggest::meant;
use crate::diagnostic::{Diagnostic, Span};
use crate::entity::{Buffer, Lane, LaneName, Link, Rank};
use crate::expand::resolve::{check_buffer_set, missing, repeated, unknown_buffer};
use crate::expand::{
    MAX_CHUNKS, MAX_LANE_INDEX, MAX_LANES, MAX_LANES_PER_LANE, MAX_LINKS, MAX_OPS, MAX_RANKS,
};
use crate::program::{Braces, CollectiveLine, Trivia};
use crate::schedule::{BufferDecl, LaneDecl, LinkDecl, Op, OpKind, Protocol, Schedule, Slice};
use crate::types::Collective;
use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::HashMap;

const ITEMS: [&str; 9] =
    ["ranks", "collective", "root", "chunks", "lanes", "protocol", "buffer", "link", "lane"];
const OPS: [&str; 6] = ["put", "get", "signal", "wait", "reduce", "copy"];

/// A schedule while it is read.
#[derive(Default)]
struct Draft<'a> {
    ranks: Option<(u32, Span)>,
    collective: Option<(CollectiveLine, Span)>,
    root: Option<(Rank, Span)>,
    chunks: Option<(u32, Span)>,
    lanes_per_lane: Option<(u32, Span)>,
    protocol: Option<(Protocol, Span)>,
    buffers: PrimaryMap<Buffer, BufferDecl>,
    buffer_names: HashMap<&'a str, Buffer>,
    links: PrimaryMap<Link, LinkDecl>,
    lanes: Vec<LaneDecl>,
    ops: usize,
    references: Vec<Reference>,
    extras: Extras,
    /// Lines that could not be read, by their first word: what they would say is not missing.
    lost: Vec<&'a str>,
}

/// A use of something that is not declared yet.
enum Reference {
    Rank(u32, Span),
    Link(u32, Span),
    /// A chunk: its number, the places of buffer and number, and which lane and op refers to it.
    Chunk {
        chunk: u32,
        buffer: Span,
        number: Span,
        lane: usize,
        op: usize,
    },
}

/// Stands for a buffer that is not declared yet.
fn unknown() -> Buffer {
    Buffer::from_u32(u32::MAX - 1)
}

impl<'a> Parser<'a> {
    /// Reads a schedule up to the end of the text.
    pub(crate) fn schedule(&mut self) -> Parse<(Schedule, Extras)> {
        let mut draft = Draft::default();
        draft.extras.before = self.lines_before(true);
        let start = self.advance().span.start;
        let name = self.title("schedule")?;
        if self.at("(") {
            let help = "parameters belong to a `program`; a schedule has a `ranks` line";
            return Err(self.not_flat("parameters", help));
        }
        self.expect("{", "the name")?;
        draft.extras.braces.opening = self.opening_comment();
        while !self.at_end() && !self.at("}") {
            self.flat_item(&mut draft);
        }
        let mut braces = std::mem::take(&mut draft.extras.braces);
        self.close(start, draft.extras.lines.is_empty(), &mut braces);
        draft.extras.braces = braces;
        draft.extras.footer = self.text_end();
        self.finish_schedule(name.text, name.span, draft)
    }

    fn flat_item(&mut self, draft: &mut Draft<'a>) {
        let before = self.lines_before(draft.extras.lines.is_empty());
        let span = self.token.span;
        let word = if self.token.kind == Kind::Name { self.text(span) } else { "" };
        match self.flat_line(word, draft) {
            Ok((anchor, attributes)) => {
                let trivia = self.trivia(before);
                draft.extras.lines.insert(anchor, Extra { trivia, attributes });
            }
            Err(Failed) => {
                draft.lost.push(meant(word, &ITEMS));
                if self.skip_line() {
                    self.skip_block();
                }
                self.trivia(before);
            }
        }
    }

    fn flat_line(
        &mut self,
        word: &'a str,
        draft: &mut Draft<'a>,
    ) -> Parse<(Anchor, Vec<crate::program::Attribute>)> {
        if !ITEMS.contains(&word) {
            if word == "let" {
                return Err(self.word_not_flat("write the value where it is used"));
            }
            return Err(self.unknown_line(&ITEMS, &OPS, "belongs into a lane"));
        }
        let start = self.advance().span.start;
        let mut attributes = Vec::new();
        let anchor = match word {
            "ranks" => {
                let ranks = self.count("ranks", 1, MAX_RANKS, codes::RANKS)?;
                self.set_once(word, start, ranks, &mut draft.ranks);
                Anchor::Ranks
            }
            "collective" => {
                let line = self.collective_line()?;
                self.set_once(word, start, line, &mut draft.collective);
                Anchor::Collective
            }
            "root" => {
                let root = self.flat_rank("`root`", draft)?;
                self.set_once(word, start, root, &mut draft.root);
                Anchor::Root
            }
            "chunks" => {
                let chunks = self.count("chunks", 0, MAX_CHUNKS, codes::SIZE)?;
                self.set_once(word, start, chunks, &mut draft.chunks);
                Anchor::Chunks
            }
            "lanes" => {
                let lanes = self.count("lanes", 1, MAX_LANES_PER_LANE, codes::SIZE)?;
                self.set_once(word, start, lanes, &mut draft.lanes_per_lane);
                Anchor::Lanes
            }
            "protocol" => {
                let protocol = self.word("a protocol", "`protocol`", &PROTOCOLS)?;
                self.set_once(word, start, protocol, &mut draft.protocol);
                Anchor::Protocol
            }
            "buffer" => self.flat_buffer(start, draft)?,
            "link" => {
                let anchor = self.flat_link(start, draft)?;
                attributes = self.hints()?;
                anchor
            }
            _ => return Ok((self.flat_lane(start, draft)?, attributes)),
        };
        self.line_end("this")?;
        Ok((anchor, attributes))
    }

    pub(crate) fn set_once<T>(&mut self, what: &str, start: u32, value: T, place: &mut Option<(T, Span)>) {
        let span = self.span_from(start);
        if let Some((_, first)) = place {
            self.report(repeated(what, span, *first));
        } else {
            *place = Some((value, span));
        }
    }

    /// Reads a number of something.
    pub(crate) fn count(
        &mut self,
        what: &str,
        least: u32,
        most: u32,
        code: crate::diagnostic::Code,
    ) -> Parse<u32> {
        let span = self.token.span;
        let value = self.flat_int(&format!("`{what}`"))?;
        match u32::try_from(value) {
            Ok(count) if (least..=most).contains(&count) => Ok(count),
            _ => Err(self.report(Diagnostic::new(
                code,
                format!("{value} is no number of {what}"),
                span,
                format!("there can be {least} to {most}"),
            ))),
        }
    }

    /// Reads a number, where a program could have an expression.
    pub(crate) fn flat_int(&mut self, after: &str) -> Parse<i64> {
        match self.token.kind {
            Kind::Int(value) if !self.token.first => {
                self.advance();
                let operator = matches!(self.token.kind, Kind::Sign("+" | "-" | "*" | "/" | "%" | "<<"));
                if operator && !self.token.first {
                    return Err(self.not_flat("arithmetic", "write the result, or write a `program`"));
                }
                Ok(value)
            }
            Kind::Name | Kind::Sign("(" | "-") if !self.token.first => {
                Err(self.not_flat("an expression", "write a number, or write a `program`"))
            }
            _ => Err(self.expected("a number", after)),
        }
    }

    /// Reports the word at hand, which begins a line that only a program can have.
    fn word_not_flat(&mut self, help: &str) -> Failed {
        let span = self.advance().span;
        self.not_flat_at(span, &format!("`{}`", self.text(span)), help)
    }

    fn not_flat(&mut self, what: &str, help: &str) -> Failed {
        self.not_flat_at(self.token.span, what, help)
    }

    fn not_flat_at(&mut self, span: Span, what: &str, help: &str) -> Failed {
        let message = format!("a schedule is flat: it cannot contain {what}");
        self.report(Diagnostic::new(codes::FLAT, message, span, "only a `program` can").help(help))
    }

    /// Reads an id such as `r3`.
    pub(crate) fn flat_id(&mut self, letter: char, what: &str, after: &str) -> Parse<(u32, Span)> {
        let span = self.token.span;
        if self.token.first || !matches!(self.token.kind, Kind::Name | Kind::Int(_)) {
            return Err(self.expected(what, after));
        }
        let text = self.text(span);
        let digits = text.strip_prefix(letter).unwrap_or("");
        let plain = digits == "0" || !digits.starts_with('0');
        // The largest number is kept free: it stands for absence in entity maps.
        let number = digits.parse::<u32>().ok().filter(|n| plain && *n < u32::MAX - 1);
        if let Some(number) = number.filter(|_| digits.bytes().all(|b| b.is_ascii_digit())) {
            self.advance();
            return Ok((number, span));
        }
        let message = format!("expected {what}, found `{}`", text.chars().take(40).collect::<String>());
        Err(self.report(
            Diagnostic::new(codes::EXPECTED, message, span, format!("{what} must follow {after}"))
                .help(format!("in a schedule it is written `{letter}` and a number, as in `{letter}3`")),
        ))
    }

    fn flat_rank(&mut self, after: &str, draft: &mut Draft<'a>) -> Parse<Rank> {
        let (number, span) = self.flat_id('r', "a rank", after)?;
        if draft.ranks.is_none_or(|(ranks, _)| number >= ranks) {
            draft.references.push(Reference::Rank(number, span));
        }
        Ok(Rank::from_u32(number))
    }

    fn flat_buffer(&mut self, start: u32, draft: &mut Draft<'a>) -> Parse<Anchor> {
        let name = self.name("a buffer's name", "`buffer`")?;
        self.expect(":", "a buffer's name")?;
        let kind = self.word("a kind of buffer", "`:`", &BUFFER_KINDS)?;
        self.expect("[", "the kind")?;
        let chunks = self.count("chunks", 0, MAX_CHUNKS, codes::SIZE)?;
        self.expect("]", "the number of chunks")?;
        let key = self.text(name.span);
        if let Some(first) = draft.buffer_names.get(key) {
            let first = draft.buffers[*first].span;
            let message = format!("the buffer `{}` is declared already", name.text);
            self.report(
                Diagnostic::new(codes::DUPLICATE_NAME, message, name.span, "declared again")
                    .label(first, "first here"),
            );
            return Err(Failed);
        }
        let span = self.span_from(start);
        let buffer = draft.buffers.push(BufferDecl { name: name.text, kind, chunks, span });
        draft.buffer_names.insert(key, buffer);
        Ok(Anchor::Buffer(buffer.index()))
    }

    fn flat_link(&mut self, start: u32, draft: &mut Draft<'a>) -> Parse<Anchor> {
        let (number, span) = self.flat_id('l', "a link", "`link`")?;
        self.expect(":", "the link")?;
        let from = self.flat_rank("`:`", draft)?;
        self.expect("->", "the sending rank")?;
        let to = self.flat_rank("`->`", draft)?;
        let next = draft.links.len();
        // After a link that could not be read, nobody knows the next one's number.
        if number as usize != next && !draft.lost.contains(&"link") {
            self.report(
                Diagnostic::new(
                    codes::LINK_ORDER,
                    format!("this link should be `l{next}`"),
                    span,
                    format!("expected `l{next}`"),
                )
                .help("the links of a schedule are numbered from `l0`, in order"),
            );
        }
        let span = self.span_from(start);
        self.within(next, MAX_LINKS, "links", span)?;
        draft.links.push(LinkDecl { from, to, span });
        Ok(Anchor::Link(next))
    }

    /// Checks that there is room for one more.
    pub(crate) fn within(&mut self, count: usize, most: usize, what: &str, span: Span) -> Parse<()> {
        if count < most {
            return Ok(());
        }
        let message = format!("this schedule has more than {most} {what}");
        Err(self.report(Diagnostic::new(codes::TOO_MUCH, message, span, "one too many")))
    }

    fn flat_lane(&mut self, start: u32, draft: &mut Draft<'a>) -> Parse<Anchor> {
        let rank = self.flat_rank("`lane`", draft)?;
        self.expect(".", "the rank")?;
        let index = self.count("a lane", 0, MAX_LANE_INDEX, codes::LANE_INDEX)?;
        let name = LaneName { rank, index };
        let span = self.span_from(start);
        if self.at_word("for") || self.at_word("if") {
            return Err(self.not_flat("families", "write every lane, or write a `program`"));
        }
        if self.token.first {
            return Err(self.expected("`{`", "the lane"));
        }
        let open = self.token.span.start;
        self.expect("{", "the lane")?;
        self.within(draft.lanes.len(), MAX_LANES, "lanes", span)?;
        let mut braces = Braces { opening: self.opening_comment(), ..Braces::default() };
        draft.lanes.push(LaneDecl { name, ops: Vec::new(), span });
        let mut first = true;
        while !self.at_end() && !self.at("}") {
            self.flat_op(name, first, draft);
            first = false;
        }
        self.close(open, first, &mut braces);
        if braces != Braces::default() {
            draft.extras.lanes.insert(name, braces);
        }
        Ok(Anchor::Lane(name))
    }

    fn flat_op(&mut self, lane: LaneName, first: bool, draft: &mut Draft<'a>) {
        let before = self.lines_before(first);
        let span = self.token.span;
        let word = if self.token.kind == Kind::Name { self.text(span) } else { "" };
        let result = self.flat_op_line(word, draft);
        if result.is_err() && self.skip_line() {
            self.skip_block();
        }
        let trivia = self.trivia(before);
        let Ok((kind, attributes)) = result else { return };
        let ops = &mut draft.lanes.last_mut().expect("ops are read inside a lane").ops;
        if trivia != Trivia::default() || !attributes.is_empty() {
            let extra = Extra { trivia, attributes };
            draft.extras.lines.insert(Anchor::Op(lane, ops.len()), extra);
        }
        ops.push(Op { kind, span: self.span_from(span.start) });
        draft.ops += 1;
    }

    fn flat_op_line(
        &mut self,
        word: &str,
        draft: &mut Draft<'a>,
    ) -> Parse<(OpKind, Vec<crate::program::Attribute>)> {
        if !OPS.contains(&word) {
            return Err(match word {
                "let" => self.word_not_flat("write the value where it is used"),
                "for" | "if" => self.word_not_flat("write every op, or write a `program`"),
                _ => self.unknown_line(&OPS, &ITEMS, "belongs outside the lanes"),
            });
        }
        let span = self.advance().span;
        self.within(draft.ops, MAX_OPS, "ops", span)?;
        let after = format!("`{word}`");
        let kind = match word {
            "signal" => OpKind::Signal { link: self.flat_link_use(&after, draft)? },
            "wait" => OpKind::Wait { link: self.flat_link_use(&after, draft)? },
            "put" => {
                let src = self.flat_slice(&after, draft)?;
                self.expect("->", "the source")?;
                let peer = self.flat_peer("`->`", draft)?;
                let dst = self.flat_slice("`.`", draft)?;
                self.expect_word("via", "the destination")?;
                OpKind::Put { src, peer, dst, link: self.flat_link_use("`via`", draft)? }
            }
            "get" => {
                let peer = self.flat_peer(&after, draft)?;
                let src = self.flat_slice("`.`", draft)?;
                self.expect("->", "the source")?;
                let dst = self.flat_slice("`->`", draft)?;
                self.expect_word("via", "the destination")?;
                OpKind::Get { peer, src, dst, link: self.flat_link_use("`via`", draft)? }
            }
            "reduce" => {
                let dst = self.flat_slice(&after, draft)?;
                self.expect("+=", "the accumulator")?;
                OpKind::Reduce { dst, src: self.flat_slice("`+=`", draft)? }
            }
            _ => {
                let src = self.flat_slice(&after, draft)?;
                self.expect("->", "the source")?;
                OpKind::Copy { src, dst: self.flat_slice("`->`", draft)? }
            }
        };
        let attributes = self.hints()?;
        self.line_end("this")?;
        Ok((kind, attributes))
    }

    fn flat_link_use(&mut self, after: &str, draft: &mut Draft<'a>) -> Parse<Link> {
        let (number, span) = self.flat_id('l', "a link", after)?;
        if number as usize >= draft.links.len() {
            draft.references.push(Reference::Link(number, span));
        }
        Ok(Link::from_u32(number))
    }

    /// Reads the rank of a peer and the dot after it.
    fn flat_peer(&mut self, after: &str, draft: &mut Draft<'a>) -> Parse<Rank> {
        let span = self.token.span;
        let rank = self.token.kind == Kind::Name && draft.buffer_names.contains_key(self.text(span));
        if rank && !self.token.first {
            let name = self.text(span);
            return Err(self.report(
                Diagnostic::new(
                    codes::OP_SHAPE,
                    "this op needs the rank whose memory it uses",
                    span,
                    "a chunk of which rank?",
                )
                .help(format!("write `r3.{name}[…]` for rank 3; within a rank use `copy`")),
            ));
        }
        let rank = self.flat_rank(after, draft)?;
        self.expect(".", "the rank")?;
        Ok(rank)
    }

    fn flat_slice(&mut self, after: &str, draft: &mut Draft<'a>) -> Parse<Slice> {
        if self.token.kind != Kind::Name || self.token.first {
            return Err(self.expected("a buffer", after));
        }
        let name = self.advance().span;
        if self.at(".") && !self.token.first {
            return Err(self.report(
                Diagnostic::new(
                    codes::OP_SHAPE,
                    "this op cannot use another rank's memory here",
                    name,
                    "a peer's chunk",
                )
                .help("`put` writes a peer's memory, `get` reads it, other ops stay within a rank"),
            ));
        }
        if !self.at("[") || self.token.first {
            return Err(self.expected("`[`", "the buffer"));
        }
        self.advance();
        let number = self.token.span;
        let value = self.flat_int("`[`")?;
        self.expect("]", "the chunk's number")?;
        // What does not fit is in no buffer: the largest number stands for it.
        let chunk = u32::try_from(value).unwrap_or(u32::MAX);
        let known = draft.buffer_names.get(self.text(name)).copied();
        match known.filter(|b| chunk < draft.buffers[*b].chunks) {
            Some(buffer) => Ok(Slice { buffer, chunk }),
            None => {
                let lane = draft.lanes.len() - 1;
                let op = draft.lanes[lane].ops.len();
                draft.references.push(Reference::Chunk { chunk, buffer: name, number, lane, op });
                Ok(Slice { buffer: unknown(), chunk })
            }
        }
    }

    /// Checks what needed the whole text, and puts the schedule together.
    fn finish_schedule(
        &mut self,
        name: String,
        span: Span,
        mut draft: Draft<'a>,
    ) -> Parse<(Schedule, Extras)> {
        self.check_heading(span, &draft);
        check_buffer_set(
            draft.buffers.values().map(|b| (b.name.as_str(), b.kind, b.span)),
            &mut self.diagnostics,
        );
        self.check_references(&mut draft);
        draft.lanes.sort_by_key(|l| l.name);
        for pair in draft.lanes.windows(2).filter(|w| w[0].name == w[1].name) {
            self.report(structure::duplicate_lane(pair[1].name, pair[1].span, pair[0].span));
        }
        let (Some((ranks, _)), Some((line, _))) = (draft.ranks, draft.collective) else {
            return Err(Failed);
        };
        let schedule = Schedule {
            name,
            ranks,
            collective: line.collective,
            op: line.op,
            order: line.order,
            root: draft.root.map(|(r, _)| r),
            chunks: draft.chunks.map_or(0, |(c, _)| c),
            lanes_per_lane: draft.lanes_per_lane.map_or(1, |(l, _)| l),
            protocol: draft.protocol.map_or(Protocol::Simple, |(p, _)| p),
            buffers: draft.buffers,
            links: draft.links,
            lanes: draft.lanes.into_iter().collect::<PrimaryMap<Lane, LaneDecl>>(),
        };
        if self.diagnostics.is_empty() {
            let chunks_span = draft.chunks.map_or(span, |(_, s)| s);
            structure::check_sizes(&schedule, chunks_span, &mut self.diagnostics);
        }
        if self.diagnostics.is_empty() { Ok((schedule, draft.extras)) } else { Err(Failed) }
    }

    fn check_heading(&mut self, span: Span, draft: &Draft<'a>) {
        if self.at_end() && !self.diagnostics.is_empty() && draft.ranks.is_none() {
            // Reading may have been given up above the heading.
            return;
        }
        let collective = draft.collective.map(|(line, _)| line.collective);
        let barrier = collective == Some(Collective::Barrier);
        let mut needed = vec![("ranks", draft.ranks.is_some(), "ranks 4")];
        needed.push(("collective", collective.is_some(), "collective all_reduce(sum)"));
        needed.push(("chunks", draft.chunks.is_some() || barrier, "chunks 4"));
        let rooted = collective.is_some_and(Collective::rooted);
        needed.push(("root", draft.root.is_some() || !rooted, "root r0"));
        for (what, found, example) in needed {
            if !found && !draft.lost.contains(&what) {
                self.report(missing("schedule", what, span, example));
            }
        }
        if let (Some(collective), Some((_, span))) = (collective, draft.root)
            && !rooted
        {
            let message = format!("`{collective}` has no root");
            self.report(
                Diagnostic::new(codes::NOT_FOR_COLLECTIVE, message, span, "a root of nothing")
                    .help("remove the line"),
            );
        }
        if let (Some((0, span)), Some(collective), false) = (draft.chunks, collective, barrier) {
            let message = "0 is no number of chunks";
            let label = format!("`{collective}` needs at least 1");
            self.report(Diagnostic::new(codes::SIZE, message, span, label));
        }
    }

    /// Looks again for what was not declared when it was used.
    fn check_references(&mut self, draft: &mut Draft<'a>) {
        for reference in std::mem::take(&mut draft.references) {
            match reference {
                Reference::Rank(number, span) => {
                    if let Some((ranks, _)) = draft.ranks.filter(|(ranks, _)| number >= *ranks) {
                        let label = format!("there are {ranks}, r0 to r{}", ranks - 1);
                        let message = structure::rank_message(i64::from(number));
                        self.report(Diagnostic::new(codes::RANK_INDEX, message, span, label));
                    }
                }
                Reference::Link(number, span) => self.check_link(number, span, draft),
                Reference::Chunk { chunk, buffer, number, lane, op } => {
                    let name = self.text(buffer);
                    match draft.buffer_names.get(name).copied() {
                        Some(found) if chunk < draft.buffers[found].chunks => {
                            let ops = &mut draft.lanes[lane].ops;
                            // The line may have failed further on, and its op be missing.
                            if let Some(op) = ops.get_mut(op) {
                                declare(&mut op.kind, chunk, found);
                            }
                        }
                        Some(found) => {
                            let chunks = draft.buffers[found].chunks;
                            let written = self.text(number);
                            let message = format!("there is no chunk `{name}[{written}]`");
                            let label = format!("the buffer has {chunks} chunks");
                            self.report(
                                Diagnostic::new(codes::CHUNK_INDEX, message, number, label)
                                    .label(draft.buffers[found].span, "declared here"),
                            );
                        }
                        None if draft.lost.contains(&"buffer") => {}
                        None => {
                            let known = draft.buffer_names.keys().copied().collect();
                            self.report(unknown_buffer(name, buffer, known, &[]));
                        }
                    }
                }
            }
            if self.at_limit() {
                return;
            }
        }
    }

    fn check_link(&mut self, number: u32, span: Span, draft: &Draft<'a>) {
        let links = draft.links.len();
        if (number as usize) < links || draft.lost.contains(&"link") {
            return;
        }
        let label = match links {
            0 => "this schedule has no links".to_owned(),
            1 => "the only link is l0".to_owned(),
            _ => format!("the links are l0 to l{}", links - 1),
        };
        let message = format!("there is no link `l{number}`");
        self.report(Diagnostic::new(codes::UNKNOWN_LINK, message, span, label));
    }
}

/// Puts `buffer` where `kind` uses chunk `chunk` of a buffer that was unknown. References come in the
/// order of the text, so the first such use is the one meant; one op's uses have one text order.
fn declare(kind: &mut OpKind, chunk: u32, buffer: Buffer) {
    let slices: [&mut Slice; 2] = match kind {
        OpKind::Put { src, dst, .. } | OpKind::Get { src, dst, .. } | OpKind::Copy { src, dst } => [src, dst],
        OpKind::Reduce { dst, src } => [dst, src],
        OpKind::Signal { .. } | OpKind::Wait { .. } => return,
    };
    if let Some(slice) = slices.into_iter().find(|s| s.buffer == unknown() && s.chunk == chunk) {
        slice.buffer = buffer;
    }
}
