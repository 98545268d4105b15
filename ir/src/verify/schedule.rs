//! The verifier on schedules: static rules first, then one run of the abstract machine per layout of
//! the user's buffers.

#[path = "schedule_results.rs"]
mod results;

use super::Verified;
use super::bounds::{self, MAX_FOUND};
use super::machine::{Collision, CounterId, LocationId, Machine, OpRef, Race, Snapshot};
use super::report::{cycles, finish};
use super::schedule_rules::Ends;
use super::value::{Content, Input, Value};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::entity::{Lane, Link, Rank};
use crate::schedule::{BufferKind, OpKind, Place, Schedule, Slice};
use cranelift_entity::{EntityRef, SecondaryMap};
use std::collections::{BTreeMap, HashSet};

/// What the run learned about one op: what lowering needs to know of buffers and reduction steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fact {
    /// The source is user memory that this launch has not written: the caller's input.
    pub src_is_input: bool,
    /// The destination, as it was before the op, is the caller's input.
    pub dst_was_input: bool,
    /// The op makes a result that holds every rank's contribution, from sources that do not.
    pub completes: bool,
    /// The chunk, numbered over the whole, whose contributions the op moves or combines. Its size
    /// is the op's.
    pub chunk: u32,
}

/// Proves a schedule, or says everything that is wrong with it.
///
/// Errors: one diagnostic per mistake, in the order of the text, at most
/// [`MAX_DIAGNOSTICS`](super::MAX_DIAGNOSTICS).
pub fn schedule(schedule: Schedule) -> Result<Verified<Schedule>, Vec<Diagnostic>> {
    let ends = Ends::check(&schedule)?;
    bounds::check(&size(&schedule)).map_err(|d| vec![d])?;
    let mut facts = Vec::new();
    let layouts: &[Layout] =
        if has_inout(&schedule) { &[Layout::Apart] } else { &[Layout::Apart, Layout::InPlace] };
    let mut found = Vec::new();
    for &layout in layouts {
        let run = Run::new(&schedule, &ends, layout).run();
        if layout == Layout::Apart {
            facts = run.facts;
        }
        for mut diagnostic in run.diagnostics {
            let known = |d: &Diagnostic| d.code == diagnostic.code && d.labels == diagnostic.labels;
            if found.iter().any(known) {
                continue;
            }
            if layout == Layout::InPlace {
                diagnostic.notes.push("this happens when input and output are the same memory".to_owned());
            }
            found.push(diagnostic);
        }
    }
    if found.is_empty() { Ok(Verified { value: schedule, facts }) } else { Err(finish(found)) }
}

fn size(schedule: &Schedule) -> bounds::Size {
    let ranks = u64::from(schedule.ranks);
    let scratch = schedule.buffers.values().filter(|b| b.kind == BufferKind::Scratch);
    let per_rank = 2 * u64::from(schedule.chunks) + scratch.map(|b| u64::from(b.chunks)).sum::<u64>();
    let inputs = |r: u32| schedule.input_chunks(Rank::from_u32(r)).len() as u64;
    bounds::Size {
        steps: 2 * schedule.lanes.values().map(|l| l.ops.len() as u64).sum::<u64>(),
        locations: per_rank * ranks,
        lanes: schedule.lanes.len(),
        inputs: (0..schedule.ranks).map(inputs).sum(),
        ranks: schedule.ranks,
    }
}

fn has_inout(schedule: &Schedule) -> bool {
    schedule.buffers.values().any(|b| b.kind == BufferKind::Inout)
}

/// How the user's buffers lie in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    Apart,
    InPlace,
}

struct Outcome {
    diagnostics: Vec<Diagnostic>,
    facts: Vec<Vec<Fact>>,
}

/// One run.
struct Run<'a> {
    schedule: &'a Schedule,
    ends: &'a Ends,
    layout: Layout,
    machine: Machine,
    /// Next op of each lane.
    next: Vec<usize>,
    /// Puts and copies of a lane that its next signal on a link publishes.
    unpublished: SecondaryMap<Link, Vec<(LocationId, OpRef)>>,
    snapshots: SecondaryMap<Link, Option<Snapshot>>,
    scratch_base: Vec<usize>,
    per_rank: usize,
    written: Vec<bool>,
    lanes_of: Vec<Vec<Lane>>,
    /// Remote reads of user memory: (owner, reader, reader's tick).
    remote_reads: Vec<(Rank, OpRef, u32)>,
    diagnostics: Vec<Diagnostic>,
    /// Reductions of what does not belong together: news only where no race explains it.
    mixtures: Vec<Diagnostic>,
    facts: Vec<Vec<Fact>>,
}

impl<'a> Run<'a> {
    fn new(schedule: &'a Schedule, ends: &'a Ends, layout: Layout) -> Self {
        let user = schedule.chunks as usize * if layout == Layout::Apart { 2 } else { 1 };
        let mut scratch_base = Vec::new();
        let mut per_rank = user;
        for buffer in schedule.buffers.values() {
            scratch_base.push(per_rank);
            if buffer.kind == BufferKind::Scratch {
                per_rank += buffer.chunks as usize;
            }
        }
        let ranks = schedule.ranks as usize;
        let mut lanes_of = vec![Vec::new(); ranks];
        for (lane, decl) in schedule.lanes.iter() {
            lanes_of[decl.name.rank.index()].push(lane);
        }
        let mut run = Self {
            schedule,
            ends,
            layout,
            machine: Machine::new(
                schedule.ranks,
                schedule.lanes.len(),
                schedule.links.len(),
                per_rank * ranks,
            ),
            next: vec![0; schedule.lanes.len()],
            unpublished: SecondaryMap::new(),
            snapshots: SecondaryMap::new(),
            scratch_base,
            per_rank,
            written: vec![false; per_rank * ranks],
            lanes_of,
            remote_reads: Vec::new(),
            diagnostics: Vec::new(),
            mixtures: Vec::new(),
            facts: schedule.lanes.values().map(|l| vec![Fact::default(); l.ops.len()]).collect(),
        };
        run.define_inputs();
        run
    }

    fn define_inputs(&mut self) {
        for rank in (0..self.schedule.ranks).map(Rank::from_u32) {
            for chunk in self.schedule.input_chunks(rank) {
                let value =
                    self.machine.values.input(Input { rank: rank.as_u32(), chunk, tile: 0, launch: 0 });
                let location = self.user(rank, chunk, false);
                self.machine.define(location, value);
            }
        }
    }

    /// Location of a user chunk. With inout buffers and separate memory, the chunk moves from input
    /// to output at its first write; the run keeps it in one place, which is the same.
    fn user(&self, rank: Rank, chunk: u32, output: bool) -> LocationId {
        let apart = self.layout == Layout::Apart && output;
        rank.index() * self.per_rank + chunk as usize + if apart { self.schedule.chunks as usize } else { 0 }
    }

    fn location(&self, rank: Rank, slice: Slice) -> LocationId {
        match self.schedule.place(rank, slice) {
            Place::Input(chunk) | Place::Inout(chunk) => self.user(rank, chunk, false),
            Place::Output(chunk) => self.user(rank, chunk, true),
            Place::Scratch(buffer, chunk) => {
                rank.index() * self.per_rank + self.scratch_base[buffer.index()] + chunk as usize
            }
        }
    }

    fn is_user(&self, slice: Slice) -> bool {
        self.schedule.buffers[slice.buffer].kind != BufferKind::Scratch
    }

    fn span(&self, op: OpRef) -> Span {
        self.schedule.lanes[op.lane].ops[op.op as usize].span
    }

    fn name(&self, op: OpRef) -> String {
        self.schedule.address(op.lane, op.op as usize).to_string()
    }

    fn run(mut self) -> Outcome {
        let mut ready: Vec<Lane> = self.schedule.lanes.keys().collect();
        while let Some(lane) = ready.pop() {
            while self.step(lane) {
                if self.machine.is_exhausted() {
                    return Outcome { diagnostics: vec![bounds::outgrown()], facts: self.facts };
                }
            }
            ready.append(&mut self.machine.woken);
        }
        self.report_collisions();
        if self.report_stuck() {
            return Outcome { diagnostics: self.diagnostics, facts: self.facts };
        }
        self.report_unused();
        self.check_owners_stay();
        // A wrong result that follows from a race is the race's news, not news of its own.
        if self.diagnostics.is_empty() {
            self.diagnostics = std::mem::take(&mut self.mixtures);
            self.check_results();
        }
        Outcome { diagnostics: self.diagnostics, facts: self.facts }
    }

    /// Runs the lane's next op; false when it is blocked or at its end.
    fn step(&mut self, lane: Lane) -> bool {
        let decl = &self.schedule.lanes[lane];
        let Some(op) = decl.ops.get(self.next[lane.index()]) else { return false };
        let at = OpRef { lane, op: self.next[lane.index()] as u32 };
        let rank = decl.name.rank;
        if let OpKind::Wait { link } = op.kind {
            let counter: CounterId = link.index();
            let came = if self.ends.read_by_get[link] {
                self.machine.wait_and_keep(at, counter, &mut self.snapshots[link])
            } else {
                self.machine.wait(at, counter)
            };
            if !came {
                return false;
            }
            self.next[lane.index()] += 1;
            return true;
        }
        self.machine.tick(lane);
        self.next[lane.index()] += 1;
        match op.kind {
            OpKind::Wait { .. } => unreachable!("handled above"),
            OpKind::Signal { link } => {
                let puts = std::mem::take(&mut self.unpublished[link]);
                self.machine.signal(at, link.index(), puts.into_iter().map(|(l, _)| l).collect());
            }
            OpKind::Put { src, peer, dst, link } => {
                let value = self.read(at, rank, src);
                let to = self.location(peer, dst);
                if self.is_user(dst) {
                    self.check_owner_is_in(at, peer);
                }
                self.note_destination(at, to, dst);
                self.machine.put(at, to, value);
                self.written[to] = true;
                self.unpublished[link].push((to, at));
            }
            OpKind::Get { peer, src, dst, link } => self.get(at, (rank, dst), (peer, src), link),
            OpKind::Reduce { dst, src } => self.reduce(at, rank, dst, src),
            OpKind::Copy { src, dst } => {
                let value = self.read(at, rank, src);
                self.store(at, rank, dst, value);
            }
        }
        true
    }

    fn complain(&mut self, diagnostic: Diagnostic) {
        if !self.is_full() {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Whether enough mistakes have been found.
    fn is_full(&self) -> bool {
        self.diagnostics.len() >= MAX_FOUND
    }

    fn fact(&mut self, at: OpRef) -> &mut Fact {
        &mut self.facts[at.lane.index()][at.op as usize]
    }

    fn note_destination(&mut self, at: OpRef, location: LocationId, dst: Slice) {
        let was_input = self.is_user(dst) && !self.written[location];
        self.fact(at).dst_was_input = was_input;
    }

    fn read(&mut self, at: OpRef, rank: Rank, src: Slice) -> Value {
        let location = self.location(rank, src);
        let value = self.machine.read(at, location);
        let chunk = self.machine.values.chunk(value).unwrap_or_default();
        let src_is_input = self.is_user(src) && !self.written[location];
        *self.fact(at) = Fact { src_is_input, chunk, ..Fact::default() };
        self.check_defined(at, value, rank, src);
        value
    }

    fn check_defined(&mut self, at: OpRef, value: Value, rank: Rank, slice: Slice) {
        if value == Value::UNDEFINED {
            let decl = &self.schedule.buffers[slice.buffer];
            let what = match decl.kind {
                BufferKind::Scratch | BufferKind::Output => "nobody has written it in this launch",
                BufferKind::Input | BufferKind::Inout => {
                    "it is no part of this rank's input, and nobody has written it"
                }
            };
            self.complain(
                Diagnostic::new(
                    Code("V0206"),
                    format!(
                        "{} reads {rank}'s `{}[{}]`, which is undefined",
                        self.name(at),
                        decl.name,
                        slice.chunk
                    ),
                    self.span(at),
                    what,
                )
                .label(decl.span, "the buffer")
                .help("write it first, or name the chunk that was meant"),
            );
        }
    }

    fn store(&mut self, at: OpRef, rank: Rank, dst: Slice, value: Value) {
        let location = self.location(rank, dst);
        self.note_destination(at, location, dst);
        self.machine.write(at, location, value);
        self.written[location] = true;
    }

    fn reduce(&mut self, at: OpRef, rank: Rank, dst: Slice, src: Slice) {
        let term = self.read(at, rank, src);
        let location = self.location(rank, dst);
        let own = self.machine.read(at, location);
        self.check_defined(at, own, rank, dst);
        let value = self.machine.values.combine(&[own, term]);
        let ranks = self.schedule.ranks;
        let values = &self.machine.values;
        let completes =
            values.complete(value, ranks) && !values.complete(own, ranks) && !values.complete(term, ranks);
        self.fact(at).completes = completes;
        if self.mixtures.len() < MAX_FOUND
            && let Some(what) = self.mixture(rank, (dst, own), term, value)
        {
            let label = format!(
                "`{}` holds {}, `{}` holds {}",
                self.slice_name(dst),
                self.machine.values.describe(own),
                self.slice_name(src),
                self.machine.values.describe(term)
            );
            self.mixtures.push(Diagnostic::new(Code("V0401"), what, self.span(at), label));
        }
        self.store(at, rank, dst, value);
    }

    /// What is wrong with a sum of two values that were right by themselves.
    fn mixture(&self, rank: Rank, own: (Slice, Value), term: Value, sum: Value) -> Option<String> {
        let values = &self.machine.values;
        let (Content::Parts { of, ranks: a }, Content::Parts { of: other, ranks: b }) =
            (values.content(own.1), values.content(term))
        else {
            return None;
        };
        let dst = self.slice_name(own.0);
        match values.content(sum) {
            Content::Parts { .. } | Content::Undefined => None,
            Content::Mixed => {
                Some(format!("{rank}'s `{dst}` combines chunk {} with chunk {}", of.chunk, other.chunk))
            }
            Content::Twice { .. } => {
                let both: Vec<u64> = a.iter().zip(b.iter()).map(|(a, b)| a & b).collect();
                let (ranks, plural) = (list_ranks(&both), if count(&both) == 1 { "" } else { "s" });
                Some(format!("{rank}'s `{dst}` takes in the contribution{plural} of {ranks} a second time"))
            }
        }
    }

    fn slice_name(&self, slice: Slice) -> String {
        format!("{}[{}]", self.schedule.buffers[slice.buffer].name, slice.chunk)
    }

    fn get(&mut self, at: OpRef, to: (Rank, Slice), from: (Rank, Slice), link: Link) {
        let source = self.location(from.0, from.1);
        let value = match self.snapshots[link].clone() {
            Some(snapshot) => self.machine.read_as_of(at, source, &snapshot),
            None => {
                self.complain(
                    Diagnostic::new(
                        Code("V0107"),
                        format!("{} gets over {link} before it has waited on it", self.name(at)),
                        self.span(at),
                        format!("nothing says that {}'s memory is ready", from.0),
                    )
                    .help(format!("wait for a signal on {link} first")),
                );
                self.machine.read(at, source)
            }
        };
        let chunk = self.machine.values.chunk(value).unwrap_or_default();
        let src_is_input = self.is_user(from.1) && !self.written[source];
        *self.fact(at) = Fact { src_is_input, chunk, ..Fact::default() };
        self.check_defined(at, value, from.0, from.1);
        if self.is_user(from.1) {
            self.check_owner_is_in(at, from.0);
            let tick = self.machine.seen(at.lane, at.lane);
            self.remote_reads.push((from.0, at, tick));
        }
        self.store(at, to.0, to.1, value);
    }

    fn check_owner_is_in(&mut self, at: OpRef, owner: Rank) {
        let heard = self.lanes_of[owner.index()].iter().any(|&l| self.machine.has_heard(at.lane, l));
        if !heard {
            self.complain(
                Diagnostic::new(
                    Code("V0304"),
                    format!(
                        "{} touches {owner}'s user buffer, and {owner} may not have entered the launch",
                        self.name(at)
                    ),
                    self.span(at),
                    format!("no op of {owner} happens before this"),
                )
                .note(
                    "a rank's input and output belong to the schedule only between its first and its last op",
                )
                .help(format!("let {owner} signal before, and wait for that here; or put into scratch")),
            );
        }
    }

    fn check_owners_stay(&mut self) {
        for (owner, reader, tick) in std::mem::take(&mut self.remote_reads) {
            let seen =
                self.lanes_of[owner.index()].iter().any(|&l| self.machine.seen(l, reader.lane) >= tick);
            if !seen {
                self.complain(
                    Diagnostic::new(
                        Code("V0305"),
                        format!("{owner} may leave while {} still reads its memory", self.name(reader)),
                        self.span(reader),
                        format!("no op of {owner} happens after this read"),
                    )
                    .help(format!("signal back to {owner} after the read, and let it wait")),
                );
            }
        }
    }

    fn report_collisions(&mut self) {
        let mut seen = HashSet::new();
        for collision in std::mem::take(&mut self.machine.collisions) {
            // A reduction reads what it writes: one mistake, not two.
            let read = Collision { race: Race::ReadAfterWrite, ..collision };
            let said = collision.race == Race::WriteWrite && seen.contains(&read);
            if seen.insert(collision) && !said {
                let diagnostic = self.collision(collision);
                self.complain(diagnostic);
            }
        }
    }

    fn collision(&self, c: Collision) -> Diagnostic {
        let (rank, what) = self.describe_location(c.location);
        let (first, second) = (self.name(c.first), self.name(c.second));
        let (code, message, at_second, at_first) = match c.race {
            Race::WriteWrite => (
                "V0301",
                format!("nothing orders the write of {what} by {second} after the one by {first}"),
                format!("{second} writes {rank}'s {what} here"),
                format!("{first} writes it here"),
            ),
            Race::ReadAfterWrite => (
                "V0302",
                format!("nothing orders the read of {what} by {second} after the write by {first}"),
                format!("{second} reads {rank}'s {what} here"),
                format!("{first} writes it here"),
            ),
            Race::WriteAfterRead => (
                "V0303",
                format!("nothing orders the write of {what} by {second} after the read by {first}"),
                format!("{second} overwrites {rank}'s {what} here"),
                format!("{first} reads it here"),
            ),
        };
        let mut diagnostic = Diagnostic::new(Code(code), message, self.span(c.second), at_second)
            .label(self.span(c.first), at_first);
        if c.open {
            diagnostic = diagnostic.note(format!(
                "a put is in memory only once its receiver has waited for the next signal on its link; {first} has not been waited for"
            ));
        }
        let (first_lane, second_lane) =
            (self.schedule.lanes[c.first.lane].name, self.schedule.lanes[c.second.lane].name);
        let help = match c.race {
            Race::ReadAfterWrite if c.open => {
                format!("wait for the signal that follows {first} before this op")
            }
            Race::WriteWrite if c.open && first_lane != second_lane => format!(
                "use another chunk, or let the receiver of {first} tell {second_lane} when it is done with it"
            ),
            _ if first_lane == second_lane => {
                format!(
                    "use another chunk, or wait until the receiver of {first} says that it is done with it"
                )
            }
            Race::ReadAfterWrite | Race::WriteWrite => {
                format!(
                    "let {first_lane} signal after {first}, and let {second_lane} wait for that before this op"
                )
            }
            Race::WriteAfterRead => format!(
                "use another chunk, or let {first_lane} signal after {first} and {second_lane} wait for that before this op"
            ),
        };
        diagnostic.help(help)
    }

    fn describe_location(&self, location: LocationId) -> (Rank, String) {
        let rank = Rank::from_u32((location / self.per_rank) as u32);
        let inside = location % self.per_rank;
        for (buffer, decl) in self.schedule.buffers.iter() {
            let base = self.scratch_base[buffer.index()];
            if decl.kind == BufferKind::Scratch && (base..base + decl.chunks as usize).contains(&inside) {
                return (rank, format!("`{}[{}]`", decl.name, inside - base));
            }
        }
        let chunks = self.schedule.chunks as usize;
        let in_place = self.layout == Layout::InPlace;
        let output =
            inside >= chunks || in_place && self.schedule.output_chunks(rank).contains(&(inside as u32));
        let kind = |k: BufferKind| self.schedule.buffers.values().find(|b| b.kind == k);
        let decl = kind(BufferKind::Inout)
            .or_else(|| kind(if output { BufferKind::Output } else { BufferKind::Input }));
        let name = decl.map_or("user memory", |d| d.name.as_str());
        let whole = if chunks == 0 { 0 } else { inside % chunks };
        let shown = match decl {
            Some(d) if d.chunks < self.schedule.chunks => whole % self.schedule.chunks_per_block() as usize,
            _ => whole,
        };
        (rank, format!("`{name}[{shown}]`"))
    }

    /// Lanes that never reach their end. True if there are any.
    fn report_stuck(&mut self) -> bool {
        let stuck: Vec<(Lane, Link)> = self
            .schedule
            .lanes
            .iter()
            .filter_map(|(lane, decl)| match decl.ops.get(self.next[lane.index()])?.kind {
                OpKind::Wait { link } => Some((lane, link)),
                _ => unreachable!("only waits block"),
            })
            .collect();
        let blocked: BTreeMap<Lane, Link> = stuck.iter().copied().collect();
        for &(lane, link) in &stuck {
            let sender = self.ends.from[link];
            if sender.is_none_or(|s| !blocked.contains_key(&s)) {
                let diagnostic = self.missing_signal(lane, link, sender);
                self.complain(diagnostic);
            }
        }
        for cycle in cycles(&blocked, |link| self.ends.from[link]) {
            let diagnostic = self.cycle(&cycle, &blocked);
            self.complain(diagnostic);
        }
        !stuck.is_empty()
    }

    fn at(&self, lane: Lane) -> OpRef {
        OpRef { lane, op: self.next[lane.index()] as u32 }
    }

    fn missing_signal(&self, lane: Lane, link: Link, sender: Option<Lane>) -> Diagnostic {
        let at = self.at(lane);
        let label = match sender {
            None => format!("nobody ever signals {link}"),
            Some(s) => format!("{} has ended without this signal", self.schedule.lanes[s].name),
        };
        let waits = self.schedule.lanes[lane].ops[..at.op as usize]
            .iter()
            .filter(|o| o.kind == OpKind::Wait { link })
            .count();
        Diagnostic::new(
            Code("V0502"),
            format!("{} waits on {link} for a signal that never comes", self.name(at)),
            self.span(at),
            label,
        )
        .label(self.schedule.links[link].span, "the link")
        .note(format!("this is wait number {} on {link}", waits + 1))
        .help(format!("let {} signal {link} once for every wait", self.schedule.links[link].from))
    }

    fn cycle(&self, cycle: &[Lane], blocked: &BTreeMap<Lane, Link>) -> Diagnostic {
        let first = self.at(cycle[0]);
        let names: Vec<String> = cycle.iter().map(|&l| self.name(self.at(l))).collect();
        let label = |lane: Lane| {
            let sender = self.ends.from[blocked[&lane]].expect("a cycle is made of known senders");
            format!(
                "{} waits here on {} for {}",
                self.schedule.lanes[lane].name, blocked[&lane], self.schedule.lanes[sender].name
            )
        };
        let mut diagnostic = Diagnostic::new(
            Code("V0501"),
            match &names[..] {
                [only] => format!("deadlock: {only} waits for a signal that its own lane would send later"),
                _ => format!("deadlock: {} wait for each other", names.join(", ")),
            },
            self.span(first),
            label(cycle[0]),
        );
        for &lane in cycle.iter().skip(1).take(7) {
            diagnostic = diagnostic.label(self.span(self.at(lane)), label(lane));
        }
        diagnostic.help("in one of these lanes, signal before waiting")
    }

    fn report_unused(&mut self) {
        for (link, decl) in self.schedule.links.iter() {
            let pending = self.machine.pending(link.index());
            if pending > 0 {
                let at = self.machine.oldest_signal(link.index()).expect("schedules preload nothing");
                self.complain(
                    Diagnostic::new(
                        Code("V0105"),
                        format!("{} signals {link}, and nobody waits for it", self.name(at)),
                        self.span(at),
                        match pending {
                            1 => format!("one more signal than waits on {link}"),
                            _ => format!("{pending} more signals than waits on {link}"),
                        },
                    )
                    .label(decl.span, "the link")
                    .note("the next launch would take this signal for its own")
                    .help(format!("let {} wait for {link} once more, or leave the signal out", decl.to)),
                );
            }
            for (_, put) in std::mem::take(&mut self.unpublished[link]) {
                self.complain(
                    Diagnostic::new(
                        Code("V0106"),
                        format!("{} is never published", self.name(put)),
                        self.span(put),
                        format!("no signal on {link} follows"),
                    )
                    .help(format!("signal {link} after the put")),
                );
            }
        }
    }
}

fn same_chunk(machine: &Machine, of: Value, value: Value) -> bool {
    match (machine.values.content(of), machine.values.content(value)) {
        (Content::Parts { of: a, .. }, Content::Parts { of: b, .. }) => a == b,
        _ => false,
    }
}

/// The bits of the ranks that exist, in one word of a set.
fn ranks_in_word(ranks: u32, word: u32) -> u64 {
    match ranks.saturating_sub(64 * word) {
        0 => 0,
        left if left >= 64 => u64::MAX,
        left => (1 << left) - 1,
    }
}

fn count(set: &[u64]) -> u32 {
    set.iter().map(|w| w.count_ones()).sum()
}

/// The ranks of a set, cut short where there are many.
fn list_ranks(set: &[u64]) -> String {
    const SHOWN: usize = 6;
    let mut ranks = (0..set.len() * 64).filter(|r| set[r / 64] & (1 << (r % 64)) != 0);
    let shown: Vec<String> = ranks.by_ref().take(SHOWN).map(|r| format!("r{r}")).collect();
    match ranks.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
