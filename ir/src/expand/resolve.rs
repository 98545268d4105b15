//! Names to numbers, once, so that expansion never looks a name up.
//!
//! Checks everything about a program that does not depend on the number of ranks: that every name is
//! declared, that no name is declared twice, that the lines a program needs are there. Each value
//! name gets a slot; since names are never shadowed, no slot is reused.

use crate::diagnostic::{Diagnostic, Span};
use crate::entity::Buffer;
use crate::program::{
    BinaryOp, Block, BufferItem, Clause, CollectiveLine, Expr, ExprKind, Function, Item, ItemKind, LaneItem,
    LinkExpr, LinkItem, Name, OpLine, ParameterKind, Program, Range, SliceExpr, Statement, StatementKind,
    UnaryOp,
};
use crate::schedule::{BufferKind, Protocol};
use crate::text::{
    MAX_BLOCK_DEPTH, MAX_DIAGNOSTICS, MAX_EXPR_DEPTH, NAMELESS_LINK, codes, in_order, nearest, plural,
};
use crate::types::Collective;
use cranelift_entity::EntityRef;
use std::collections::{HashMap, HashSet};

/// How many indices a link family may have.
pub(super) const MAX_INDICES: usize = 8;

/// How many `for` and `if` the description of a family may have; each uses the stack.
pub(super) const MAX_CLAUSES: usize = 16;

/// Where a value is kept.
pub(super) type Slot = u32;

/// One step of a computation. Operands are steps before it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Node {
    Int(i64),
    Slot(Slot),
    Unary(UnaryOp, u32),
    Binary(BinaryOp, u32, u32),
    Call(Function, [u32; 3]),
}

/// An expression: the steps from `first` to `last`, the last being its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// An expression's steps, and where each stands.
#[derive(Default, Debug)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<Node>,
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    pub(super) buffer: Buffer,
    pub(super) chunk: Value,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) family: usize,
    pub(super) indices: Vec<Value>,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) enum Op {
    Put { src: Slice, peer: Value, dst: Slice, link: Link },
    Get { peer: Value, src: Slice, dst: Slice, link: Link },
    Signal { link: Link },
    Wait { link: Link },
    Reduce { dst: Slice, src: Slice },
    Copy { src: Slice, dst: Slice },
}

#[derive(Debug)]
pub(super) enum Step {
    Let { slot: Slot, value: Value },
    For { slot: Slot, start: Value, end: Value, body: Vec<Step> },
    If { branches: Vec<(Value, Vec<Step>)>, otherwise: Vec<Step> },
    Op { op: Op, span: Span },
}

#[derive(Debug)]
pub(super) enum Filter {
    For { slot: Slot, start: Value, end: Value },
    If(Value),
}

#[derive(Debug)]
pub(super) struct BufferLine<'p> {
    pub(super) name: &'p Name,
    pub(super) kind: BufferKind,
    pub(super) chunks: Value,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct LinkFamily<'p> {
    pub(super) name: &'p Name,
    pub(super) indices: Vec<Value>,
    pub(super) from: Value,
    pub(super) to: Value,
    pub(super) filters: Vec<Filter>,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct LaneFamily {
    pub(super) rank: Value,
    pub(super) index: Value,
    pub(super) filters: Vec<Filter>,
    pub(super) body: Vec<Step>,
    /// The heading, without the body.
    pub(super) span: Span,
}

/// A line of a program's body that is evaluated before the lanes, in order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Line {
    Let { slot: Slot, value: Value },
    Chunks(Value),
    Lanes(Value),
    Buffer(usize),
    Links(usize),
}

/// A program without names.
#[derive(Debug)]
pub(super) struct Resolved<'p> {
    pub(super) nodes: Nodes,
    /// What each slot is called.
    pub(super) names: Vec<&'p str>,
    pub(super) collective: CollectiveLine,
    pub(super) protocol: Protocol,
    pub(super) lines: Vec<Line>,
    pub(super) buffers: Vec<BufferLine<'p>>,
    pub(super) families: Vec<LinkFamily<'p>>,
    pub(super) lanes: Vec<LaneFamily>,
}

/// Resolves a program. Names in `lost` were declared by lines that could not be read; using them is
/// no mistake.
pub(super) fn resolve<'p>(
    program: &'p Program,
    lost: &HashSet<String>,
) -> Result<Resolved<'p>, Vec<Diagnostic>> {
    let mut resolver = Resolver::new(lost);
    resolver.declare_all(program);
    let header = resolver.header(program);
    for item in &program.items {
        resolver.item(item);
    }
    let Resolver { nodes, names, lines, buffer_lines, families, lanes, diagnostics, .. } = resolver;
    match header {
        Some((collective, protocol)) if diagnostics.is_empty() => {
            Ok(Resolved { nodes, names, collective, protocol, lines, buffers: buffer_lines, families, lanes })
        }
        _ => Err(in_order(diagnostics)),
    }
}

struct Resolver<'p, 'l> {
    lost: &'l HashSet<String>,
    nodes: Nodes,
    names: Vec<&'p str>,
    /// Value names that can be seen here.
    visible: HashMap<&'p str, (Slot, Span)>,
    /// The same, in the order in which they came, so that scopes can be left.
    scope: Vec<&'p str>,
    buffers: HashMap<&'p str, (Buffer, Span)>,
    links: HashMap<&'p str, (usize, &'p LinkItem)>,
    lines: Vec<Line>,
    buffer_lines: Vec<BufferLine<'p>>,
    families: Vec<LinkFamily<'p>>,
    lanes: Vec<LaneFamily>,
    diagnostics: Vec<Diagnostic>,
}

impl<'p, 'l> Resolver<'p, 'l> {
    fn new(lost: &'l HashSet<String>) -> Self {
        Self {
            lost,
            nodes: Nodes::default(),
            names: Vec::new(),
            visible: HashMap::new(),
            scope: Vec::new(),
            buffers: HashMap::new(),
            links: HashMap::new(),
            lines: Vec::new(),
            buffer_lines: Vec::new(),
            families: Vec::new(),
            lanes: Vec::new(),
            diagnostics: Vec::new(),
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        if !self.full() {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Whether more mistakes would not be reported.
    fn full(&self) -> bool {
        self.diagnostics.len() > MAX_DIAGNOSTICS
    }

    /// Parameters, buffers and links can be used anywhere, so they are declared first.
    fn declare_all(&mut self, program: &'p Program) {
        for parameter in &program.parameters {
            self.declare(&parameter.name);
        }
        for item in &program.items {
            match &item.kind {
                ItemKind::Buffer(buffer) => {
                    let next = Buffer::new(self.buffers.len());
                    let name = &buffer.name;
                    if let Some((_, first)) = self.buffers.get(name.text.as_str()) {
                        let diagnostic = duplicate("buffer", name, *first);
                        self.report(diagnostic);
                    } else {
                        self.buffers.insert(&name.text, (next, name.span));
                    }
                }
                ItemKind::Link(link) => {
                    let next = self.links.len();
                    let name = &link.name;
                    if let Some((_, first)) = self.links.get(name.text.as_str()) {
                        let diagnostic = duplicate("link", name, first.name.span);
                        self.report(diagnostic);
                    } else {
                        self.links.insert(&name.text, (next, link));
                    }
                }
                _ => {}
            }
        }
    }

    /// Checks parameters and the lines that may stand once.
    fn header(&mut self, program: &'p Program) -> Option<(CollectiveLine, Protocol)> {
        let mut collective: Option<(CollectiveLine, Span)> = None;
        let mut protocol: Option<(Protocol, Span)> = None;
        let (mut chunks, mut lanes) = (None, None);
        for item in &program.items {
            let span = item.span;
            match &item.kind {
                ItemKind::Collective(line) => self.once("collective", &mut collective, *line, span),
                ItemKind::Protocol(line) => self.once("protocol", &mut protocol, *line, span),
                ItemKind::Chunks(_) => self.once("chunks", &mut chunks, (), span),
                ItemKind::Lanes(_) => self.once("lanes", &mut lanes, (), span),
                ItemKind::Let(_) | ItemKind::Buffer(_) | ItemKind::Link(_) | ItemKind::Lane(_) => {}
            }
        }
        let line = collective.map(|(line, _)| line);
        if line.is_none() && !self.lost.contains("collective") {
            self.missing(program, "collective", "collective all_reduce(sum)");
        }
        let barrier = line.is_some_and(|l| l.collective == Collective::Barrier);
        if chunks.is_none() && !barrier && !self.lost.contains("chunks") {
            self.missing(program, "chunks", "chunks n");
        }
        self.parameters(program, line);
        self.user_buffers(program);
        Some((line?, protocol.map_or(Protocol::Simple, |(p, _)| p)))
    }

    fn once<T>(&mut self, what: &str, first: &mut Option<(T, Span)>, value: T, span: Span) {
        if let Some((_, first)) = first {
            self.report(repeated(what, span, *first));
        } else {
            *first = Some((value, span));
        }
    }

    fn missing(&mut self, program: &Program, what: &str, example: &str) {
        self.report(missing("program", what, program.name.span, example));
    }

    fn parameters(&mut self, program: &'p Program, line: Option<CollectiveLine>) {
        let (mut ranks, mut root) = (None, None);
        for parameter in &program.parameters {
            match parameter.kind {
                ParameterKind::Ranks => self.once("ranks", &mut ranks, (), parameter.span),
                ParameterKind::Root => self.once("root", &mut root, (), parameter.span),
                ParameterKind::Integer { .. } => {}
            }
        }
        if ranks.is_none() {
            let span = program.name.span;
            self.report(
                Diagnostic::new(
                    codes::MISSING_LINE,
                    "this program has no parameter for the number of ranks",
                    span,
                    "no `ranks` here",
                )
                .help(format!("write `program @{}(n: ranks)`", program.name.text)),
            );
        }
        let Some(line) = line else { return };
        let collective = line.collective;
        match root {
            None if collective.rooted() => self.report(
                Diagnostic::new(
                    codes::MISSING_LINE,
                    format!("`{collective}` has a root, and this program no parameter for it"),
                    program.name.span,
                    "no `root` here",
                )
                .help(format!("write `program @{}(n: ranks, root: root)`", program.name.text)),
            ),
            Some(((), span)) if !collective.rooted() => self.report(
                Diagnostic::new(
                    codes::NOT_FOR_COLLECTIVE,
                    format!("`{collective}` has no root"),
                    span,
                    "a root that nothing sets",
                )
                .help("remove the parameter"),
            ),
            _ => {}
        }
    }

    fn user_buffers(&mut self, program: &'p Program) {
        let buffers = program.items.iter().filter_map(|item| match &item.kind {
            ItemKind::Buffer(buffer) => Some((buffer.name.text.as_str(), buffer.kind, item.span)),
            _ => None,
        });
        check_buffer_set(buffers, &mut self.diagnostics);
    }

    fn item(&mut self, item: &'p Item) {
        match &item.kind {
            ItemKind::Collective(_) | ItemKind::Protocol(_) => {}
            ItemKind::Chunks(expr) => {
                let value = self.value(expr);
                self.lines.push(Line::Chunks(value));
            }
            ItemKind::Lanes(expr) => {
                let value = self.value(expr);
                self.lines.push(Line::Lanes(value));
            }
            ItemKind::Let(line) => {
                let value = self.value(&line.value);
                let slot = self.declare(&line.name);
                self.lines.push(Line::Let { slot, value });
            }
            ItemKind::Buffer(buffer) => self.buffer(buffer, item.span),
            ItemKind::Link(link) => self.link_family(link, item.span),
            ItemKind::Lane(lane) => self.lane_family(lane, item.span),
        }
    }

    fn buffer(&mut self, buffer: &'p BufferItem, span: Span) {
        let chunks = self.value(&buffer.chunks);
        self.lines.push(Line::Buffer(self.buffer_lines.len()));
        self.buffer_lines.push(BufferLine { name: &buffer.name, kind: buffer.kind, chunks, span });
    }

    fn link_family(&mut self, link: &'p LinkItem, span: Span) {
        if link.indices.len() > MAX_INDICES {
            self.report(Diagnostic::new(
                codes::ARITY,
                format!("a link family has at most {MAX_INDICES} indices"),
                link.name.span,
                format!("{} indices", link.indices.len()),
            ));
            return;
        }
        let outside = self.scope.len();
        let filters = self.filters(&link.clauses);
        let family = LinkFamily {
            name: &link.name,
            indices: link.indices.iter().map(|e| self.value(e)).collect(),
            from: self.value(&link.from),
            to: self.value(&link.to),
            filters,
            span,
        };
        self.leave(outside);
        self.lines.push(Line::Links(self.families.len()));
        self.families.push(family);
    }

    fn lane_family(&mut self, lane: &'p LaneItem, span: Span) {
        let outside = self.scope.len();
        let filters = self.filters(&lane.clauses);
        let (rank, index) = (self.value(&lane.rank), self.value(&lane.index));
        let body = self.block(&lane.body, 0);
        self.leave(outside);
        let end = match lane.clauses.last() {
            Some(Clause::For(range)) => range.end.span.end,
            Some(Clause::If(condition)) => condition.span.end,
            None => lane.index.span.end,
        };
        let span = Span { start: span.start, end: end.max(span.start) };
        self.lanes.push(LaneFamily { rank, index, filters, body, span });
    }

    fn filters(&mut self, clauses: &'p [Clause]) -> Vec<Filter> {
        if let Some(clause) = clauses.get(MAX_CLAUSES) {
            let span = match clause {
                Clause::For(range) => range.name.span,
                Clause::If(condition) => condition.span,
            };
            let message = format!("a family has at most {MAX_CLAUSES} `for` and `if`");
            self.report(Diagnostic::new(codes::DEPTH, message, span, "one too many"));
        }
        let mut filters = Vec::new();
        for clause in clauses {
            filters.push(match clause {
                Clause::For(range) => {
                    let (slot, start, end) = self.range(range);
                    Filter::For { slot, start, end }
                }
                Clause::If(condition) => Filter::If(self.value(condition)),
            });
        }
        filters
    }

    fn range(&mut self, range: &'p Range) -> (Slot, Value, Value) {
        let (start, end) = (self.value(&range.start), self.value(&range.end));
        (self.declare(&range.name), start, end)
    }

    fn block(&mut self, block: &'p Block, depth: u32) -> Vec<Step> {
        if depth > MAX_BLOCK_DEPTH {
            let span = block.statements.first().map_or_else(Span::default, |s| s.span);
            self.report(Diagnostic::new(
                codes::DEPTH,
                format!("blocks are nested more than {MAX_BLOCK_DEPTH} deep"),
                span,
                "too deep here",
            ));
            return Vec::new();
        }
        let outside = self.scope.len();
        let steps = block.statements.iter().map(|s| self.statement(s, depth)).collect();
        self.leave(outside);
        steps
    }

    fn statement(&mut self, statement: &'p Statement, depth: u32) -> Step {
        match &statement.kind {
            StatementKind::Let(line) => {
                let value = self.value(&line.value);
                Step::Let { slot: self.declare(&line.name), value }
            }
            StatementKind::For { range, body } => {
                let outside = self.scope.len();
                let (slot, start, end) = self.range(range);
                let body = self.block(body, depth + 1);
                self.leave(outside);
                Step::For { slot, start, end, body }
            }
            StatementKind::If { branches, otherwise } => Step::If {
                branches: branches
                    .iter()
                    .map(|b| (self.value(&b.condition), self.block(&b.body, depth + 1)))
                    .collect(),
                otherwise: otherwise.as_ref().map_or_else(Vec::new, |b| self.block(b, depth + 1)),
            },
            StatementKind::Op { op, .. } => Step::Op { op: self.op(op), span: statement.span },
        }
    }

    fn op(&mut self, op: &'p OpLine) -> Op {
        match op {
            OpLine::Put { src, dst, link } => Op::Put {
                src: self.slice(src),
                peer: self.value(&dst.rank),
                dst: self.slice(&dst.slice),
                link: self.link(link),
            },
            OpLine::Get { src, dst, link } => Op::Get {
                peer: self.value(&src.rank),
                src: self.slice(&src.slice),
                dst: self.slice(dst),
                link: self.link(link),
            },
            OpLine::Signal { link } => Op::Signal { link: self.link(link) },
            OpLine::Wait { link } => Op::Wait { link: self.link(link) },
            OpLine::Reduce { dst, src } => Op::Reduce { dst: self.slice(dst), src: self.slice(src) },
            OpLine::Copy { src, dst } => Op::Copy { src: self.slice(src), dst: self.slice(dst) },
        }
    }

    fn slice(&mut self, slice: &'p SliceExpr) -> Slice {
        let name = &slice.buffer;
        let chunk = self.value(&slice.chunk);
        if let Some((buffer, _)) = self.buffers.get(name.text.as_str()) {
            return Slice { buffer: *buffer, chunk };
        }
        if !self.full() && !self.lost.contains(&name.text) {
            let links: Vec<&str> = self.links.keys().copied().collect();
            let buffers = self.buffers.keys().copied().collect();
            self.report(unknown_buffer(&name.text, name.span, buffers, &links));
        }
        Slice { buffer: Buffer::new(0), chunk }
    }

    fn link(&mut self, link: &'p LinkExpr) -> Link {
        let name = &link.name;
        let indices: Vec<Value> = link.indices.iter().map(|e| self.value(e)).collect();
        let found = self.links.get(name.text.as_str()).copied();
        match found {
            Some((family, declared)) => {
                if declared.indices.len() != indices.len() {
                    let (has, given) = (declared.indices.len(), indices.len());
                    let noun = if has == 1 { "index" } else { "indices" };
                    let message = format!("the link `{}` has {has} {noun}, not {given}", name.text);
                    self.report(
                        Diagnostic::new(codes::ARITY, message, link.span, format!("{given} given"))
                            .label(declared.name.span, "declared here"),
                    );
                }
                Link { family, indices, span: link.span }
            }
            None => {
                let lost = self.lost.contains(&name.text) || self.lost.contains(NAMELESS_LINK);
                if !self.full() && !lost {
                    self.unknown_link(name);
                }
                Link { family: 0, indices, span: link.span }
            }
        }
    }

    fn unknown_link(&mut self, name: &Name) {
        let message = format!("there is no link `{}`", name.text);
        let diagnostic = Diagnostic::new(codes::UNKNOWN_LINK, message, name.span, "not declared");
        let mut names: Vec<&str> = self.links.keys().copied().collect();
        names.sort_unstable();
        self.report(if self.buffers.contains_key(name.text.as_str()) {
            diagnostic.help(format!("`{}` is a buffer", name.text))
        } else if let Some(known) = nearest(&name.text, names) {
            diagnostic.help(format!("did you mean `{known}`?"))
        } else {
            diagnostic.help(format!("declare it: `link {}: FROM -> TO`", name.text))
        });
    }

    /// Gives a name a slot, until the scope is left.
    fn declare(&mut self, name: &'p Name) -> Slot {
        let slot = self.names.len() as Slot;
        self.names.push(&name.text);
        if let Some((_, first)) = self.visible.get(name.text.as_str()) {
            let diagnostic =
                duplicate("name", name, *first).help("a name keeps its meaning: choose another one");
            self.report(diagnostic);
            return slot;
        }
        self.visible.insert(&name.text, (slot, name.span));
        self.scope.push(&name.text);
        slot
    }

    /// Forgets the names declared since the scope had `outside` of them.
    fn leave(&mut self, outside: usize) {
        for name in self.scope.drain(outside..) {
            self.visible.remove(name);
        }
    }

    fn value(&mut self, expr: &'p Expr) -> Value {
        let first = self.nodes.nodes.len() as u32;
        let last = self.node(expr, 1);
        Value { first, last }
    }

    fn node(&mut self, expr: &'p Expr, depth: u32) -> u32 {
        let node = match &expr.kind {
            _ if depth > MAX_EXPR_DEPTH => {
                if depth == MAX_EXPR_DEPTH + 1 {
                    let message = format!("this expression is nested more than {MAX_EXPR_DEPTH} deep");
                    let label = "too deep here";
                    self.report(Diagnostic::new(codes::DEPTH, message, expr.span, label));
                }
                Node::Int(0)
            }
            ExprKind::Int(value) => Node::Int(*value),
            ExprKind::Name(name) => self.named(name, expr.span),
            ExprKind::Unary(op, inner) => Node::Unary(*op, self.node(inner, depth + 1)),
            ExprKind::Binary(op, left, right) => {
                Node::Binary(*op, self.node(left, depth + 1), self.node(right, depth + 1))
            }
            ExprKind::Call(function, arguments) => {
                if arguments.len() != function.arity() {
                    let (takes, given) = (function.arity(), arguments.len());
                    let message = format!("`{}` takes {takes} argument{}", function.name(), plural(takes));
                    let label = format!("{given} argument{} here", plural(given));
                    self.report(Diagnostic::new(codes::ARITY, message, expr.span, label));
                }
                let mut operands = [0; 3];
                for (operand, argument) in operands.iter_mut().zip(arguments) {
                    *operand = self.node(argument, depth + 1);
                }
                Node::Call(*function, operands)
            }
        };
        self.nodes.nodes.push(node);
        self.nodes.spans.push(expr.span);
        self.nodes.nodes.len() as u32 - 1
    }

    fn named(&mut self, name: &str, span: Span) -> Node {
        if let Some((slot, _)) = self.visible.get(name) {
            return Node::Slot(*slot);
        }
        if !self.full() && !self.lost.contains(name) {
            let message = format!("there is no value `{name}` here");
            let diagnostic = Diagnostic::new(codes::UNKNOWN_NAME, message, span, "not declared");
            let candidates = self.scope.iter().copied().rev();
            self.report(if self.buffers.contains_key(name) {
                diagnostic.help(format!("`{name}` is a buffer, not a number"))
            } else if self.links.contains_key(name) {
                diagnostic.help(format!("`{name}` is a link, not a number"))
            } else if let Some(known) = nearest(name, candidates) {
                diagnostic.help(format!("did you mean `{known}`?"))
            } else {
                diagnostic.help(format!("declare it above: `let {name} = …`"))
            });
        }
        Node::Int(0)
    }
}

fn duplicate(what: &str, name: &Name, first: Span) -> Diagnostic {
    let message = format!("the {what} `{}` is declared already", name.text);
    Diagnostic::new(codes::DUPLICATE_NAME, message, name.span, "declared again").label(first, "first here")
}

/// A line or parameter that stands twice.
pub(crate) fn repeated(what: &str, span: Span, first: Span) -> Diagnostic {
    let message = format!("`{what}` stands here twice");
    Diagnostic::new(codes::REPEATED_LINE, message, span, "the second").label(first, "the first")
}

/// A line that a text cannot do without.
pub(crate) fn missing(form: &str, what: &str, span: Span, example: &str) -> Diagnostic {
    let message = format!("this {form} has no `{what}` line");
    Diagnostic::new(codes::MISSING_LINE, message, span, format!("no `{what}` in it"))
        .help(format!("add a line such as `{example}`"))
}

/// A buffer that is not declared.
pub(crate) fn unknown_buffer(name: &str, span: Span, mut known: Vec<&str>, links: &[&str]) -> Diagnostic {
    let message = format!("there is no buffer `{name}`");
    let diagnostic = Diagnostic::new(codes::UNKNOWN_BUFFER, message, span, "not declared");
    known.sort_unstable();
    if links.contains(&name) {
        diagnostic.help(format!("`{name}` is a link"))
    } else if let Some(known) = nearest(name, known) {
        diagnostic.help(format!("did you mean `{known}`?"))
    } else {
        diagnostic.help(format!("declare it: `buffer {name}: scratch[…]`"))
    }
}

/// Checks which buffers stand together: one input and one output, or one buffer that is both.
pub(crate) fn check_buffer_set<'b>(
    buffers: impl Iterator<Item = (&'b str, BufferKind, Span)>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let mut user: Vec<(BufferKind, Span)> = Vec::new();
    for (name, kind, span) in buffers {
        if kind == BufferKind::Scratch {
            if name == "input" || name == "output" {
                diagnostics.push(
                    Diagnostic::new(
                        codes::BUFFER_SET,
                        format!("scratch cannot be called `{name}`"),
                        span,
                        "kernel plans use this name for the caller's memory",
                    )
                    .help("choose another name"),
                );
            }
            continue;
        }
        let clash =
            user.iter().find(|(k, _)| *k == kind || *k == BufferKind::Inout || kind == BufferKind::Inout);
        if let Some((first_kind, first)) = clash {
            let message = if *first_kind == kind {
                format!("a second `{}` buffer", kind.name())
            } else {
                "`inout` is both input and output; it cannot stand beside one of them".to_owned()
            };
            diagnostics.push(
                Diagnostic::new(codes::BUFFER_SET, message, span, "the same memory under another name")
                    .label(*first, "the first"),
            );
        } else {
            user.push((kind, span));
        }
    }
}
