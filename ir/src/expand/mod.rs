//! Programs to schedules: every loop run, every expression evaluated, for one number of ranks.
//!
//! Names become slots first (`resolve`), so that the work per op is arithmetic. Expansion checks what
//! depends on the numbers: indices, ranks, sizes, members of link families. Whether signals and waits
//! match, whether ops race and whether the result is right is the verifier's business.
//!
//! The work is bounded ([`MAX_OPS`], [`MAX_LINKS`], [`MAX_LANES`], [`MAX_WORK`]), whatever the program
//! and its arguments say. An op that is wrong in many instances is reported once, with the first
//! instance's values and the number of others.

mod evaluate;
mod families;
mod report;
pub(crate) mod resolve;

use crate::diagnostic::{Diagnostic, Span};
use crate::entity::{Lane, LaneName, Link, Rank};
use crate::program::{Parameter, ParameterKind, Program};
use crate::schedule::{self, BufferDecl, LaneDecl, LinkDecl, OpKind, Schedule};
use crate::text::{codes, nearest, structure};
use crate::types::Collective;
use cranelift_entity::{EntityRef, PrimaryMap};
use evaluate::Mistake;
use families::{Family, Key};
use report::Reports;
use resolve::{Filter, Line, Op, Resolved, Slot, Step, Value};
use std::collections::{BTreeMap, HashSet};

/// The most ranks a schedule may have.
pub const MAX_RANKS: u32 = 1 << 16;
/// The most chunks a buffer, or a collective, may have.
pub const MAX_CHUNKS: u32 = 1 << 20;
/// The most slices a lane may be replicated over.
pub const MAX_LANES_PER_LANE: u32 = 1 << 10;
/// The largest number of a lane within its rank.
pub const MAX_LANE_INDEX: u32 = (1 << 16) - 1;
/// The most ops a schedule may have.
pub const MAX_OPS: usize = 1 << 24;
/// The most links a schedule may have.
pub const MAX_LINKS: usize = 1 << 20;
/// The most lanes a schedule may have.
pub const MAX_LANES: usize = 1 << 20;
/// The most steps (a number, a name or an operation of an expression, or a line) that expanding a
/// program may take: about a second.
pub const MAX_WORK: u64 = 1 << 29;

/// Bounds on what an expansion may become; smaller ones are for tests.
#[derive(Clone, Copy, Debug)]
struct Limits {
    ops: usize,
    links: usize,
    lanes: usize,
    work: u64,
}

const LIMITS: Limits = Limits { ops: MAX_OPS, links: MAX_LINKS, lanes: MAX_LANES, work: MAX_WORK };

/// What a program is expanded for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Arguments {
    /// How many ranks take part.
    pub ranks: u32,
    /// The root of a rooted collective; none for others.
    pub root: Option<u32>,
    /// Values of named integers that are not to have their default.
    pub set: BTreeMap<String, i64>,
}

impl Arguments {
    /// Arguments for a number of ranks: no root, and every default.
    pub fn ranks(ranks: u32) -> Self {
        Self { ranks, root: None, set: BTreeMap::new() }
    }

    /// The same with a root.
    #[must_use]
    pub fn root(self, root: u32) -> Self {
        Self { root: Some(root), ..self }
    }

    /// The same with a value for a named integer.
    #[must_use]
    pub fn set(mut self, name: impl Into<String>, value: i64) -> Self {
        self.set.insert(name.into(), value);
        self
    }
}

/// Checks everything about a program that does not depend on its arguments. Names in `lost` count as
/// declared.
pub(crate) fn check(program: &Program, lost: &HashSet<String>) -> Result<(), Vec<Diagnostic>> {
    resolve::resolve(program, lost).map(|_| ())
}

/// Expands a program for a number of ranks.
///
/// Lanes are ordered by rank and index, links numbered in the order of their declarations. Spans of
/// the result point into the program's text: an op's to its line, a link's to its declaration.
///
/// Errors: everything that is wrong, in the order of the text.
pub fn expand(program: &Program, arguments: &Arguments) -> Result<Schedule, Vec<Diagnostic>> {
    expand_within(program, arguments, LIMITS)
}

fn expand_within(
    program: &Program,
    arguments: &Arguments,
    limits: Limits,
) -> Result<Schedule, Vec<Diagnostic>> {
    let resolved = resolve::resolve(program, &HashSet::new())?;
    let slots = bind(program, arguments, &resolved)?;
    let mut expansion = Expansion::new(program, arguments, &resolved, slots, limits);
    let finished = expansion.declarations().and_then(|()| expansion.lanes());
    if let (Ok(()), true) = (finished, expansion.reports.is_empty()) {
        return Ok(expansion.schedule);
    }
    Err(expansion.reports.finish())
}

/// Values for the parameters; one slot for every other name.
fn bind(
    program: &Program,
    arguments: &Arguments,
    resolved: &Resolved<'_>,
) -> Result<Vec<i64>, Vec<Diagnostic>> {
    let mut diagnostics = Vec::new();
    let ranks = arguments.ranks;
    if ranks == 0 || ranks > MAX_RANKS {
        let place = program.parameters.iter().find(|p| p.kind == ParameterKind::Ranks);
        let span = place.map_or(program.name.span, |p| p.span);
        diagnostics.push(Diagnostic::new(
            codes::RANKS,
            format!("{ranks} ranks; there can be 1 to {MAX_RANKS}"),
            span,
            format!("set to {ranks}"),
        ));
    }
    let collective = resolved.collective.collective;
    match arguments.root {
        None if collective.rooted() => diagnostics.push(
            Diagnostic::new(
                codes::ROOT,
                format!("`{collective}` needs a root"),
                root_span(program),
                "no value was given",
            )
            .help("give one: `--root 0`"),
        ),
        Some(root) if !collective.rooted() => diagnostics.push(
            Diagnostic::new(
                codes::ROOT,
                format!("`{collective}` has no root"),
                program.name.span,
                format!("root {root} was given"),
            )
            .help("give none"),
        ),
        Some(root) if root >= ranks => diagnostics.push(Diagnostic::new(
            codes::ROOT,
            format!("the root {root} does not exist"),
            root_span(program),
            format!("there are {ranks} ranks, 0 to {}", i64::from(ranks) - 1),
        )),
        _ => {}
    }
    for name in arguments.set.keys() {
        if !program.parameters.iter().any(|p| p.name.text == *name && integer(p).is_some()) {
            diagnostics.push(unknown_argument(program, name));
        }
    }
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let mut slots = vec![0; resolved.names.len()];
    for (slot, parameter) in slots.iter_mut().zip(&program.parameters) {
        *slot = match parameter.kind {
            ParameterKind::Ranks => i64::from(ranks),
            ParameterKind::Root => i64::from(arguments.root.unwrap_or(0)),
            ParameterKind::Integer { default } => {
                arguments.set.get(&parameter.name.text).copied().unwrap_or(default)
            }
        };
    }
    Ok(slots)
}

fn integer(parameter: &Parameter) -> Option<i64> {
    match parameter.kind {
        ParameterKind::Integer { default } => Some(default),
        ParameterKind::Ranks | ParameterKind::Root => None,
    }
}

fn root_span(program: &Program) -> Span {
    let place = program.parameters.iter().find(|p| p.kind == ParameterKind::Root);
    place.map_or(program.name.span, |p| p.span)
}

fn unknown_argument(program: &Program, name: &str) -> Diagnostic {
    let message = format!("this program has no setting `{name}`");
    let diagnostic = Diagnostic::new(codes::UNKNOWN_ARGUMENT, message, program.name.span, "its parameters");
    if let Some(parameter) = program.parameters.iter().find(|p| p.name.text == name) {
        return match parameter.kind {
            ParameterKind::Root => diagnostic.help("the root is set with `--root`"),
            _ => diagnostic.help("the number of ranks is set with `--ranks`"),
        };
    }
    let known: Vec<&Parameter> = program.parameters.iter().filter(|p| integer(p).is_some()).collect();
    if let Some(name) = nearest(name, known.iter().map(|p| p.name.text.as_str())) {
        diagnostic.help(format!("did you mean `{name}`?"))
    } else if known.is_empty() {
        diagnostic.help("it has none")
    } else {
        let known: Vec<String> = known
            .iter()
            .take(16)
            .map(|p| format!("`{} = {}`", p.name.text, integer(p).unwrap_or(0)))
            .collect();
        diagnostic.help(format!("it has {}", known.join(", ")))
    }
}

/// Why an instance, or everything, was given up. It has been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// This instance.
    Instance,
    /// All.
    All,
}

type Outcome<T> = Result<T, Stop>;

struct Expansion<'r, 'p> {
    resolved: &'r Resolved<'p>,
    slots: Vec<i64>,
    /// The slots of the loops and families that are running, from the outermost in.
    running: Vec<Slot>,
    families: Vec<Family>,
    schedule: Schedule,
    ranks: i64,
    ops: usize,
    work: u64,
    limits: Limits,
    /// The family at hand.
    here: Span,
    reports: Reports,
}

impl<'r, 'p> Expansion<'r, 'p> {
    fn new(
        program: &Program,
        arguments: &Arguments,
        resolved: &'r Resolved<'p>,
        slots: Vec<i64>,
        limits: Limits,
    ) -> Self {
        let schedule = Schedule {
            name: program.name.text.clone(),
            ranks: arguments.ranks,
            collective: resolved.collective.collective,
            op: resolved.collective.op,
            order: resolved.collective.order,
            root: arguments.root.map(|r| Rank::new(r as usize)),
            chunks: 0,
            lanes_per_lane: 1,
            protocol: resolved.protocol,
            buffers: PrimaryMap::new(),
            links: PrimaryMap::new(),
            lanes: PrimaryMap::new(),
        };
        Self {
            resolved,
            slots,
            running: Vec::new(),
            families: Vec::new(),
            schedule,
            ranks: i64::from(arguments.ranks),
            ops: 0,
            work: 0,
            limits,
            here: program.name.span,
            reports: Reports::default(),
        }
    }

    /// Evaluates everything outside the lanes. Lanes make no sense if this fails.
    fn declarations(&mut self) -> Outcome<()> {
        let mut chunks_span = self.resolved.lanes.first().map_or_else(Span::default, |l| l.span);
        for line in &self.resolved.lines {
            match *line {
                Line::Let { slot, value } => self.slots[slot as usize] = self.evaluate(value)?,
                Line::Chunks(value) => {
                    chunks_span = self.span(value);
                    let least = u32::from(self.schedule.collective != Collective::Barrier);
                    if let Ok(chunks) = self.size(value, "chunks", least, MAX_CHUNKS) {
                        self.schedule.chunks = chunks;
                    }
                }
                Line::Lanes(value) => {
                    if let Ok(lanes) = self.size(value, "lanes", 1, MAX_LANES_PER_LANE) {
                        self.schedule.lanes_per_lane = lanes;
                    }
                }
                Line::Buffer(index) => self.buffer(index),
                Line::Links(index) => self.link_family(index)?,
            }
        }
        if self.reports.is_empty() {
            let mut found = Vec::new();
            structure::check_sizes(&self.schedule, chunks_span, &mut found);
            found.into_iter().for_each(|d| self.reports.add(d));
        }
        if self.reports.is_empty() { Ok(()) } else { Err(Stop::All) }
    }

    fn buffer(&mut self, index: usize) {
        let line = &self.resolved.buffers[index];
        let chunks = self.size(line.chunks, "chunks", 0, MAX_CHUNKS).unwrap_or(0);
        self.schedule.buffers.push(BufferDecl {
            name: line.name.text.clone(),
            kind: line.kind,
            chunks,
            span: line.span,
        });
    }

    fn size(&mut self, value: Value, what: &str, least: u32, most: u32) -> Outcome<u32> {
        let size = self.evaluate(value)?;
        match u32::try_from(size) {
            Ok(size) if (least..=most).contains(&size) => Ok(size),
            _ => Err(self.mistake(codes::SIZE, self.span(value), &[value], |label| {
                (format!("{size} is no number of {what}"), label(format!("there can be {least} to {most}")))
            })),
        }
    }

    fn link_family(&mut self, index: usize) -> Outcome<()> {
        let family = &self.resolved.families[index];
        let first = self.schedule.links.len();
        self.here = family.span;
        let mut keys: Vec<Key> = Vec::new();
        self.members(&family.filters, &mut |this| {
            let from = this.rank(family.from)?;
            let to = this.rank(family.to)?;
            let mut key = Key::default();
            for (place, value) in key.iter_mut().zip(&family.indices) {
                *place = this.evaluate(*value)?;
            }
            if this.schedule.links.len() >= this.limits.links {
                return Err(this.too_much(family.span, &format!("{} links", this.limits.links)));
            }
            keys.push(key);
            this.schedule.links.push(LinkDecl { from, to, span: family.span });
            Ok(())
        })?;
        let arity = family.indices.len();
        let name = &family.name.text;
        match Family::new(arity, first, &keys) {
            Ok(family) => self.families.push(family),
            Err(doubles) => {
                let key: Vec<String> = keys[doubles[0]][..arity].iter().map(i64::to_string).collect();
                let message = if arity == 0 {
                    format!("the link `{name}` has {} instances", keys.len())
                } else {
                    format!("the link `{name}[{}]` is declared twice", key.join(", "))
                };
                let mut diagnostic =
                    Diagnostic::new(codes::DUPLICATE_LINK, message, family.span, "one of each is enough");
                if doubles.len() > 1 && arity > 0 {
                    diagnostic = diagnostic.note(format!("{} members are too many", doubles.len()));
                }
                let help = if arity == 0 { "give it an index" } else { "tell them apart by an index more" };
                self.reports.add(diagnostic.help(format!("{help}: `{name}[{}…]`", key.join(", "))));
            }
        }
        Ok(())
    }

    /// Runs `member` for every member of a family. Goes on after an instance that failed.
    fn members(
        &mut self,
        filters: &'r [Filter],
        member: &mut dyn FnMut(&mut Self) -> Outcome<()>,
    ) -> Outcome<()> {
        let result = match filters.split_first() {
            None => self.spend(1).and_then(|()| member(self)),
            Some((Filter::If(condition), rest)) => match self.evaluate(*condition) {
                Ok(0) => Ok(()),
                Ok(_) => self.members(rest, member),
                Err(stop) => Err(stop),
            },
            Some((Filter::For { slot, start, end }, rest)) => {
                self.repeat(*slot, *start, *end, &mut |this| this.members(rest, member))
            }
        };
        instance_only(result)
    }

    /// Runs `body` with every value of a range.
    fn repeat(
        &mut self,
        slot: Slot,
        start: Value,
        end: Value,
        body: &mut dyn FnMut(&mut Self) -> Outcome<()>,
    ) -> Outcome<()> {
        let (start, end) = (self.evaluate(start)?, self.evaluate(end)?);
        self.running.push(slot);
        for value in start..end {
            self.slots[slot as usize] = value;
            self.spend(1)?;
            instance_only(body(self))?;
        }
        self.running.pop();
        Ok(())
    }

    fn lanes(&mut self) -> Outcome<()> {
        let mut lanes: Vec<LaneDecl> = Vec::new();
        for family in &self.resolved.lanes {
            self.here = family.span;
            self.members(&family.filters, &mut |this| {
                let rank = this.rank(family.rank)?;
                let index = this.lane_index(family.index)?;
                if lanes.len() >= this.limits.lanes {
                    return Err(this.too_much(family.span, &format!("{} lanes", this.limits.lanes)));
                }
                // Lanes of a family are mostly alike.
                let mut ops = Vec::with_capacity(lanes.last().map_or(0, |l| l.ops.len()));
                let result = this.steps(&family.body, &mut ops);
                lanes.push(LaneDecl { name: LaneName { rank, index }, ops, span: family.span });
                result
            })?;
        }
        lanes.sort_by_key(|l| l.name);
        for pair in lanes.windows(2).filter(|w| w[0].name == w[1].name) {
            self.reports.add(structure::duplicate_lane(pair[1].name, pair[1].span, pair[0].span));
        }
        self.schedule.lanes = lanes.into_iter().collect::<PrimaryMap<Lane, LaneDecl>>();
        Ok(())
    }

    fn lane_index(&mut self, value: Value) -> Outcome<u32> {
        let index = self.evaluate(value)?;
        match u32::try_from(index) {
            Ok(index) if index <= MAX_LANE_INDEX => Ok(index),
            _ => Err(self.mistake(codes::LANE_INDEX, self.span(value), &[value], |label| {
                (
                    format!("there is no lane number {index}"),
                    label(format!("lane numbers are 0 to {MAX_LANE_INDEX}")),
                )
            })),
        }
    }

    fn steps(&mut self, steps: &'r [Step], ops: &mut Vec<schedule::Op>) -> Outcome<()> {
        for step in steps {
            match step {
                Step::Op { op, span } => {
                    if let Some(kind) = instance(self.op(op))? {
                        if self.ops >= self.limits.ops {
                            return Err(self.too_much(*span, &format!("{} ops", self.limits.ops)));
                        }
                        self.ops += 1;
                        ops.push(schedule::Op { kind, span: *span });
                    }
                }
                // What follows needs the value, so the block ends here if there is none.
                Step::Let { slot, value } => self.slots[*slot as usize] = self.evaluate(*value)?,
                Step::For { slot, start, end, body } => {
                    let result = self.repeat(*slot, *start, *end, &mut |this| this.steps(body, ops));
                    instance_only(result)?;
                }
                Step::If { branches, otherwise } => {
                    instance_only(self.choose(branches, otherwise, ops))?;
                }
            }
        }
        Ok(())
    }

    fn choose(
        &mut self,
        branches: &'r [(Value, Vec<Step>)],
        otherwise: &'r [Step],
        ops: &mut Vec<schedule::Op>,
    ) -> Outcome<()> {
        for (condition, body) in branches {
            if self.evaluate(*condition)? != 0 {
                return self.steps(body, ops);
            }
        }
        self.steps(otherwise, ops)
    }

    fn op(&mut self, op: &'r Op) -> Outcome<OpKind> {
        Ok(match op {
            Op::Put { src, peer, dst, link } => OpKind::Put {
                src: self.slice(src)?,
                peer: self.rank(*peer)?,
                dst: self.slice(dst)?,
                link: self.link(link)?,
            },
            Op::Get { peer, src, dst, link } => OpKind::Get {
                peer: self.rank(*peer)?,
                src: self.slice(src)?,
                dst: self.slice(dst)?,
                link: self.link(link)?,
            },
            Op::Signal { link } => OpKind::Signal { link: self.link(link)? },
            Op::Wait { link } => OpKind::Wait { link: self.link(link)? },
            Op::Reduce { dst, src } => OpKind::Reduce { dst: self.slice(dst)?, src: self.slice(src)? },
            Op::Copy { src, dst } => OpKind::Copy { src: self.slice(src)?, dst: self.slice(dst)? },
        })
    }

    fn slice(&mut self, slice: &resolve::Slice) -> Outcome<schedule::Slice> {
        let chunk = self.evaluate(slice.chunk)?;
        let chunks = self.schedule.buffers[slice.buffer].chunks;
        if (0..i64::from(chunks)).contains(&chunk) {
            return Ok(schedule::Slice { buffer: slice.buffer, chunk: chunk as u32 });
        }
        let name = self.resolved.buffers[slice.buffer.index()].name.text.as_str();
        Err(self.mistake(codes::CHUNK_INDEX, self.span(slice.chunk), &[slice.chunk], |label| {
            let place = format!("the index is {chunk}, the buffer has {chunks} chunks");
            (structure::chunk_message(name, chunk), label(place))
        }))
    }

    fn rank(&mut self, value: Value) -> Outcome<Rank> {
        let rank = self.evaluate(value)?;
        if (0..self.ranks).contains(&rank) {
            return Ok(Rank::new(rank as usize));
        }
        let ranks = self.ranks;
        Err(self.mistake(codes::RANK_INDEX, self.span(value), &[value], |label| {
            let place = format!("the rank is {rank}; there are {ranks}, 0 to {}", ranks - 1);
            (structure::rank_message(rank), label(place))
        }))
    }

    fn link(&mut self, link: &resolve::Link) -> Outcome<Link> {
        let mut key = Key::default();
        for (place, value) in key.iter_mut().zip(&link.indices) {
            *place = self.evaluate(*value)?;
        }
        if let Some(found) = self.families[link.family].get(&key) {
            return Ok(found);
        }
        let name = self.resolved.families[link.family].name.text.as_str();
        let known = self.families[link.family].describe(name);
        let shown: Vec<String> = key[..link.indices.len()].iter().map(i64::to_string).collect();
        let shown = shown.join(", ");
        Err(self.mistake(codes::LINK_INDEX, link.span, &link.indices, |label| {
            let index =
                if shown.is_empty() { "there is none".to_owned() } else { format!("the index is {shown}") };
            (format!("there is no link `{name}[{shown}]`"), label(format!("{index}; {known}")))
        }))
    }

    fn evaluate(&mut self, value: Value) -> Outcome<i64> {
        self.spend(u64::from(value.last - value.first) + 1)?;
        match self.resolved.nodes.evaluate(value, &self.slots) {
            Ok(result) => Ok(result),
            Err(Mistake { span, why }) => Err(self.mistake(codes::ARITHMETIC, span, &[value], |label| {
                (why.reason().to_owned(), label(format!("this is {}", why.computed())))
            })),
        }
    }

    fn spend(&mut self, work: u64) -> Outcome<()> {
        self.work += work;
        if self.work <= self.limits.work {
            return Ok(());
        }
        Err(self.too_much(self.here, &format!("{} steps", self.limits.work)))
    }

    fn too_much(&mut self, span: Span, limit: &str) -> Stop {
        let message = format!("this program expands to more than {limit}");
        let label = self.situation(&[], "expansion stopped here".to_owned());
        self.reports.add(
            Diagnostic::new(codes::TOO_MUCH, message, span, label)
                .help("expand it for fewer ranks, or check the bounds of its loops"),
        );
        Stop::All
    }
}

/// A failed instance is over; others go on.
fn instance_only(result: Outcome<()>) -> Outcome<()> {
    instance(result).map(|_| ())
}

fn instance<T>(result: Outcome<T>) -> Outcome<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Instance) => Ok(None),
        Err(Stop::All) => Err(Stop::All),
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, LIMITS, Limits, expand_within};
    use crate::text::{codes, parse_program};

    /// What is said of a program that goes over one limit.
    fn refused(body: &str, limits: Limits) -> (String, String) {
        let text = format!(
            "program @p(n: ranks) {{\n collective all_reduce\n chunks n\n buffer d: inout[n]\n {body}\n}}"
        );
        let program = parse_program(&text).expect("the program is well-formed");
        let mut found = expand_within(&program, &Arguments::ranks(4), limits).expect_err("over the limit");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!(found[0].code, codes::TOO_MUCH);
        let diagnostic = found.remove(0);
        (diagnostic.message, diagnostic.labels[0].message.clone())
    }

    #[test]
    fn what_a_program_becomes_is_bounded() {
        let ops = "lane 0.0 {\n for i in 0..5 {\n for j in 0..5 {\n copy d[0] -> d[1]\n }\n }\n }";
        let (message, label) = refused(ops, Limits { ops: 7, ..LIMITS });
        assert_eq!(message, "this program expands to more than 7 ops");
        assert_eq!(label, "here i = 1, j = 2: expansion stopped here");

        let links = "link l[i, j]: 0 -> 1 for i in 0..5 for j in 0..5";
        let (message, label) = refused(links, Limits { links: 24, ..LIMITS });
        assert_eq!(message, "this program expands to more than 24 links");
        assert_eq!(label, "here i = 4, j = 4: expansion stopped here");

        let lanes = "lane r.i for r in 0..4 for i in 0..65536 {\n }";
        let (message, _) = refused(lanes, Limits { lanes: 6, ..LIMITS });
        assert_eq!(message, "this program expands to more than 6 lanes");
    }

    #[test]
    fn loops_that_do_nothing_end() {
        let far = i64::MAX;
        for body in [
            format!("lane 0.0 {{\n for i in -{far}..{far} {{\n }}\n }}"),
            format!("lane 0.0 {{\n for i in 0..{far} {{\n if i == -1 {{\n copy d[0] -> d[1]\n }}\n }}\n }}"),
            format!("link l[i]: 0 -> 1 for i in 0..{far} if i < 0"),
            format!("lane 0.i for i in 0..{far} if i < 0 {{\n }}"),
        ] {
            let (message, _) = refused(&body, Limits { work: 1000, ..LIMITS });
            assert_eq!(message, "this program expands to more than 1000 steps", "{body}");
        }
    }
}
