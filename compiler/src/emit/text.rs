//! The text of a kernel: roles through templates.

use super::roles::{Column, Operand, Program, Role, Shape, Slot, Term, is_fifo};
use super::{Kernel, Options};
use ringsmith_ir::kernel_plan::KernelPlan;
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_templates::TEMPLATES;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tera::{Context, Tera};

/// Fills in the templates.
pub(super) fn kernel(plan: &KernelPlan, options: &Options, program: Program) -> Kernel {
    let writer = Writer::new(plan, options);
    let name = writer.name();
    let source = writer.source(&name, &program);
    Kernel {
        name,
        source,
        threads: options.threads,
        lanes: program.lanes,
        protocol: plan.protocol,
        tile_bytes: if is_fifo(plan) { tile_bytes(options) } else { 0 },
        uses_peers: uses_peers(&program),
        columns: program.columns,
        addresses: program.roles.iter().map(|r| r.origins.clone()).collect(),
        tables: program.tables,
    }
}

/// The templates, parsed once.
fn templates() -> &'static Tera {
    static PARSED: OnceLock<Tera> = OnceLock::new();
    PARSED.get_or_init(|| {
        let mut tera = Tera::default();
        tera.autoescape_on(Vec::<&str>::new());
        tera.add_raw_templates(TEMPLATES.iter().map(|f| (f.name, f.text)))
            .expect("the embedded templates are well-formed: every emission uses all of them");
        tera
    })
}

pub(super) fn tile_bytes(options: &Options) -> u64 {
    u64::from(options.threads) * u64::from(options.unroll) * 16
}

fn uses_peers(program: &Program) -> bool {
    let is_peer = |o: Operand| matches!(o, Operand::PeerInput { .. } | Operand::PeerOutput { .. });
    program.roles.iter().flat_map(|r| &r.ops).any(|op| match op {
        Shape::Move { to, from, .. } => {
            to.iter().copied().any(is_peer) || from.iter().any(|t| is_peer(t.from))
        }
        Shape::Wait(_) | Shape::Signal(_) | Shape::WaitCell(_) | Shape::SignalCell(_) => false,
    })
}

/// What writes the text of a plan's kernel.
pub(super) struct Writer<'a> {
    plan: &'a KernelPlan,
    options: &'a Options,
    tera: &'static Tera,
}

impl<'a> Writer<'a> {
    pub(super) fn new(plan: &'a KernelPlan, options: &'a Options) -> Self {
        Self { plan, options, tera: templates() }
    }

    /// Readable in a profiler: `ringsmith_all_reduce_sum_float32_one_shot_ll_2ranks`.
    fn name(&self) -> String {
        let collective = self.plan.collective.name();
        let suffix = format!("_{collective}");
        let algorithm = self.plan.name.strip_suffix(&suffix).unwrap_or(&self.plan.name);
        let op = self.options.op.map(|op| format!("_{op}_{}", self.options.dtype)).unwrap_or_default();
        let raw =
            format!("ringsmith_{collective}{op}_{algorithm}_{}_{}ranks", self.plan.protocol, self.plan.ranks);
        raw.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
    }

    pub(super) fn render(&self, template: &str, context: &Context) -> String {
        self.tera
            .render(template, context)
            .expect("templates use what their context holds: tests emit every form")
    }

    /// What every kernel says of itself and of the caller's memory.
    pub(super) fn common(&self) -> Context {
        let options = self.options;
        let mut context = Context::new();
        context.insert("local_ranks", &options.local_ranks);
        context.insert("threads", &options.threads);
        context.insert("resident", &options.resident);
        context.insert("slots", &self.plan.slots);
        context.insert("tile_bytes", &tile_bytes(options));
        context.insert("slot_bytes", &options.slot_bytes);
        context.insert("unroll", &options.unroll);
        self.access(&mut context);
        context
    }

    fn source(&self, name: &str, program: &Program) -> String {
        let (plan, options) = (self.plan, self.options);
        let fifo = is_fifo(plan);
        let mut context = self.common();
        context.insert("head", &self.head(program));
        context.insert("name", name);
        context.insert("fifo", &fifo);
        context.insert("ll128", &(plan.protocol == Protocol::Ll128));
        context.insert("reduces", &plan.collective.reduces());
        context.insert("peers", &uses_peers(program));
        context.insert("ranks", &plan.ranks);
        context.insert("lanes", &program.lanes);
        context.insert("max_blocks", &options.max_blocks);
        context.insert("columns", &program.columns);
        context.insert("parity_bytes", &options.parity_bytes);
        context.insert("parts", &plan.chunks_per_block());
        context.insert("tiles", &self.tiles());
        let ends = program.roles.iter().map(|r| r.ends.len()).max().unwrap_or(0).max(1);
        context.insert("ends", &ends);
        if plan.collective.reduces() {
            self.arithmetic(&mut context);
        }
        let ranked = program
            .roles
            .iter()
            .flat_map(|r| &r.ops)
            .any(|op| matches!(op, Shape::Move { place: Some(_), .. }));
        context.insert("ranked", &ranked);
        let roles: Vec<RoleText> = program.roles.iter().map(|role| self.role(role)).collect();
        context.insert("roles", &roles);
        self.render("kernel.cu.tera", &context)
    }

    fn head(&self, program: &Program) -> Vec<String> {
        let plan = self.plan;
        let op = self.options.op.map(|op| format!("({op} of {})", self.options.dtype)).unwrap_or_default();
        let root = plan.root.map(|r| format!(", root {r}")).unwrap_or_default();
        let roles = program.roles.len();
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        vec![
            format!(
                "{}{op} over {} ranks{root}, plan @{}, protocol {}",
                plan.collective, plan.ranks, plan.name, plan.protocol
            ),
            format!(
                "{} of a rank in {}; {} threads a block",
                plural(program.lanes as usize, "lane"),
                plural(roles, "role"),
                self.options.threads
            ),
            "Generated by Ringsmith. Ops carry their addresses in the schedule.".to_owned(),
        ]
    }

    /// The tiles of the largest chunk, which is the first or the last.
    fn tiles(&self) -> String {
        let last = self.plan.chunks_per_block().saturating_sub(1);
        let tiles = |index: u32| format!("(u32)((chunk_bytes(a, {index}) + TILE_BYTES - 1) / TILE_BYTES)");
        if last == 0 {
            return format!("tiles_of({})", tiles(0));
        }
        format!("tiles_of({}, {})", tiles(0), tiles(last))
    }

    fn access(&self, context: &mut Context) {
        let element = self.options.dtype.size_bytes();
        let access = self.options.access.bytes(self.options.dtype);
        let unsigned = |bytes: usize| match bytes {
            1 => "u8",
            2 => "u16",
            4 => "u32",
            _ => "u64",
        };
        context.insert("access", &access);
        context.insert("access_type", unsigned(access));
        context.insert("element_bytes", &access.min(element));
        context.insert("element_type", unsigned(access.min(element)));
    }

    fn arithmetic(&self, context: &mut Context) {
        let (dtype, op) = (self.options.dtype, self.options.op.unwrap_or(ReduceOp::Sum));
        let size = dtype.size_bytes();
        context.insert("operation", op.name());
        context.insert("type", dtype.name());
        context.insert("elements", &(8 / size));
        let bits = ["u8", "u16", "u32", "u64"][size.trailing_zeros() as usize];
        let signed = ["i8", "i16", "i32", "i64"][size.trailing_zeros() as usize];
        context.insert("bits", bits);
        context.insert("ranks", &self.plan.ranks);
        let picks = matches!(op, ReduceOp::Min | ReduceOp::Max);
        let (form, accumulator) = match dtype {
            DataType::Int8 | DataType::Int32 | DataType::Int64 => ("integer", signed),
            DataType::Uint8 | DataType::Uint32 | DataType::Uint64 => ("integer", bits),
            _ if picks => ("ordered", signed),
            DataType::Float32 => ("float", "float"),
            DataType::Float64 => ("float", "double"),
            DataType::Float16 | DataType::Bfloat16 | DataType::Float8E4M3 | DataType::Float8E5M2 => {
                ("narrow", "float")
            }
        };
        context.insert("form", form);
        context.insert("accumulator", accumulator);
        // Integers wrap: in an unsigned type as wide, where overflow is defined.
        let wide = match (form, size) {
            ("integer", 8) => "(u64)",
            ("integer", _) => "(u32)",
            _ => "",
        };
        context.insert("wide", wide);
        let scalar = match (form, accumulator) {
            ("integer", _) => format!("{wide}a.scalar"),
            (_, "double") => "__longlong_as_double((i64)a.scalar)".to_owned(),
            _ => "__uint_as_float((u32)a.scalar)".to_owned(),
        };
        context.insert("scalar", &scalar);
        let (from_bits, to_bits) = match dtype {
            DataType::Float64 => ("__longlong_as_double", "__double_as_longlong"),
            _ => ("__uint_as_float", "__float_as_uint"),
        };
        context.insert("from_bits", from_bits);
        context.insert("to_bits", to_bits);
        ordered(context, dtype, op);
        eight_bit_float(context, dtype);
    }

    pub(super) fn role(&self, role: &Role) -> RoleText {
        let members = match &role.members[..] {
            [only] => format!("lane {only}"),
            [first, .., last] => format!("{} lanes, {first} to {last}", role.members.len()),
            [] => String::new(),
        };
        let writer = RoleWriter { writer: self, role };
        let (head, body, tail) = match is_fifo(self.plan) {
            true => writer.fifo(),
            false => (String::new(), writer.zone(), String::new()),
        };
        let counts = !(head.is_empty() && tail.is_empty());
        RoleText { members, ops: !role.ops.is_empty(), counts, head, body, tail, ends: role.ends.len() }
    }
}

#[derive(serde::Serialize)]
pub(super) struct RoleText {
    members: String,
    ops: bool,
    /// Whether it needs to know how many tiles it has.
    counts: bool,
    head: String,
    body: String,
    tail: String,
    ends: usize,
}

/// Constants of the order-preserving integer keys of floats.
fn ordered(context: &mut Context, dtype: DataType, op: ReduceOp) {
    let size = dtype.size_bytes();
    let all = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
    let mask = all >> 1;
    let infinity: u64 = match dtype {
        DataType::Float16 => 0x7c00,
        DataType::Bfloat16 => 0x7f80,
        DataType::Float32 => 0x7f80_0000,
        DataType::Float64 => 0x7ff0_0000_0000_0000,
        DataType::Float8E4M3 => 0x7e,
        DataType::Float8E5M2 => 0x7c,
        _ => 0,
    };
    let hex = |value: u64| format!("{value:#x}{}", if size == 8 { "ull" } else { "u" });
    context.insert("sign_bit", &(8 * size - 1));
    context.insert("magnitude_mask", &hex(mask));
    context.insert("infinity", &hex(infinity));
    context.insert("nan_key", &hex(if op == ReduceOp::Max { mask } else { mask + 1 }));
}

/// Constants of the conversions of `arith/narrow.rs`, which stands for the same arithmetic on CPUs.
fn eight_bit_float(context: &mut Context, dtype: DataType) {
    let (mantissa, special, cap): (u32, u32, u32) = match dtype {
        DataType::Float8E4M3 => (3, 0x7f, 0x43e0_0000),
        _ => (2, 0x7c, 0x4760_0000),
    };
    let bias = (1u32 << (6 - mantissa)) - 1;
    let rebias = (127 - bias) << 23;
    let shift = 23 - mantissa;
    context.insert("mantissa", &mantissa);
    context.insert("special", &special);
    context.insert("cap", &cap);
    context.insert("rebias", &rebias);
    context.insert("min_normal", &(rebias + (1 << 23)));
    context.insert("first_normal", &(1u32 << mantissa));
    context.insert("below_half", &((1u32 << (shift - 1)) - 1));
    context.insert("magic", &((127 - bias + shift + 1) << 23));
}

/// A linear operand of a FIFO step.
#[derive(serde::Serialize)]
struct Linear {
    at: String,
    /// Whether it is one tile long, not a whole chunk.
    is_tile: bool,
    /// Whether it may be read before the step's waits: the caller's input, which nothing has written.
    is_early: bool,
}

struct RoleWriter<'a> {
    writer: &'a Writer<'a>,
    role: &'a Role,
}

impl RoleWriter<'_> {
    fn plan(&self) -> &KernelPlan {
        self.writer.plan
    }

    /// Whether messages say where they are and how long, and are called by number.
    fn is_exchange(&self) -> bool {
        self.plan().collective == Collective::AllToAllV
    }

    fn table(&self, slot: Slot) -> String {
        format!("t[{}]", self.role.column(slot))
    }

    /// A column as an expression; a number where all members agree.
    fn value(&self, slot: Slot) -> String {
        match self.role.shared[slot.0] {
            Some(Column::Chunk(v) | Column::Number(v)) if v < 1 << 32 => format!("{v}"),
            Some(Column::Chunk(v)) => format!("{v:#x}ull"),
            _ => self.table(slot),
        }
    }

    fn bytes(&self, chunk: Slot) -> String {
        if self.is_exchange() {
            return "m.bytes".to_owned();
        }
        if self.plan().chunks_per_block() == 1 {
            return "a.bytes".to_owned();
        }
        format!("chunk_bytes(a, (u32){})", self.value(chunk))
    }

    /// Where a chunk starts, in bytes from the buffer's start.
    fn offset(&self, chunk: Slot, one_block: bool) -> String {
        let whole = self.plan().collective.blocked() && !one_block;
        let single = self.plan().chunks_per_block() == 1;
        match (whole, single) {
            (false, true) => String::new(),
            _ if self.role.shared[chunk.0] == Some(Column::Chunk(0)) => String::new(),
            (false, false) => format!(" + inside(a, {})", self.value(chunk)),
            (true, _) => format!(" + whole(a, {})", self.value(chunk)),
        }
    }

    fn linear(&self, operand: Operand) -> Option<Linear> {
        let collective = self.plan().collective;
        let fifo = is_fifo(self.plan());
        let at = match operand {
            Operand::Input(_) if self.is_exchange() => "m.from".to_owned(),
            Operand::Output(_) if self.is_exchange() => "m.to".to_owned(),
            Operand::Input(chunk) => {
                format!("me.input{}", self.offset(chunk, collective.input_is_block()))
            }
            Operand::Output(chunk) => {
                format!("me.output{}", self.offset(chunk, collective.output_is_block()))
            }
            Operand::PeerInput { rank, chunk } => {
                format!(
                    "a.peer[{}].input{}",
                    self.table(rank),
                    self.offset(chunk, collective.input_is_block())
                )
            }
            Operand::PeerOutput { rank, chunk } => {
                format!(
                    "a.peer[{}].output{}",
                    self.table(rank),
                    self.offset(chunk, collective.output_is_block())
                )
            }
            Operand::Scratch(slot) if fifo => format!("(u8*){} + block * TILE_BYTES", self.table(slot)),
            Operand::Scratch(slot) => format!("(u8*){}", self.table(slot)),
            Operand::Fifo(_) | Operand::Cell(_) => return None,
        };
        let is_tile = fifo && matches!(operand, Operand::Scratch(_));
        Some(Linear { at, is_tile, is_early: matches!(operand, Operand::Input(_)) })
    }

    /// The expression that makes a word from `own[..]` and `cell[..]`.
    fn result(&self, from: &[Term], place: Option<Slot>, post: bool) -> String {
        let op = self.writer.options.op;
        let pre = |term: &Term| term.pre && op == Some(ReduceOp::PremulSum);
        let post = post && op == Some(ReduceOp::Avg);
        let (mut own, mut cell) = (0, 0);
        let mut raw = |term: &Term| {
            let (name, index) = match term.from {
                Operand::Fifo(_) | Operand::Cell(_) => ("cell", &mut cell),
                _ => ("own", &mut own),
            };
            *index += 1;
            format!("{name}[{}]", *index - 1)
        };
        let mut widened = |term: &Term| {
            let word = raw(term);
            if pre(term) { format!("first_step(a, widen({word}))") } else { format!("widen({word})") }
        };
        let sum = match (from, place) {
            ([only], _) if !post && !pre(only) => return raw(only),
            ([own, ..], Some(place)) => {
                format!("in_rank_order((u32){}, {}, cell)", self.value(place), widened(own))
            }
            (terms, _) => {
                let mut terms = terms.iter();
                let first = terms.next().map(&mut widened).unwrap_or_default();
                terms.fold(first, |sum, term| format!("combine({sum}, {})", widened(term)))
            }
        };
        if post { format!("narrow(last_step({sum}))") } else { format!("narrow({sum})") }
    }

    fn zone(&self) -> String {
        let mut text = String::new();
        for (index, op) in self.role.ops.iter().enumerate() {
            let mut context = Context::new();
            context.insert("comment", &self.role.origins[index]);
            context.insert("op", &index);
            context.insert("unroll", &self.writer.options.unroll);
            let (users, cells, to_users, to_cells): (Vec<String>, Vec<String>, Vec<String>, Vec<String>);
            match op {
                Shape::Move { to, from, place, post, chunk } => {
                    let linear = |o: Operand| self.linear(o).map(|l| l.at);
                    let cell = |o: Operand| match o {
                        Operand::Cell(slot) => Some(self.table(slot)),
                        _ => None,
                    };
                    users = from.iter().filter_map(|t| linear(t.from)).collect();
                    cells = from.iter().filter_map(|t| cell(t.from)).collect();
                    to_users = to.iter().filter_map(|o| linear(*o)).collect();
                    to_cells = to.iter().filter_map(|o| cell(*o)).collect();
                    context.insert("bytes", &self.bytes(*chunk));
                    context.insert("result", &self.result(from, *place, *post));
                }
                Shape::WaitCell(slot) => {
                    (users, to_users, to_cells) = (Vec::new(), Vec::new(), Vec::new());
                    cells = vec![self.table(*slot)];
                    context.insert("bytes", "0");
                    context.insert("result", "cell[0]");
                }
                Shape::SignalCell(slot) => {
                    (users, cells, to_users) = (Vec::new(), Vec::new(), Vec::new());
                    to_cells = vec![self.table(*slot)];
                    context.insert("bytes", "0");
                    context.insert("result", "0");
                }
                Shape::Wait(_) | Shape::Signal(_) => {
                    unreachable!("the verifier keeps FIFOs out of zone plans")
                }
            }
            context.insert("users", &users);
            context.insert("cells", &cells);
            context.insert("to_users", &to_users);
            context.insert("to_cells", &to_cells);
            let template = match self.plan().protocol {
                Protocol::Ll => "move_ll.cu.tera",
                Protocol::Ll128 | Protocol::Simple => "move_ll128.cu.tera",
            };
            text += &self.writer.render(template, &context);
        }
        text
    }

    /// What stands before the tile loop, its body, and what follows it.
    fn fifo(&self) -> (String, String, String) {
        let steps = self.steps();
        let body = steps.iter().map(|step| self.step(step)).collect();
        (self.head(), body, self.tail())
    }

    /// The lane's first words: what `Role::announced` has taken out of the loop.
    fn head(&self) -> String {
        self.at_once(
            "  // Messages that say that a rank has begun speak for all tiles at once.",
            &self.role.announced,
        )
    }

    /// The lane's last words, after its last tile: what `Role::deferred` has taken out of the loop.
    fn tail(&self) -> String {
        let text =
            self.at_once("  // Messages without payload speak for all tiles at once.", &self.role.deferred);
        if text.is_empty() { text } else { format!("  __syncthreads();\n{text}") }
    }

    /// Sends and takes the messages of all tiles: those of an end by its own thread, which counts them.
    fn at_once(&self, comment: &str, ends: &BTreeMap<usize, u32>) -> String {
        if ends.is_empty() {
            return String::new();
        }
        let (sent, taken): (Vec<_>, Vec<_>) = ends.iter().partition(|(end, _)| self.role.ends[**end]);
        let mut lines = vec![comment.to_owned()];
        for (end, messages) in sent {
            lines.push(format!(
                "  if (threadIdx.x == {end}) store_release(signalled({}, block), sequence[{end}] += {messages}ull * rounds);",
                columns(*end)
            ));
        }
        for (end, messages) in &taken {
            let first = self.role.ops.iter().position(|op| *op == Shape::Wait(**end)).unwrap_or(0);
            lines.push(format!("  if (threadIdx.x == {end} && rounds > 0) {{"));
            lines.push(format!(
                "    wait_full(a, {}, block, sequence[{end}] + {messages}ull * rounds - 1, {first}, stop);",
                columns(**end)
            ));
            lines.push(format!(
                "    store_release(signalled({}, block), sequence[{end}] += {messages}ull * rounds);",
                columns(**end)
            ));
            lines.push("  }".to_owned());
        }
        if !taken.is_empty() {
            lines.push("  __syncthreads();".to_owned());
            lines.push("  if (SELDOM(*stop)) return false;".to_owned());
        }
        lines.join("\n")
    }

    /// Ops that belong together: waits, a move, signals.
    fn steps(&self) -> Vec<Step> {
        let mut steps: Vec<Step> = vec![Step::default()];
        for (index, op) in self.role.ops.iter().enumerate() {
            if let Shape::Wait(end) | Shape::Signal(end) = op
                && (self.role.deferred.contains_key(end) || self.role.announced.contains_key(end))
            {
                continue;
            }
            let step = steps.last().expect("there is always one");
            let starts = match op {
                Shape::Wait(_) | Shape::WaitCell(_) => step.mover.is_some() || !step.signals.is_empty(),
                Shape::Move { .. } => step.mover.is_some() || !step.signals.is_empty(),
                Shape::Signal(_) | Shape::SignalCell(_) => false,
            };
            if starts {
                steps.push(Step::default());
            }
            let step = steps.last_mut().expect("there is always one");
            match op {
                Shape::Wait(end) => step.waits.push((*end, index)),
                Shape::Signal(end) => step.signals.push(*end),
                Shape::Move { .. } => step.mover = Some(index),
                Shape::WaitCell(_) | Shape::SignalCell(_) => {
                    unreachable!("the verifier keeps zones out of FIFO plans")
                }
            }
        }
        steps
    }

    fn step(&self, step: &Step) -> String {
        let mut context = Context::new();
        let mut addresses: Vec<&str> = step.waits.iter().map(|w| &self.role.origins[w.1][..]).collect();
        let mut users = Vec::new();
        let mut slots = Vec::new();
        let mut to_users = Vec::new();
        let mut to_slots = Vec::new();
        let mut inputs = 0;
        if let Some(index) = step.mover
            && let Shape::Move { to, from, place, post, chunk } = &self.role.ops[index]
        {
            addresses = vec![&self.role.origins[index]];
            let slot = |o: Operand| match o {
                Operand::Fifo(end) => Some(end),
                _ => None,
            };
            inputs = from.iter().filter(|t| matches!(t.from, Operand::PeerInput { .. })).count();
            users = from.iter().filter_map(|t| self.linear(t.from)).collect();
            slots = from.iter().filter_map(|t| slot(t.from)).collect();
            to_users = to.iter().filter_map(|o| self.linear(*o)).collect();
            to_slots = to.iter().filter_map(|o| slot(*o)).collect();
            context.insert("bytes", &self.bytes(*chunk));
            context.insert("result", &self.result(from, *place, *post));
        }
        let is_many = slots.len() > 2 || inputs > 3;
        // Room of the slots just read is given back before the stores.
        let (early, late): (Vec<usize>, Vec<usize>) =
            step.signals.iter().partition(|end| !is_many && slots.contains(end) && !self.role.ends[**end]);
        context.insert("is_many", &is_many);
        context.insert("moves", &step.mover.is_some());
        context.insert("comment", &addresses.join(" "));
        context.insert("waits", &self.waits(&step.waits));
        context.insert("releases", &self.signals(&early));
        context.insert("signals", &self.signals(&late));
        context.insert("users", &users);
        context.insert("slots", &slots);
        context.insert("to_users", &to_users);
        context.insert("to_slots", &to_slots);
        self.writer.render("step_fifo.cu.tera", &context)
    }

    /// Waits of one step, at once: each end has a thread of its own, which is the one that counts its
    /// messages, so that it never looks at a number that another is about to raise.
    fn waits(&self, waits: &[(usize, usize)]) -> String {
        let line = |(end, op): &(usize, usize)| {
            let kind = if self.role.ends[*end] { "free" } else { "full" };
            let called = if self.is_exchange() { "m.number".to_owned() } else { op.to_string() };
            format!(
                "        if (threadIdx.x == {end}) wait_{kind}(a, {}, block, sequence[{end}], {called}, stop);",
                columns(*end)
            )
        };
        waits.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn signals(&self, signals: &[usize]) -> String {
        let line = |end: &usize| {
            format!(
                "        if (threadIdx.x == {end}) store_release(signalled({}, block), ++sequence[{end}]);",
                columns(*end)
            )
        };
        signals.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Where an end's columns start.
fn columns(end: usize) -> String {
    if end == 0 { "t".to_owned() } else { format!("t + {}", 4 * end) }
}

#[derive(Default)]
struct Step {
    /// Ends waited for, and the ops' places.
    waits: Vec<(usize, usize)>,
    mover: Option<usize>,
    signals: Vec<usize>,
}
