//! Random programs, schedules and kernel plans, from a seed that a failing test prints.

use cranelift_entity::{EntityRef, PrimaryMap};
use ringsmith_ir::entity::{Buffer, LaneName, Link, OpAddress, Rank};
use ringsmith_ir::kernel_plan::{
    Counter, KernelLane, KernelLink, KernelOp, KernelOpKind, KernelPlan, Place, ScratchDecl, Source,
};
use ringsmith_ir::program::{
    Attribute, BinaryOp, Block, Braces, Branch, BufferItem, Clause, CollectiveLine, Expr, ExprKind, Function,
    Item, ItemKind, LaneItem, Let, LinkExpr, LinkItem, Name, OpLine, Parameter, ParameterKind, Program,
    Range, RemoteSliceExpr, SliceExpr, Statement, StatementKind, Trivia, TriviaLine, UnaryOp,
};
use ringsmith_ir::schedule::{
    BufferDecl, BufferKind, LaneDecl, LinkDecl, Op, OpKind, Order, Protocol, Schedule, Slice,
};
use ringsmith_ir::types::{Collective, ReduceOp};

/// Numbers from a seed (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn some<T>(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(most + 1)).map(|_| make(self)).collect()
    }

    fn comment(&mut self) -> String {
        self.pick(&["// so", "//", "//! note", "// put a[0] -> b", "// ∑ über } {", "/////"]).to_owned()
    }

    fn line_comment(&mut self) -> Option<String> {
        self.once_in(4).then(|| self.comment())
    }

    /// Lines above a line, without empty ones next to a brace.
    fn lines(&mut self, after_brace: bool, before_brace: bool) -> Vec<TriviaLine> {
        if !self.once_in(4) {
            return Vec::new();
        }
        let mut lines: Vec<TriviaLine> = Vec::new();
        for _ in 0..1 + self.below(4) {
            let blank = self.once_in(2) && lines.last() != Some(&TriviaLine::Blank);
            lines.push(if blank { TriviaLine::Blank } else { TriviaLine::Comment(self.comment()) });
        }
        if after_brace && lines.first() == Some(&TriviaLine::Blank) {
            lines.remove(0);
        }
        if before_brace && lines.last() == Some(&TriviaLine::Blank) {
            lines.pop();
        }
        lines
    }

    fn braces(&mut self, empty: bool) -> Braces {
        Braces { opening: self.line_comment(), last: self.lines(empty, true), closing: self.line_comment() }
    }

    fn collective_line(&mut self) -> CollectiveLine {
        let collective = self.pick(&Collective::ALL);
        let reduces = collective.reduces();
        CollectiveLine {
            collective,
            op: (reduces && self.once_in(2)).then(|| self.pick(&ReduceOp::ALL)),
            order: if reduces && self.once_in(3) { Order::Any } else { Order::Same },
        }
    }

    fn protocol(&mut self) -> Protocol {
        self.pick(&[Protocol::Ll, Protocol::Ll128, Protocol::Simple])
    }
}

/// What a random program has declared.
struct Scope {
    values: Vec<String>,
    /// Never reused, so that nothing is shadowed.
    fresh: usize,
    buffers: Vec<String>,
    links: Vec<(String, usize)>,
}

impl Scope {
    fn fresh(&mut self, stem: &str) -> Name {
        self.fresh += 1;
        Name::new(format!("{stem}_{}", self.fresh))
    }

    fn value(&mut self) -> Name {
        let name = self.fresh("v");
        self.values.push(name.text.clone());
        name
    }
}

/// A program whose names are all declared. What it computes makes no sense.
pub(crate) fn program(random: &mut Random) -> Program {
    let line = random.collective_line();
    let buffers = vec!["data".to_owned(), "r0".to_owned(), "put".to_owned()];
    let links = vec![("up".to_owned(), 0), ("ring".to_owned(), 1), ("mesh".to_owned(), 2)];
    let mut scope = Scope { values: vec!["n".to_owned()], fresh: 0, buffers, links };
    let mut parameters = vec![parameter("n", ParameterKind::Ranks)];
    if line.collective.rooted() {
        parameters.push(parameter("root", ParameterKind::Root));
        scope.values.push("root".to_owned());
    }
    for _ in 0..random.below(3) {
        let default = random.pick(&[0, 8, -3, i64::MAX, -i64::MAX]);
        let name = scope.value();
        parameters.push(parameter(&name.text, ParameterKind::Integer { default }));
    }
    let mut items = vec![ItemKind::Collective(line), ItemKind::Chunks(expr(random, &scope, 3))];
    if random.once_in(2) {
        items.push(ItemKind::Lanes(expr(random, &scope, 2)));
    }
    if random.once_in(2) {
        items.push(ItemKind::Protocol(random.protocol()));
    }
    for i in 0..scope.buffers.len() {
        let kind = if i == 0 { BufferKind::Inout } else { BufferKind::Scratch };
        let chunks = expr(random, &scope, 2);
        items.push(ItemKind::Buffer(BufferItem { name: Name::new(&scope.buffers[i]), kind, chunks }));
        if random.once_in(3) {
            let value = expr(random, &scope, 3);
            items.push(ItemKind::Let(Let { name: scope.value(), value }));
        }
    }
    for i in 0..scope.links.len() {
        items.push(ItemKind::Link(link_item(random, &mut scope, i)));
    }
    items.extend(random.some(3, |random| ItemKind::Lane(lane_item(random, &mut scope))));
    let items: Vec<Item> =
        items.into_iter().enumerate().map(|(i, kind)| item(random, kind, i == 0)).collect();
    Program {
        name: Name::new("some_program"),
        parameters,
        before: random.lines(true, false),
        braces: random.braces(false),
        items,
        footer: random.lines(false, true),
        span: Default::default(),
    }
}

fn parameter(name: &str, kind: ParameterKind) -> Parameter {
    Parameter { name: Name::new(name), kind, span: Default::default() }
}

fn item(random: &mut Random, kind: ItemKind, first: bool) -> Item {
    let block = matches!(kind, ItemKind::Lane(_));
    Item { trivia: trivia(random, first, block), kind, span: Default::default() }
}

fn trivia(random: &mut Random, first: bool, block: bool) -> Trivia {
    let before = random.lines(first, false);
    Trivia { before, after: if block { None } else { random.line_comment() } }
}

fn expr(random: &mut Random, scope: &Scope, depth: usize) -> Expr {
    if depth == 0 || random.once_in(3) {
        return if random.once_in(2) {
            Expr::int(random.pick(&[0, 1, 2, 63, i64::MAX]))
        } else {
            let i = random.below(scope.values.len());
            Expr::name(&scope.values[i])
        };
    }
    let kind = match random.below(4) {
        0 => {
            let op = random.pick(&[UnaryOp::Negate, UnaryOp::Not]);
            ExprKind::Unary(op, Box::new(expr(random, scope, depth - 1)))
        }
        1 => {
            let function = random.pick(&Function::ALL);
            let arguments = (0..function.arity()).map(|_| expr(random, scope, depth - 1)).collect();
            ExprKind::Call(function, arguments)
        }
        _ => {
            let op = random.pick(&BinaryOp::ALL);
            let (left, right) = (expr(random, scope, depth - 1), expr(random, scope, depth - 1));
            return Expr::binary(op, left, right);
        }
    };
    Expr { kind, span: Default::default() }
}

fn clauses(random: &mut Random, scope: &mut Scope) -> Vec<Clause> {
    random.some(3, |random| {
        if random.once_in(3) { Clause::If(expr(random, scope, 2)) } else { Clause::For(range(random, scope)) }
    })
}

fn range(random: &mut Random, scope: &mut Scope) -> Range {
    let (start, end) = (expr(random, scope, 2), expr(random, scope, 2));
    Range { name: scope.value(), start, end }
}

fn attributes(random: &mut Random) -> Vec<Attribute> {
    random.some(1, |random| Attribute {
        name: Name::new("protocol"),
        value: Name::new(random.protocol().name()),
    })
}

fn link_item(random: &mut Random, scope: &mut Scope, i: usize) -> LinkItem {
    let outside = scope.values.len();
    let clauses = clauses(random, scope);
    let (name, arity) = scope.links[i].clone();
    let item = LinkItem {
        name: Name::new(name),
        indices: (0..arity).map(|_| expr(random, scope, 1)).collect(),
        from: expr(random, scope, 2),
        to: expr(random, scope, 2),
        clauses,
        attributes: attributes(random),
    };
    scope.values.truncate(outside);
    item
}

fn lane_item(random: &mut Random, scope: &mut Scope) -> LaneItem {
    let outside = scope.values.len();
    let clauses = clauses(random, scope);
    let (rank, index) = (expr(random, scope, 2), expr(random, scope, 2));
    let item = LaneItem { rank, index, clauses, body: block(random, scope, 3) };
    scope.values.truncate(outside);
    item
}

fn block(random: &mut Random, scope: &mut Scope, depth: usize) -> Block {
    let outside = scope.values.len();
    let mut statements = Vec::new();
    for i in 0..random.below(5) {
        let kind = statement(random, scope, depth);
        let ends = matches!(kind, StatementKind::For { .. } | StatementKind::If { .. });
        statements.push(Statement { trivia: trivia(random, i == 0, ends), kind, span: Default::default() });
    }
    scope.values.truncate(outside);
    Block { braces: random.braces(statements.is_empty()), statements }
}

fn statement(random: &mut Random, scope: &mut Scope, depth: usize) -> StatementKind {
    match random.below(if depth == 0 { 6 } else { 8 }) {
        0 => {
            let value = expr(random, scope, 3);
            StatementKind::Let(Let { name: scope.value(), value })
        }
        6 => {
            let outside = scope.values.len();
            let range = range(random, scope);
            let body = block(random, scope, depth - 1);
            scope.values.truncate(outside);
            StatementKind::For { range, body }
        }
        7 => {
            let mut branches: Vec<Branch> = (0..1 + random.below(3))
                .map(|_| Branch { condition: expr(random, scope, 2), body: block(random, scope, depth - 1) })
                .collect();
            let otherwise = random.once_in(2).then(|| block(random, scope, depth - 1));
            // A comment after `}` would stand in front of `else`.
            let last = branches.len() - usize::from(otherwise.is_none());
            branches[..last].iter_mut().for_each(|b| b.body.braces.closing = None);
            StatementKind::If { branches, otherwise }
        }
        _ => StatementKind::Op { op: op(random, scope), attributes: attributes(random) },
    }
}

fn op(random: &mut Random, scope: &Scope) -> OpLine {
    match random.below(6) {
        0 => OpLine::Put { src: slice(random, scope), dst: remote(random, scope), link: link(random, scope) },
        1 => OpLine::Get { src: remote(random, scope), dst: slice(random, scope), link: link(random, scope) },
        2 => OpLine::Signal { link: link(random, scope) },
        3 => OpLine::Wait { link: link(random, scope) },
        4 => OpLine::Reduce { dst: slice(random, scope), src: slice(random, scope) },
        _ => OpLine::Copy { src: slice(random, scope), dst: slice(random, scope) },
    }
}

fn slice(random: &mut Random, scope: &Scope) -> SliceExpr {
    let buffer = Name::new(&scope.buffers[random.below(scope.buffers.len())]);
    SliceExpr { buffer, chunk: expr(random, scope, 3), span: Default::default() }
}

fn remote(random: &mut Random, scope: &Scope) -> RemoteSliceExpr {
    RemoteSliceExpr { rank: expr(random, scope, 2), slice: slice(random, scope) }
}

fn link(random: &mut Random, scope: &Scope) -> LinkExpr {
    let (name, arity) = &scope.links[random.below(scope.links.len())];
    let indices = (0..*arity).map(|_| expr(random, scope, 2)).collect();
    LinkExpr { name: Name::new(name), indices, span: Default::default() }
}

/// A schedule with the right shape. What it computes makes no sense.
pub(crate) fn schedule(random: &mut Random) -> Schedule {
    let line = random.collective_line();
    let collective = line.collective;
    let ranks = 1 + random.below(4) as u32;
    let barrier = collective == Collective::Barrier;
    let chunks = if barrier { 0 } else { ranks * (1 + random.below(3) as u32) };
    let mut schedule = Schedule {
        name: "s".to_owned(),
        ranks,
        collective,
        op: line.op,
        order: line.order,
        root: collective.rooted().then(|| Rank::new(random.below(ranks as usize))),
        chunks,
        lanes_per_lane: random.pick(&[1, 1, 16]),
        protocol: random.protocol(),
        buffers: PrimaryMap::new(),
        links: PrimaryMap::new(),
        lanes: PrimaryMap::new(),
    };
    let mut kinds = vec![BufferKind::Scratch; 1 + random.below(3)];
    if !barrier {
        kinds.extend(random.pick(&[
            &[][..],
            &[BufferKind::Inout],
            &[BufferKind::Output, BufferKind::Input],
            &[BufferKind::Input],
        ]));
    }
    for (i, kind) in kinds.into_iter().enumerate() {
        let chunks = schedule.buffer_chunks(kind).unwrap_or(1 + random.below(3) as u32);
        let name = format!("{}_{i}", "x".repeat(1 + random.below(5)));
        schedule.buffers.push(BufferDecl { name, kind, chunks, span: Default::default() });
    }
    let rank = |random: &mut Random| Rank::new(random.below(ranks as usize));
    for _ in 0..1 + random.below(4) {
        let (from, to) = (rank(random), rank(random));
        schedule.links.push(LinkDecl { from, to, span: Default::default() });
    }
    for r in 0..ranks {
        for index in 0..random.below(3) as u32 {
            let name = LaneName { rank: Rank::from_u32(r), index: 3 * index };
            let ops = random
                .some(5, |random| Op { kind: op_kind(random, &schedule, rank), span: Default::default() });
            schedule.lanes.push(LaneDecl { name, ops, span: Default::default() });
        }
    }
    schedule
}

fn op_kind(random: &mut Random, schedule: &Schedule, rank: impl Fn(&mut Random) -> Rank) -> OpKind {
    let slice = |random: &mut Random| {
        let buffer = Buffer::new(random.below(schedule.buffers.len()));
        let chunks = schedule.buffers[buffer].chunks;
        Slice { buffer, chunk: random.below(chunks as usize) as u32 }
    };
    let link = Link::new(random.below(schedule.links.len()));
    let (a, b) = (slice(random), slice(random));
    match random.below(6) {
        0 => OpKind::Put { src: a, peer: rank(random), dst: b, link },
        1 => OpKind::Get { peer: rank(random), src: a, dst: b, link },
        2 => OpKind::Signal { link },
        3 => OpKind::Wait { link },
        4 => OpKind::Reduce { dst: a, src: b },
        _ => OpKind::Copy { src: a, dst: b },
    }
}

/// A kernel plan with the right shape. What it computes makes no sense.
pub(crate) fn kernel_plan(random: &mut Random) -> KernelPlan {
    let line = random.collective_line();
    let ranks = 1 + random.below(4);
    let lane = |random: &mut Random| LaneName {
        rank: Rank::new(random.below(ranks)),
        index: random.below(3) as u32,
    };
    let mut plan = KernelPlan {
        name: "k".to_owned(),
        ranks: ranks as u32,
        collective: line.collective,
        op: line.op,
        order: line.order,
        root: line.collective.rooted().then(|| Rank::new(random.below(ranks))),
        chunks: 1 + random.below(5) as u32,
        lanes_per_lane: random.pick(&[1, 1, 4]),
        protocol: random.protocol(),
        slots: 1 + random.below(9) as u32,
        slot_bytes: random.pick(&[1, 131_072, 1 << 40]),
        scratch: PrimaryMap::new(),
        links: PrimaryMap::new(),
        lanes: PrimaryMap::new(),
    };
    for name in ["acc", "of", "pre", "post", "l0", "input"] {
        let chunks = if name == "input" { 0 } else { 1 + random.below(3) as u32 };
        plan.scratch.push(ScratchDecl { name: name.to_owned(), chunks });
    }
    for _ in 0..1 + random.below(4) {
        let messages = random.below(4) as u32;
        plan.links.push(KernelLink { from: lane(random), to: lane(random), messages });
    }
    for r in 0..ranks {
        for index in 0..random.below(3) as u32 {
            let name = LaneName { rank: Rank::new(r), index };
            let ops = random.some(6, |random| KernelOp {
                kind: kernel_op(random, &plan),
                origin: random
                    .some(2, |random| OpAddress { lane: lane(random), op: random.below(99) as u32 }),
            });
            plan.lanes.push(KernelLane { name, ops });
        }
    }
    plan
}

fn kernel_op(random: &mut Random, plan: &KernelPlan) -> KernelOpKind {
    let counter = |random: &mut Random| {
        let link = Link::new(random.below(plan.links.len()));
        match random.below(3) {
            0 => Counter::Full(link),
            1 => Counter::Free(link),
            _ => Counter::Cell(link, random.below(4) as u32),
        }
    };
    match random.below(3) {
        0 => KernelOpKind::Wait(counter(random)),
        1 => KernelOpKind::Signal(counter(random)),
        _ => KernelOpKind::Move {
            dst: (0..1 + random.below(3)).map(|_| place(random, plan)).collect(),
            src: (0..1 + random.below(3))
                .map(|_| Source { place: place(random, plan), pre: random.once_in(3) })
                .collect(),
            post: random.once_in(3),
            chunk: random.below(plan.chunks as usize) as u32,
        },
    }
}

fn place(random: &mut Random, plan: &KernelPlan) -> Place {
    let link = Link::new(random.below(plan.links.len()));
    let chunk = random.below(plan.chunks as usize) as u32;
    match random.below(5) {
        0 => Place::Input(chunk),
        1 => Place::Output(chunk),
        2 => Place::Slot(link),
        3 => Place::Cell(link, random.below(4) as u32),
        _ => {
            let buffer = Buffer::new(random.below(plan.scratch.len() - 1));
            Place::Scratch(buffer, random.below(plan.scratch[buffer].chunks as usize) as u32)
        }
    }
}
