//! Reads programs.

use super::codes;
use super::lexer::Kind;
use super::parser::{Failed, MAX_BLOCK_DEPTH, Parse, Parser, listed};
use super::suggest::{meant, nearest};
use crate::diagnostic::{Diagnostic, Span};
use crate::program::{
    Attribute, Block, Braces, Branch, BufferItem, Clause, CollectiveLine, Expr, ExprKind, Item, ItemKind,
    LaneItem, Let, LinkExpr, LinkItem, Name, OpLine, Parameter, ParameterKind, Program, Range,
    RemoteSliceExpr, SliceExpr, Statement, StatementKind, TriviaLine,
};
use crate::schedule::{BufferKind, Order, Protocol};
use crate::types::{Collective, ReduceOp};
use std::str::FromStr;

/// The words that a line of a program's body may begin with.
const ITEMS: [&str; 8] = ["collective", "chunks", "lanes", "protocol", "let", "buffer", "link", "lane"];

/// The words that a line of a lane may begin with.
const STATEMENTS: [&str; 9] = ["put", "get", "signal", "wait", "reduce", "copy", "let", "for", "if"];

/// Kinds of buffers by name.
pub(crate) const BUFFER_KINDS: [(&str, BufferKind); 4] = [
    ("input", BufferKind::Input),
    ("output", BufferKind::Output),
    ("inout", BufferKind::Inout),
    ("scratch", BufferKind::Scratch),
];

/// Protocols by name.
pub(crate) const PROTOCOLS: [(&str, Protocol); 3] =
    [("ll", Protocol::Ll), ("ll128", Protocol::Ll128), ("simple", Protocol::Simple)];

/// Stands among lost names for a link whose name is missing: any unknown link may be that one.
pub(crate) const NAMELESS_LINK: &str = "link:";

/// The names that lines with mistakes would have declared: using them is no second mistake.
pub(crate) type Lost = std::collections::HashSet<String>;

impl Parser<'_> {
    /// Reads a program up to the end of the text. `lost` gets the names that failed lines declare.
    pub(crate) fn program(&mut self, lost: &mut Lost) -> Parse<Program> {
        let before = self.lines_before(true);
        let start = self.advance().span.start;
        let name = self.title("program")?;
        let parameters = self.parameters();
        let Ok(parameters) = parameters.and_then(|p| self.expect("{", "the parameters").map(|()| p)) else {
            // Without parameters every name in the body would be unknown.
            return Err(Failed);
        };
        let mut braces = Braces { opening: self.opening_comment(), ..Braces::default() };
        let mut items = Vec::new();
        while !self.at_end() && !self.at("}") {
            let first = items.is_empty();
            if let Ok(item) = self.item(first, lost) {
                items.push(item);
            }
        }
        self.close(start, items.is_empty(), &mut braces);
        let span = self.span_from(start);
        let footer = self.text_end();
        Ok(Program { name, parameters, items, before, braces, footer, span })
    }

    /// Reads `@NAME`.
    pub(crate) fn title(&mut self, after: &str) -> Parse<Name> {
        self.expect("@", &format!("`{after}`"))?;
        self.name("a name", "`@`")
    }

    /// Reads the `}` of a block that began at `start` and may be `empty`.
    pub(crate) fn close(&mut self, start: u32, empty: bool, braces: &mut Braces) {
        braces.last = self.lines_before(empty);
        if self.at_end() {
            let open = Span { start, end: start + 1 };
            let span = Span { start: self.end, end: self.end };
            self.report(
                Diagnostic::new(codes::UNCLOSED, "a `}` is missing", span, "the text ends here")
                    .label(open, "this is not closed"),
            );
            return;
        }
        self.advance();
        if !self.at_word("else") {
            braces.closing = self.line_comment(&mut braces.last);
        }
    }

    /// Reads what may follow the closing brace: comments only.
    pub(crate) fn text_end(&mut self) -> Vec<TriviaLine> {
        let footer = self.lines_before(false);
        if !self.at_end() {
            let span = self.token.span;
            self.report(
                Diagnostic::new(
                    codes::TRAILING,
                    format!("{} stands after the end", self.found()),
                    span,
                    "nothing may follow the closing `}`",
                )
                .help("a file holds one program or schedule"),
            );
        }
        footer
    }

    fn parameters(&mut self) -> Parse<Vec<Parameter>> {
        self.expect("(", "the name")?;
        let mut parameters = Vec::new();
        while !self.at(")") {
            parameters.push(self.parameter()?);
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")", "the parameters")?;
        Ok(parameters)
    }

    fn parameter(&mut self) -> Parse<Parameter> {
        if !self.at_name() {
            return Err(self.expected("a parameter's name", "`(` or `,`"));
        }
        let span = self.advance().span;
        let name = Name { text: self.text(span).to_owned(), span };
        let kind = if self.eat(":") {
            self.word(
                "`ranks` or `root`",
                "`:`",
                &[("ranks", ParameterKind::Ranks), ("root", ParameterKind::Root)],
            )?
        } else if self.eat("=") {
            let negative = self.eat("-");
            let Kind::Int(value) = self.token.kind else {
                return Err(self.expected("a number", "`=`"));
            };
            self.advance();
            ParameterKind::Integer { default: if negative { -value } else { value } }
        } else {
            return Err(self.expected("`: ranks`, `: root` or `= NUMBER`", "a parameter's name"));
        };
        Ok(Parameter { span: self.span_from(name.span.start), name, kind })
    }

    fn item(&mut self, first: bool, lost: &mut Lost) -> Parse<Item> {
        let before = self.lines_before(first);
        let start = self.token.span.start;
        let kind = self.item_kind(lost);
        let span = self.span_from(start);
        if kind.is_err() {
            self.lose(start, lost);
            if self.skip_line() {
                self.discard_block(lost, 0);
            }
        }
        let trivia = self.trivia(before);
        Ok(Item { kind: kind?, trivia, span })
    }

    /// Notes what the failed line at `start` would have declared, its first word misspelt or not.
    fn lose(&self, start: u32, lost: &mut Lost) {
        let line = self.source[start as usize..].lines().next().unwrap_or_default();
        let cut =
            |text: &'_ str| text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (word, rest) = line.split_at(cut(line));
        let rest = rest.trim_start();
        match meant(word, &ITEMS) {
            needed @ ("collective" | "chunks") => {
                lost.insert(needed.to_owned());
            }
            "link" if cut(rest) == 0 => {
                lost.insert(NAMELESS_LINK.to_owned());
            }
            "let" | "buffer" | "link" => {
                let name = &rest[..cut(rest)];
                // A name cannot begin with a digit; somebody may have thought that it can.
                lost.insert(name.to_owned());
                lost.insert(name.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned());
            }
            _ => {}
        }
    }

    fn item_kind(&mut self, lost: &mut Lost) -> Parse<ItemKind> {
        let span = self.token.span;
        let word = if self.token.kind == Kind::Name { self.text(span) } else { "" };
        if !ITEMS.contains(&word) {
            return Err(self.unknown_line(&ITEMS, &STATEMENTS, "belongs into a lane"));
        }
        self.advance();
        let kind = match word {
            "collective" => ItemKind::Collective(self.collective_line()?),
            "chunks" => ItemKind::Chunks(self.expr("`chunks`")?),
            "lanes" => ItemKind::Lanes(self.expr("`lanes`")?),
            "protocol" => ItemKind::Protocol(self.word("a protocol", "`protocol`", &PROTOCOLS)?),
            "let" => ItemKind::Let(self.let_line(lost)?),
            "buffer" => ItemKind::Buffer(self.buffer_line(lost)?),
            "link" => ItemKind::Link(self.link_line(lost)?),
            "lane" => return Ok(ItemKind::Lane(self.lane_item(lost)?)),
            _ => unreachable!("every word of the list is matched"),
        };
        self.line_end("this")?;
        Ok(kind)
    }

    /// Reports a line that begins with none of `known`; `elsewhere` are words of another place.
    pub(crate) fn unknown_line(&mut self, known: &[&str], elsewhere: &[&str], belongs: &str) -> Failed {
        let span = self.token.span;
        let found = self.found();
        let word = if self.token.kind == Kind::Name { self.text(span) } else { "" };
        // Whatever stands here, the reader must get past it.
        self.advance();
        let label = "no line begins like this here";
        let diagnostic = Diagnostic::new(codes::STATEMENT, format!("unexpected {found}"), span, label);
        let help = if elsewhere.contains(&word) {
            format!("`{word}` {belongs}")
        } else if let Some(name) = nearest(word, known.iter().copied()) {
            format!("did you mean `{name}`?")
        } else {
            format!("a line here begins with {}", listed(known))
        };
        self.report(diagnostic.help(help))
    }

    /// Reads what follows `collective`.
    pub(crate) fn collective_line(&mut self) -> Parse<CollectiveLine> {
        let names = Collective::ALL.map(|c| (c.name(), c));
        let span = self.token.span;
        let collective = self.synonym("a collective", "`collective`", &names)?;
        let mut line = CollectiveLine { collective, op: None, order: Order::Same };
        if self.at("(") {
            let start = self.advance().span.start;
            let ops = ReduceOp::ALL.map(|o| (o.name(), o));
            line.op = Some(self.synonym("an operation", "`(`", &ops)?);
            self.expect(")", "the operation")?;
            if !collective.reduces() {
                let end = self.end;
                self.report(useless(collective, Span { start, end }, "the operation").label(span, "this"));
            }
        }
        for attribute in self.attributes()? {
            let value = attribute.value;
            match attribute.name.text.as_str() {
                "order" if value.text == "any" || value.text == "same" => {
                    line.order = if value.text == "any" { Order::Any } else { Order::Same };
                    if !collective.reduces() {
                        self.report(useless(collective, attribute.name.span, "`order`"));
                    }
                }
                "order" => {
                    self.report(bad_value(&value, "`order` is `same` or `any`"));
                }
                _ => {
                    self.report(bad_attribute(&attribute.name, "order"));
                }
            }
        }
        Ok(line)
    }

    /// Reads one of the words of `table`, or another spelling of it.
    fn synonym<T: Copy + FromStr>(&mut self, what: &str, after: &str, table: &[(&str, T)]) -> Parse<T> {
        match self.text(self.token.span).parse() {
            Ok(value) if self.token.kind == Kind::Name && !self.token.first => {
                self.advance();
                Ok(value)
            }
            _ => self.word(what, after, table),
        }
    }

    /// Reads `{ name = value, … }` if it is next.
    pub(crate) fn attributes(&mut self) -> Parse<Vec<Attribute>> {
        let mut attributes = Vec::new();
        if self.token.first || !self.eat("{") {
            return Ok(attributes);
        }
        while !self.at("}") {
            let name = self.name("an attribute's name", "`{` or `,`")?;
            self.expect("=", "an attribute's name")?;
            let value = self.name("a word", "`=`")?;
            attributes.push(Attribute { name, value });
            if !self.eat(",") {
                break;
            }
        }
        self.expect("}", "the attributes")?;
        Ok(attributes)
    }

    /// Reads the attributes of a link or op and checks their names and values.
    pub(crate) fn hints(&mut self) -> Parse<Vec<Attribute>> {
        let attributes = self.attributes()?;
        for attribute in &attributes {
            if attribute.name.text != "protocol" {
                self.report(bad_attribute(&attribute.name, "protocol"));
            } else if !PROTOCOLS.iter().any(|(name, _)| *name == attribute.value.text) {
                self.report(bad_value(&attribute.value, "a protocol is `ll`, `ll128` or `simple`"));
            }
        }
        Ok(attributes)
    }

    fn let_line(&mut self, lost: &mut Lost) -> Parse<Let> {
        let name = self.name("a name", "`let`")?;
        let value = self.expect("=", "the name").and_then(|()| self.expr("`=`"));
        let value = value.inspect_err(|_| {
            lost.insert(name.text.clone());
        })?;
        Ok(Let { name, value })
    }

    fn buffer_line(&mut self, lost: &mut Lost) -> Parse<BufferItem> {
        let name = self.name("a buffer's name", "`buffer`")?;
        let rest = self.buffer_rest();
        let (kind, chunks) = rest.inspect_err(|_| {
            lost.insert(name.text.clone());
        })?;
        Ok(BufferItem { name, kind, chunks })
    }

    fn buffer_rest(&mut self) -> Parse<(BufferKind, Expr)> {
        self.expect(":", "a buffer's name")?;
        let kind = self.word("a kind of buffer", "`:`", &BUFFER_KINDS)?;
        let chunks = self.index("the kind")?;
        Ok((kind, chunks))
    }

    /// Reads `[EXPR]`.
    fn index(&mut self, after: &str) -> Parse<Expr> {
        if !self.at("[") || self.token.first {
            return Err(self.expected("`[`", after));
        }
        let start = self.token.span.start;
        let mut indices = self.bracketed_exprs()?;
        if indices.len() > 1 {
            let span = self.span_from(start);
            let label = format!("{} numbers", indices.len());
            return Err(self.report(Diagnostic::new(codes::ARITY, "a buffer has one index", span, label)));
        }
        Ok(indices.swap_remove(0))
    }

    fn link_line(&mut self, lost: &mut Lost) -> Parse<LinkItem> {
        let name = self.name("a link's name", "`link`")?;
        let item = self.link_rest(name.clone(), lost);
        item.inspect_err(|_| {
            lost.insert(name.text);
        })
    }

    fn link_rest(&mut self, name: Name, lost: &mut Lost) -> Parse<LinkItem> {
        let indices = if self.at("[") { self.bracketed_exprs()? } else { Vec::new() };
        self.expect(":", "a link's name")?;
        let from = self.expr("`:`")?;
        self.expect("->", "the sending rank")?;
        let to = self.expr("`->`")?;
        let clauses = self.clauses(lost)?;
        let attributes = self.hints()?;
        Ok(LinkItem { name, indices, from, to, clauses, attributes })
    }

    fn clauses(&mut self, lost: &mut Lost) -> Parse<Vec<Clause>> {
        let mut clauses = Vec::new();
        while !self.token.first {
            if self.eat_word("for") {
                clauses.push(Clause::For(self.range(lost)?));
            } else if self.eat_word("if") {
                clauses.push(Clause::If(self.expr("`if`")?));
            } else {
                break;
            }
        }
        Ok(clauses)
    }

    fn range(&mut self, lost: &mut Lost) -> Parse<Range> {
        let name = self.name("a name", "`for`")?;
        let bounds = self.bounds();
        let (start, end) = bounds.inspect_err(|_| {
            lost.insert(name.text.clone());
        })?;
        Ok(Range { name, start, end })
    }

    fn bounds(&mut self) -> Parse<(Expr, Expr)> {
        self.expect_word("in", "the name")?;
        let start = self.expr("`in`")?;
        self.expect("..", "the first value")?;
        Ok((start, self.expr("`..`")?))
    }

    fn lane_item(&mut self, lost: &mut Lost) -> Parse<LaneItem> {
        let rank = self.expr("`lane`")?;
        self.expect(".", "the rank")?;
        let index = self.primary_expr("`.`")?;
        let clauses = self.clauses(lost)?;
        let body = self.block("the lane", lost, 0)?;
        Ok(LaneItem { rank, index, clauses, body })
    }

    /// Reads `{ … }`. Fails only if there is no block.
    fn block(&mut self, after: &str, lost: &mut Lost, depth: u32) -> Parse<Block> {
        if self.token.first {
            return Err(self.expected("`{`", after));
        }
        let start = self.token.span.start;
        self.expect("{", after)?;
        Ok(self.block_rest(start, lost, depth))
    }

    /// Reads the rest of a block whose `{` stands at `start`.
    fn block_rest(&mut self, start: u32, lost: &mut Lost, depth: u32) -> Block {
        let mut block = Block::default();
        if depth >= MAX_BLOCK_DEPTH {
            self.report(Diagnostic::new(
                codes::DEPTH,
                format!("blocks are nested more than {MAX_BLOCK_DEPTH} deep"),
                Span { start, end: start + 1 },
                "too deep here",
            ));
            self.skip_block();
            return block;
        }
        block.braces.opening = self.opening_comment();
        while !self.at_end() && !self.at("}") {
            let first = block.statements.is_empty();
            if let Ok(statement) = self.statement(first, lost, depth) {
                block.statements.push(statement);
            }
        }
        self.close(start, block.statements.is_empty(), &mut block.braces);
        block
    }

    /// Skips to the `}` that closes the block at hand, and past it.
    pub(crate) fn skip_block(&mut self) {
        let mut open = 1u32;
        while open > 0 && !self.at_end() {
            match self.advance().kind {
                Kind::Sign("{") => open += 1,
                Kind::Sign("}") => open -= 1,
                _ => {}
            }
        }
    }

    /// Reads the rest of a block, and of every `else`, whose heading could not be read.
    fn discard_block(&mut self, lost: &mut Lost, depth: u32) {
        loop {
            self.block_rest(self.end.saturating_sub(1), lost, depth);
            if !self.eat_word("else") || !self.skip_line() {
                return;
            }
        }
    }

    fn statement(&mut self, first: bool, lost: &mut Lost, depth: u32) -> Parse<Statement> {
        let before = self.lines_before(first);
        let start = self.token.span.start;
        let kind = self.statement_kind(lost, depth);
        let span = self.span_from(start);
        if kind.is_err() && self.skip_line() {
            self.discard_block(lost, depth + 1);
        }
        let trivia = self.trivia(before);
        Ok(Statement { kind: kind?, trivia, span })
    }

    fn statement_kind(&mut self, lost: &mut Lost, depth: u32) -> Parse<StatementKind> {
        let span = self.token.span;
        let word = if self.token.kind == Kind::Name { self.text(span) } else { "" };
        if !STATEMENTS.contains(&word) {
            return Err(self.unknown_line(&STATEMENTS, &ITEMS, "belongs outside the lanes"));
        }
        self.advance();
        let kind = match word {
            "let" => StatementKind::Let(self.let_line(lost)?),
            "for" => {
                let range = self.range(lost)?;
                let body = self.block("the range", lost, depth + 1)?;
                return Ok(StatementKind::For { range, body });
            }
            "if" => return self.if_statement(lost, depth),
            _ => {
                let op = self.op(word)?;
                StatementKind::Op { op, attributes: self.hints()? }
            }
        };
        self.line_end("this")?;
        Ok(kind)
    }

    fn if_statement(&mut self, lost: &mut Lost, depth: u32) -> Parse<StatementKind> {
        let (mut branches, mut otherwise) = (Vec::new(), None);
        loop {
            let condition = self.expr("`if`")?;
            let body = self.block("the condition", lost, depth + 1)?;
            branches.push(Branch { condition, body });
            if !self.eat_word("else") {
                break;
            }
            if !self.eat_word("if") {
                otherwise = Some(self.block("`else`", lost, depth + 1)?);
                break;
            }
        }
        Ok(StatementKind::If { branches, otherwise })
    }

    /// Reads what follows the word of an op.
    fn op(&mut self, word: &str) -> Parse<OpLine> {
        let after = format!("`{word}`");
        Ok(match word {
            "signal" => OpLine::Signal { link: self.link(&after)? },
            "wait" => OpLine::Wait { link: self.link(&after)? },
            "put" => {
                let src =
                    self.slice(&after, "a `put` reads its own rank's memory; a `get` reads a peer's")?;
                self.expect("->", "the source")?;
                let dst = self.remote("`->`", "within a rank use `copy`")?;
                self.expect_word("via", "the destination")?;
                OpLine::Put { src, dst, link: self.link("`via`")? }
            }
            "get" => {
                let src = self.remote(&after, "within a rank use `copy`")?;
                self.expect("->", "the source")?;
                let dst =
                    self.slice("`->`", "a `get` writes its own rank's memory; a `put` writes a peer's")?;
                self.expect_word("via", "the destination")?;
                OpLine::Get { src, dst, link: self.link("`via`")? }
            }
            "reduce" => {
                let help = "a `reduce` works within a rank; move the chunk with `put` first";
                let dst = self.slice(&after, help)?;
                self.expect("+=", "the accumulator")?;
                OpLine::Reduce { dst, src: self.slice("`+=`", help)? }
            }
            _ => {
                let src = self.slice(&after, "a `copy` stays within a rank; use `get`")?;
                self.expect("->", "the source")?;
                OpLine::Copy { src, dst: self.slice("`->`", "a `copy` stays within a rank; use `put`")? }
            }
        })
    }

    fn link(&mut self, after: &str) -> Parse<LinkExpr> {
        let name = self.name("a link", after)?;
        let indices = if self.at("[") && !self.token.first { self.bracketed_exprs()? } else { Vec::new() };
        Ok(LinkExpr { span: self.span_from(name.span.start), name, indices })
    }

    /// Reads a chunk of the rank's own; `help` is for those who write a peer's.
    fn slice(&mut self, after: &str, help: &str) -> Parse<SliceExpr> {
        let start = self.token.span.start;
        let head = self.primary_expr(after)?;
        if self.at(".") && !self.token.first {
            self.advance();
            let name = self.name("a buffer", "`.`")?;
            self.index(&format!("the buffer `{}`", name.text))?;
            let span = self.span_from(start);
            self.report(
                Diagnostic::new(
                    codes::OP_SHAPE,
                    "this op cannot use another rank's memory here",
                    span,
                    "a peer's chunk",
                )
                .help(help),
            );
            return Err(Failed);
        }
        let name = self.plain_name(head)?;
        self.slice_rest(name)
    }

    /// Reads a chunk of a peer's; `help` is for those who write one of the rank's own.
    fn remote(&mut self, after: &str, help: &str) -> Parse<RemoteSliceExpr> {
        let head = self.primary_expr(after)?;
        if self.at(".") && !self.token.first {
            self.advance();
            let name = self.name("a buffer", "`.`")?;
            return Ok(RemoteSliceExpr { rank: head, slice: self.slice_rest(name)? });
        }
        let name = self.plain_name(head)?;
        let slice = self.slice_rest(name)?;
        let text = self.text(slice.span);
        let text = text.chars().take(60).collect::<String>();
        self.report(
            Diagnostic::new(
                codes::OP_SHAPE,
                "this op needs the rank whose memory it uses",
                slice.span,
                "a chunk of which rank?",
            )
            .help(format!("write `PEER.{text}`; {help}")),
        );
        Err(Failed)
    }

    fn plain_name(&mut self, head: Expr) -> Parse<Name> {
        match head.kind {
            ExprKind::Name(text) if self.at("[") && !self.token.first => Ok(Name { text, span: head.span }),
            ExprKind::Name(_) => Err(self.expected("`[` or `.`", "the name")),
            _ => Err(self.expected("`.` and a buffer", "the rank")),
        }
    }

    fn slice_rest(&mut self, buffer: Name) -> Parse<SliceExpr> {
        let chunk = self.index(&format!("the buffer `{}`", buffer.text))?;
        Ok(SliceExpr { span: self.span_from(buffer.span.start), buffer, chunk })
    }
}

/// Something that `collective` has no use for.
pub(crate) fn useless(collective: Collective, span: Span, what: &str) -> Diagnostic {
    Diagnostic::new(
        codes::NOT_FOR_COLLECTIVE,
        format!("{what} has no meaning for `{collective}`"),
        span,
        format!("`{collective}` combines no values"),
    )
    .help(format!("remove {what}"))
}

fn bad_attribute(name: &Name, known: &str) -> Diagnostic {
    let message = format!("there is no attribute `{}` here", name.text);
    let diagnostic = Diagnostic::new(codes::ATTRIBUTE, message, name.span, "unknown attribute");
    match nearest(&name.text, [known]) {
        Some(known) => diagnostic.help(format!("did you mean `{known}`?")),
        None => diagnostic.help(format!("the attribute that can stand here is `{known}`")),
    }
}

fn bad_value(value: &Name, help: &str) -> Diagnostic {
    let message = format!("`{}` is not a value of this attribute", value.text);
    Diagnostic::new(codes::ATTRIBUTE, message, value.span, "unknown value").help(help)
}
