//! Which algorithm, protocol and number of channels: the cheapest that the filters and the
//! communicator's links leave, with what every other one would have cost.
//!
//! Times that differ by less than the model can tell count as equal, and among equals the simplest wins:
//! the order of [`candidates`], then of an algorithm's protocols, then the fewest channels. Every rank
//! that decides decides the same.

use super::cost::{Footprint, Predicted};
use super::order::{Order, rank_order};
use super::tuning::Correction;
use super::{Algorithm, BATCH, Machine, MachineError, Measurement, candidates};
use ringsmith_ir::schedule::Protocol;
use ringsmith_ir::types::Collective;
use ringsmith_ir::verify::{self, MAX_STEPS, MAX_WORK};
use std::fmt;

/// Kernel ops of a message, at most: wait, move and signal at each end, and one move to combine.
const OPS_PER_MESSAGE: u64 = 7;

/// Clocks that the largest run of a proof goes through for a message, at most: for two waits and two
/// signals, in two tiles of two launches.
const CLOCKS_PER_MESSAGE: u64 = 16;

/// How a reason begins that is the caller's own filter.
const LEFT_OUT: &str = "the filter of";

/// Times within this factor of the best count as equal. Ours: well below the model's errors.
const EQUAL: f64 = 1.03;

/// At most this many changes between neighbouring sizes of the grid that [`choose_range`] looks at: two
/// sizes for each power of two. More are the saw teeth of two equals.
const CHANGES: u32 = 4;

/// What is to be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The collective.
    pub collective: Collective,
    /// The root of a rooted collective; otherwise of no account.
    pub root: u32,
    /// Bytes of the larger side of one rank: of the whole, where the other side holds one block.
    pub bytes: u64,
}

/// Which names may be chosen.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Filter {
    /// All.
    #[default]
    Any,
    /// These.
    Only(Vec<String>),
    /// All but these.
    Except(Vec<String>),
}

impl Filter {
    /// Whether it lets a name pass.
    pub fn permits(&self, name: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Only(names) => names.iter().any(|n| n == name),
            Self::Except(names) => names.iter().all(|n| n != name),
        }
    }

    /// Whether it lets something pass that has other names too.
    pub(super) fn permits_any(&self, name: &str, aliases: &[&str]) -> bool {
        let mut names = aliases.iter().copied().chain([name]);
        match self {
            Self::Any => true,
            Self::Only(_) => names.any(|n| self.permits(n)),
            Self::Except(_) => names.all(|n| self.permits(n)),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Only(names) => f.write_str(&names.join(",")),
            Self::Except(names) => write!(f, "^{}", names.join(",^")),
        }
    }
}

/// What the caller allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Algorithms, by name or alias.
    pub algorithms: Filter,
    /// Protocols.
    pub protocols: Filter,
    /// The fewest channels of algorithms that have them.
    pub min_channels: u32,
    /// The most channels.
    pub max_channels: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { algorithms: Filter::Any, protocols: Filter::Any, min_channels: 1, max_channels: u32::MAX }
    }
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the choice.
    Chosen,
    /// It could run and would take longer.
    Slower,
    /// It cannot run, or may not. Says why, as the end of a sentence.
    Excluded(String),
}

/// One way that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels: the best number for it.
    pub channels: u32,
    /// What it would take; none if it cannot run.
    pub predicted: Option<Predicted>,
    /// What became of it.
    pub verdict: Verdict,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What was asked.
    pub request: Request,
    /// How many ranks there are.
    pub ranks: u32,
    /// How many hosts they are on.
    pub hosts: u32,
    /// The rank at each position of the program: what [`super::schedule`] takes.
    pub rank_order: Order,
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels; 1 for algorithms without.
    pub channels: u32,
    /// How many chunks the larger side is cut into.
    pub chunks: u32,
    /// What it should take, and the sizes of its chunks and tiles.
    pub predicted: Predicted,
    /// Everything that was looked at, the choice first, then by time; what cannot run comes last.
    pub candidates: Vec<Candidate>,
}

/// Sizes over which one choice holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The smallest size.
    pub first_bytes: u64,
    /// The largest size.
    pub last_bytes: u64,
    /// The algorithm.
    pub algorithm: &'static Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels.
    pub channels: u32,
}

/// Why there is no choice.
#[derive(Clone, Debug, PartialEq)]
pub enum NothingLeft {
    /// The machine's description makes no sense.
    Machine(MachineError),
    /// There is no such rank.
    Root {
        /// The root that was asked for.
        root: u32,
        /// How many ranks there are.
        ranks: u32,
    },
    /// The collective is not planned: its messages are known only at run time.
    Unplanned(Collective),
    /// The fewest channels are more than the most.
    Channels {
        /// The fewest that the caller allows.
        min_channels: u32,
        /// The most that the caller and the communicator allow.
        max_channels: u32,
    },
    /// Nothing passes.
    Candidates {
        /// What was asked.
        request: Request,
        /// The filter of algorithms.
        algorithms: Filter,
        /// The filter of protocols.
        protocols: Filter,
        /// Every candidate, with the reason against it.
        candidates: Vec<Candidate>,
    },
}

impl fmt::Display for NothingLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => write!(f, "{error}"),
            Self::Root { root, ranks } => write!(f, "root {root} is not one of {ranks} ranks"),
            Self::Unplanned(collective) => {
                write!(f, "{collective} is not planned: its messages are known only at run time")
            }
            Self::Channels { min_channels, max_channels } => {
                write!(f, "at least {min_channels} channels are asked for and at most {max_channels} allowed")
            }
            Self::Candidates { request, algorithms, protocols, candidates } => {
                write!(f, "nothing can do {} of {} bytes", request.collective, request.bytes)?;
                if *algorithms != Filter::Any {
                    write!(f, " with algorithms {algorithms}")?;
                }
                if *protocols != Filter::Any {
                    write!(f, " with protocols {protocols}")?;
                }
                // Where anything else stands in the way, that is what to look at.
                let by_filter =
                    |c: &&Candidate| matches!(&c.verdict, Verdict::Excluded(r) if r.starts_with(LEFT_OUT));
                let left_out = candidates.iter().filter(by_filter).count();
                let left_out = if left_out == candidates.len() { 0 } else { left_out };
                for candidate in candidates {
                    match &candidate.verdict {
                        Verdict::Excluded(reason) if left_out > 0 && reason.starts_with(LEFT_OUT) => (),
                        Verdict::Excluded(reason) => {
                            write!(
                                f,
                                "\n  {} over {}: {reason}",
                                candidate.algorithm.name, candidate.protocol
                            )?;
                        }
                        Verdict::Chosen | Verdict::Slower => (),
                    }
                }
                match left_out {
                    0 => Ok(()),
                    1 => f.write_str("\n  one more is left out by the filters"),
                    more => write!(f, "\n  {more} more are left out by the filters"),
                }
            }
        }
    }
}

impl std::error::Error for NothingLeft {}

/// Chooses for one size.
///
/// Errors: nothing passes the filters and fits the machine.
pub fn choose(request: Request, machine: &Machine, options: &Options) -> Result<Choice, NothingLeft> {
    Prices::new(request, machine, options)?.at(request.bytes)
}

/// Chooses for all sizes, so that a communicator can plan once: stretches from the smallest to the
/// largest, neighbours different. Sizes that nothing passes for are in none of them. [`stretch_at`] finds
/// the one of a size.
///
/// Errors: nothing passes at any size.
pub fn choose_range(
    collective: Collective,
    root: u32,
    machine: &Machine,
    options: &Options,
) -> Result<Vec<Stretch>, NothingLeft> {
    let prices = Prices::new(Request { collective, root, bytes: 0 }, machine, options)?;
    let mut found: Vec<(Option<usize>, u64)> = vec![(prices.best(0), 0)];
    // From 2^48 bytes on nothing changes any more.
    for exponent in 0..49 {
        for size in [1 << exponent, (1 << exponent) + (1_u64 << exponent) / 2] {
            for _ in 0..CHANGES {
                let (current, from) = found[found.len() - 1];
                let Some(at) = prices.next_change(current, from, size) else { break };
                found.push((prices.best(at), at));
            }
        }
    }
    // A candidate that comes twice in a row was interrupted by one that a bisection stepped over.
    found.dedup_by_key(|(best, _)| *best);
    let ends = found.iter().skip(1).map(|(_, from)| from - 1).chain([u64::MAX]);
    let stretches: Vec<Stretch> = found
        .iter()
        .zip(ends)
        .filter_map(|(&(best, from), last)| best.map(|best| prices.stretch(best, from, last)))
        .collect();
    if stretches.is_empty() { Err(prices.nothing(0)) } else { Ok(stretches) }
}

/// The stretch that a size lies in.
pub fn stretch_at(stretches: &[Stretch], bytes: u64) -> Option<&Stretch> {
    let after = stretches.partition_point(|s| s.first_bytes <= bytes);
    stretches[..after].last().filter(|s| bytes <= s.last_bytes)
}

/// How many steps the verifier takes for a plan of so many messages, at most.
fn proof_steps(messages: u64, protocol: Protocol) -> u64 {
    messages.saturating_mul(OPS_PER_MESSAGE).saturating_mul(verify::passes(protocol))
}

/// A way to do the collective that can be priced.
struct Entry {
    algorithm: &'static Algorithm,
    protocol: Protocol,
    channels: u32,
    footprint: usize,
    /// How far the model is off.
    correction: Correction,
}

/// Everything about a choice that does not depend on the size.
struct Prices<'a> {
    request: Request,
    /// The machine, with the host of each position instead of each rank.
    machine: Machine,
    rank_order: Order,
    options: &'a Options,
    footprints: Vec<Footprint>,
    entries: Vec<Entry>,
    excluded: Vec<Candidate>,
}

impl<'a> Prices<'a> {
    fn new(request: Request, machine: &'a Machine, options: &'a Options) -> Result<Self, NothingLeft> {
        machine.check().map_err(NothingLeft::Machine)?;
        let ranks = machine.ranks();
        let rooted = request.collective.rooted();
        if rooted && request.root >= ranks {
            return Err(NothingLeft::Root { root: request.root, ranks });
        }
        let rank_order = rank_order(machine);
        let hosts = rank_order.ranks.iter().map(|r| machine.hosts[*r as usize]).collect();
        let machine = Machine { hosts, ..machine.clone() };
        let all = candidates(request.collective);
        if all.is_empty() {
            return Err(NothingLeft::Unplanned(request.collective));
        }
        let (min_channels, max_channels) =
            (options.min_channels.max(1), options.max_channels.min(machine.channels));
        if min_channels > max_channels {
            return Err(NothingLeft::Channels { min_channels, max_channels });
        }
        let mut prices = Self {
            request: Request { root: if rooted { request.root } else { 0 }, ..request },
            machine,
            rank_order,
            options,
            footprints: Vec::new(),
            entries: Vec::new(),
            excluded: Vec::new(),
        };
        for algorithm in all {
            prices.add(algorithm, min_channels, max_channels);
        }
        Ok(prices)
    }

    fn add(&mut self, algorithm: &'static Algorithm, min_channels: u32, max_channels: u32) {
        let mut priced: Option<(usize, (u64, u64))> = None;
        for &protocol in algorithm.protocols() {
            if let Some(reason) = self.barred(algorithm, protocol) {
                self.exclude(algorithm, protocol, reason);
                continue;
            }
            let (footprint, messages) = *priced.get_or_insert_with(|| {
                let traffic = (algorithm.traffic)(self.rank_order.shape(Some(self.request.root)));
                let messages = traffic.count();
                // What cannot be proved with any protocol is not worth a price.
                if proof_steps(messages.0, Protocol::Ll) <= MAX_STEPS {
                    self.footprints.push(Footprint::new(&traffic, &self.machine));
                }
                (self.footprints.len().saturating_sub(1), messages)
            });
            // Zones have no FIFO to keep full, so one lane does.
            let most = if protocol == Protocol::Simple { max_channels } else { min_channels };
            let doubling = std::iter::successors(Some(min_channels), |c| c.checked_mul(2));
            let wanted: Vec<u32> =
                if algorithm.has_channels { doubling.take_while(|&c| c <= most).collect() } else { vec![1] };
            for (position, &channels) in wanted.iter().enumerate() {
                match self.unfit(algorithm, protocol, channels, messages) {
                    None => {
                        let correction = self.correction((algorithm, protocol, channels), footprint);
                        self.entries.push(Entry { algorithm, protocol, channels, footprint, correction });
                    }
                    // More channels only fit less; the first says it all.
                    Some(reason) => {
                        if position == 0 {
                            self.exclude(algorithm, protocol, reason);
                        }
                        break;
                    }
                }
            }
        }
    }

    /// How far the model is off where calls of this kind have been measured.
    fn correction(&self, way: (&Algorithm, Protocol, u32), footprint: usize) -> Correction {
        let like = |m: &&Measurement| m.is_like(self.request.collective, way);
        let footprint = &self.footprints[footprint];
        Correction::new(self.machine.measured.of(&self.machine).filter(like).map(|measured| {
            let model = footprint.predict(&self.machine, way.1, way.2, measured.bytes);
            (measured.bytes, measured.us / model.us)
        }))
    }

    /// Why an algorithm may not be used with a protocol, whatever it costs.
    fn barred(&self, algorithm: &Algorithm, protocol: Protocol) -> Option<String> {
        let ranks = self.machine.ranks();
        if !self.options.algorithms.permits_any(algorithm.name, algorithm.aliases) {
            return Some(format!("{LEFT_OUT} algorithms `{}` leaves it out", self.options.algorithms));
        }
        if !self.options.protocols.permits(protocol.name()) {
            return Some(format!("{LEFT_OUT} protocols `{}` leaves {protocol} out", self.options.protocols));
        }
        if !algorithm.applies.holds(ranks) {
            return Some(format!("it is for {}, not {ranks}", algorithm.applies));
        }
        let per_node = self.rank_order.per_node;
        if algorithm.by_node && (per_node == 1 || per_node == ranks) {
            return Some("it is for several hosts of equally many ranks, at least two each".to_owned());
        }
        if protocol != Protocol::Simple
            && let Some(stranger) = self.machine.stranger()
        {
            let (first, stranger) = (self.rank_order.ranks[0], self.rank_order.ranks[stranger as usize]);
            return Some(format!("ranks {first} and {stranger} share no memory, which {protocol} needs"));
        }
        None
    }

    /// Why an algorithm does not fit the communicator's links or the verifier. `messages` are those of
    /// all ranks and the most of one pair, with one channel.
    fn unfit(
        &self,
        algorithm: &Algorithm,
        protocol: Protocol,
        channels: u32,
        messages: (u64, u64),
    ) -> Option<String> {
        let machine = &self.machine;
        let steps = proof_steps(messages.0.saturating_mul(channels.into()), protocol);
        if steps > MAX_STEPS {
            return Some(format!("its proof would take {steps} steps, more than {MAX_STEPS}"));
        }
        let lanes = u64::from(machine.ranks()) * u64::from(channels);
        let words = messages.0.saturating_mul(channels.into()).saturating_mul(CLOCKS_PER_MESSAGE * lanes);
        if words > MAX_WORK {
            return Some(format!("its proof would go through {words} words of clocks, more than {MAX_WORK}"));
        }
        if algorithm.batched && machine.slots < BATCH {
            return Some(format!("it sends {BATCH} messages ahead, a FIFO has {} slots", machine.slots));
        }
        if protocol == Protocol::Simple {
            let fifos = u64::from(algorithm.links_per_pair) * u64::from(channels);
            let fits = machine.ranks() == 1 || fifos <= u64::from(machine.channels);
            return (!fits).then(|| {
                format!("it needs {fifos} channels between a pair of ranks, there are {}", machine.channels)
            });
        }
        let cells = messages.1.saturating_mul(channels.into());
        (cells > u64::from(machine.zone_cells)).then(|| {
            format!(
                "it sends {cells} messages from one rank to another, a zone has {} cells",
                machine.zone_cells
            )
        })
    }

    fn exclude(&mut self, algorithm: &'static Algorithm, protocol: Protocol, reason: String) {
        let channels = if algorithm.has_channels { self.options.min_channels.max(1) } else { 1 };
        let verdict = Verdict::Excluded(reason);
        self.excluded.push(Candidate { algorithm, protocol, channels, predicted: None, verdict });
    }

    /// The entry's time at a size, or why it has none.
    fn price(&self, entry: &Entry, bytes: u64) -> Result<Predicted, String> {
        let footprint = &self.footprints[entry.footprint];
        if entry.protocol != Protocol::Simple {
            let (chunk, ..) = footprint.sizes(&self.machine, entry.protocol, entry.channels, bytes);
            // A chunk is a whole number of 16-byte units, so the largest may be one unit more.
            let largest = chunk.checked_next_multiple_of(16).unwrap_or(u64::MAX);
            if largest > self.machine.zone_cell_bytes {
                return Err(format!(
                    "messages of {chunk} bytes do not fit into a zone's cells of {}",
                    self.machine.zone_cell_bytes
                ));
            }
        }
        let model = footprint.predict(&self.machine, entry.protocol, entry.channels, bytes);
        let correction = entry.correction.at(bytes);
        Ok(Predicted { us: model.us * correction, correction, ..model })
    }

    /// The choice at a size: of those as good as the cheapest, the first.
    fn best(&self, bytes: u64) -> Option<usize> {
        let times: Vec<Option<f64>> =
            self.entries.iter().map(|e| self.price(e, bytes).ok().map(|p| p.us)).collect();
        let cheapest = times.iter().flatten().copied().min_by(f64::total_cmp)?;
        times.iter().position(|us| us.is_some_and(|us| us <= cheapest * EQUAL))
    }

    fn at(&self, bytes: u64) -> Result<Choice, NothingLeft> {
        let best = self.best(bytes).ok_or_else(|| self.nothing(bytes))?;
        let entry = &self.entries[best];
        let candidates = self.candidates_at(bytes, Some(best));
        let predicted = candidates[0].predicted.expect("the best entry has a price");
        let hosts = self.machine.hosts.iter().collect::<std::collections::BTreeSet<_>>().len() as u32;
        let lanes = if entry.algorithm.has_channels { entry.channels } else { 1 };
        Ok(Choice {
            request: Request { bytes, ..self.request },
            ranks: self.machine.ranks(),
            hosts,
            rank_order: self.rank_order.clone(),
            algorithm: entry.algorithm,
            protocol: entry.protocol,
            channels: entry.channels,
            chunks: self.footprints[entry.footprint].chunks() * lanes,
            predicted,
            candidates,
        })
    }

    /// One candidate for each algorithm and protocol, with its best number of channels.
    fn candidates_at(&self, bytes: u64, best: Option<usize>) -> Vec<Candidate> {
        let mut priced: Vec<(usize, Predicted)> = Vec::new();
        let mut excluded = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let kind = |e: &Entry| (e.algorithm, e.protocol);
            match self.price(entry, bytes) {
                Ok(predicted) => {
                    match priced.iter_mut().find(|(i, _)| kind(&self.entries[*i]) == kind(entry)) {
                        Some(known)
                            if Some(known.0) != best
                                && (predicted.us < known.1.us || Some(index) == best) =>
                        {
                            *known = (index, predicted);
                        }
                        Some(_) => {}
                        None => priced.push((index, predicted)),
                    }
                }
                Err(reason) => excluded.push(Candidate {
                    algorithm: entry.algorithm,
                    protocol: entry.protocol,
                    channels: entry.channels,
                    predicted: None,
                    verdict: Verdict::Excluded(reason),
                }),
            }
        }
        priced.sort_by(|a, b| (Some(b.0) == best).cmp(&(Some(a.0) == best)).then(a.1.us.total_cmp(&b.1.us)));
        let candidate = |(index, predicted): (usize, Predicted)| {
            let entry = &self.entries[index];
            Candidate {
                algorithm: entry.algorithm,
                protocol: entry.protocol,
                channels: entry.channels,
                predicted: Some(predicted),
                verdict: if Some(index) == best { Verdict::Chosen } else { Verdict::Slower },
            }
        };
        priced.into_iter().map(candidate).chain(excluded).chain(self.excluded.iter().cloned()).collect()
    }

    fn nothing(&self, bytes: u64) -> NothingLeft {
        NothingLeft::Candidates {
            request: Request { bytes, ..self.request },
            algorithms: self.options.algorithms.clone(),
            protocols: self.options.protocols.clone(),
            candidates: self.candidates_at(bytes, None),
        }
    }

    /// The first size after `from` and up to `to` at which `current` is not the choice, found by
    /// bisection; none if it is the choice at `to`.
    fn next_change(&self, current: Option<usize>, from: u64, to: u64) -> Option<u64> {
        if to <= from || self.best(to) == current {
            return None;
        }
        let (mut same, mut other) = (from, to);
        while other - same > 1 {
            let middle = same + (other - same) / 2;
            if self.best(middle) == current {
                same = middle;
            } else {
                other = middle;
            }
        }
        Some(other)
    }

    fn stretch(&self, entry: usize, first_bytes: u64, last_bytes: u64) -> Stretch {
        let Entry { algorithm, protocol, channels, .. } = self.entries[entry];
        Stretch { first_bytes, last_bytes, algorithm, protocol, channels }
    }
}
