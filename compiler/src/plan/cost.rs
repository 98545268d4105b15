//! What an algorithm costs on a machine: a few numbers per round, found once, and a time for any size.
//!
//! # The model
//! A message costs each end some work (`message_ns`, and its bytes at the speed of a copy, or of a
//! reduction) and arrives one latency after the sender's signal. For one tile, a round takes
//!
//! `latency + max(work of the busiest rank, work of the busiest host / cores, its bytes / memory
//! speed, its bytes over the network / network speed)`
//!
//! and where a host has more ranks than cores, each round also waits for the ranks before it in the
//! queue: `switch_ns` for every core's share of those at work, and at least once.
//! Stepwise algorithms take all their rounds for every tile; pipelined ones take them once, and then
//! one more tile each time the busiest rank or host is through with one.
//! Channels cut a chunk further. The lanes of a rank share its threads, so they add no work force,
//! but while one waits for what is on its way the others move: latency is hidden as far as there is work
//! and a later round to hide it.
//!
//! In calls that touch more than the caches of a host hold, bytes in memory take longer ([`Costs::touching`]).
//!
//! Plain f64 in a fixed order: every rank that computes a time computes the same one.

use super::traffic::{Flow, Landing, Message, Traffic};
use super::{Costs, Machine};
use ringsmith_ir::schedule::Protocol;

/// A predicted time and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The time of a call, microseconds.
    pub us: f64,
    /// The part of it that measurements account for: the time over what the model alone says.
    pub correction: f64,
    /// Bytes of the largest chunk.
    pub chunk_bytes: u64,
    /// Bytes of a tile.
    pub tile_bytes: u64,
    /// Tiles of the largest chunk.
    pub tiles: u64,
}

/// Work that is proportional to messages and bytes, in messages of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Load {
    /// Ends of messages through shared memory.
    local: f64,
    /// Ends of messages through sockets.
    remote: f64,
    /// Ends whose bytes are copied.
    local_copies: f64,
    /// Ends whose bytes cross a socket, either way.
    remote_copies: f64,
    /// Ends whose bytes are reduced.
    reductions: f64,
    /// Messages that leave the host.
    outgoing: f64,
    /// Messages that enter the host.
    incoming: f64,
}

impl Load {
    fn send(&mut self, message: &Message, local: bool) {
        let chunks = f64::from(message.chunks);
        let payload = if message.landing == Landing::Signal { 0.0 } else { chunks };
        if local {
            self.local += chunks;
            self.local_copies += payload;
        } else {
            self.remote += chunks;
            self.remote_copies += payload;
            self.outgoing += payload;
        }
    }

    fn receive(&mut self, message: &Message, local: bool) {
        let chunks = f64::from(message.chunks);
        let payload = if message.landing == Landing::Signal { 0.0 } else { chunks };
        if local {
            self.local += chunks;
        } else {
            self.remote += chunks;
            self.remote_copies += payload;
            self.incoming += payload;
        }
        match message.landing {
            Landing::Reduce => self.reductions += payload,
            Landing::Copy => self.local_copies += payload,
            Landing::Signal => {}
        }
    }

    fn add(&mut self, other: &Self) {
        self.local += other.local;
        self.remote += other.remote;
        self.local_copies += other.local_copies;
        self.remote_copies += other.remote_copies;
        self.reductions += other.reductions;
        self.outgoing += other.outgoing;
        self.incoming += other.incoming;
    }

    /// Time of one thread for messages of `bytes` bytes.
    fn work_ns(&self, costs: &Costs, zone: bool, bytes: f64) -> f64 {
        let near = if zone { costs.zone } else { costs.shm };
        self.local * near.message_ns
            + self.remote * costs.socket.message_ns
            + self.local_copies * bytes / near.bytes_per_s * 1e9
            + self.remote_copies * bytes / costs.socket.bytes_per_s * 1e9
            + self.reductions * bytes / costs.reduce_bytes_per_s * 1e9
    }

    /// Time that a host's memory and network need, however many cores it has.
    fn shared_ns(&self, costs: &Costs, bytes: f64) -> f64 {
        let memory = (self.local_copies + self.remote_copies + self.reductions) * bytes;
        let network = self.outgoing.max(self.incoming) * bytes;
        (memory / costs.memory_bytes_per_s * 1e9).max(network / costs.network_bytes_per_s * 1e9)
    }
}

/// The loads that can limit a round. Which is the largest depends on the size, so the few that no other
/// one exceeds in every kind are kept.
#[derive(Clone, Debug, Default, PartialEq)]
struct Busiest(Vec<Load>);

impl Busiest {
    fn of(loads: impl Iterator<Item = Load>) -> Self {
        let fields = |l: &Load| {
            [l.local, l.remote, l.local_copies, l.remote_copies, l.reductions, l.outgoing, l.incoming]
        };
        let exceeds = |a: &Load, b: &Load| fields(a).iter().zip(fields(b)).all(|(a, b)| *a >= b);
        let mut kept: Vec<Load> = Vec::new();
        for load in loads {
            if !kept.iter().any(|k| exceeds(k, &load)) {
                kept.retain(|k| !exceeds(&load, k));
                kept.push(load);
            }
        }
        Self(kept)
    }

    fn largest(&self, time: impl Fn(&Load) -> f64) -> f64 {
        self.0.iter().map(time).fold(0.0, f64::max)
    }
}

/// One round, or a whole tile, on a machine.
#[derive(Clone, Debug, PartialEq)]
struct Phase {
    repeat: f64,
    ranks: Busiest,
    hosts: Busiest,
    /// The most ranks of a host that take part.
    active: u32,
    /// Whether some host that takes part has more ranks than cores.
    crowded: bool,
    crosses: bool,
}

/// Adds up the loads of the ranks that take part in a round.
struct Adder<'a> {
    machine: &'a Machine,
    /// Ranks of each host.
    present: Vec<u32>,
    /// The load of every rank, and the ranks whose load is not nothing.
    loads: Vec<Load>,
    touched: Vec<u32>,
    crosses: bool,
}

impl<'a> Adder<'a> {
    fn new(machine: &'a Machine) -> Self {
        let mut present = vec![0; machine.hosts.iter().max().map_or(0, |h| *h as usize + 1)];
        machine.hosts.iter().for_each(|h| present[*h as usize] += 1);
        let loads = vec![Load::default(); machine.hosts.len()];
        Self { machine, present, loads, touched: Vec::new(), crosses: false }
    }

    fn add(&mut self, message: &Message) {
        let local = self.machine.is_local(message.from, message.to);
        self.crosses |= !local;
        for rank in [message.from, message.to] {
            if self.loads[rank as usize] == Load::default() {
                self.touched.push(rank);
            }
        }
        self.loads[message.from as usize].send(message, local);
        self.loads[message.to as usize].receive(message, local);
    }

    /// The phase of what was added, and a clean slate.
    fn finish(&mut self, repeat: u32) -> Phase {
        let mut ranks: Vec<u32> = std::mem::take(&mut self.touched);
        // Host by host, and ranks in order, so that sums are the same on every rank that plans.
        ranks.sort_unstable_by_key(|r| (self.machine.hosts[*r as usize], *r));
        ranks.dedup();
        let host = |r: u32| self.machine.hosts[r as usize];
        let groups: Vec<&[u32]> = ranks.chunk_by(|a, b| host(*a) == host(*b)).collect();
        let sum = |group: &[u32]| {
            group.iter().fold(Load::default(), |mut sum, r| {
                sum.add(&self.loads[*r as usize]);
                sum
            })
        };
        let phase = Phase {
            repeat: f64::from(repeat),
            ranks: Busiest::of(ranks.iter().map(|r| self.loads[*r as usize])),
            hosts: Busiest::of(groups.iter().map(|g| sum(g))),
            active: groups.iter().map(|g| g.len() as u32).max().unwrap_or(0),
            crowded: groups.iter().any(|g| self.present[host(g[0]) as usize] > self.machine.cores_per_host),
            crosses: std::mem::take(&mut self.crosses),
        };
        for rank in ranks {
            self.loads[rank as usize] = Load::default();
        }
        phase
    }
}

impl Phase {
    fn work_ns(&self, machine: &Machine, costs: &Costs, zone: bool, bytes: f64, channels: f64) -> f64 {
        let threads = f64::from(machine.threads_per_rank).min(channels);
        let cores = f64::from(machine.cores_per_host).min(f64::from(self.active.max(1)) * threads);
        let rank = self.ranks.largest(|l| l.work_ns(costs, zone, bytes)) * channels / threads;
        let host = self.hosts.largest(|l| l.work_ns(costs, zone, bytes)) * channels / cores;
        let shared = self.hosts.largest(|l| l.shared_ns(costs, bytes)) * channels;
        rank.max(host).max(shared)
    }

    fn latency_ns(&self, costs: &Costs, zone: bool) -> f64 {
        let near = if zone { costs.zone } else { costs.shm };
        if self.crosses { costs.socket.latency_ns } else { near.latency_ns }
    }

    fn queue_ns(&self, machine: &Machine) -> f64 {
        let cores = f64::from(machine.cores_per_host);
        if self.crowded { (f64::from(self.active) / cores).max(1.0) * machine.costs.switch_ns } else { 0.0 }
    }
}

/// What an algorithm does on a machine, for any size.
#[derive(Clone, Debug)]
pub(super) struct Footprint {
    chunks: u32,
    flow: Flow,
    rounds: Vec<Phase>,
    whole: Phase,
    /// The most ranks of a host.
    on_a_host: u32,
}

impl Footprint {
    pub(super) fn new(traffic: &Traffic, machine: &Machine) -> Self {
        let mut adder = Adder::new(machine);
        let mut all = Adder::new(machine);
        let mut rounds: Vec<Phase> = Vec::new();
        for round in traffic.rounds.iter().filter(|r| r.repeat > 0 && !r.messages.is_empty()) {
            for message in &round.messages {
                adder.add(message);
                all.add(&Message { chunks: message.chunks * round.repeat, ..*message });
            }
            let phase = adder.finish(round.repeat);
            match rounds.last_mut() {
                // The hops of a chain are many and alike.
                Some(last) if (Phase { repeat: last.repeat, ..phase.clone() }) == *last => {
                    last.repeat += phase.repeat;
                }
                Some(_) | None => rounds.push(phase),
            }
        }
        let whole = all.finish(1);
        Self {
            chunks: traffic.chunks,
            flow: traffic.flow,
            rounds,
            whole,
            on_a_host: machine.most_on_a_host(),
        }
    }

    /// How many chunks there are with one channel.
    pub(super) fn chunks(&self) -> u32 {
        self.chunks
    }

    /// The chunk, its tile, and the number of tiles, for `bytes` bytes on the larger side.
    pub(super) fn sizes(
        &self,
        machine: &Machine,
        protocol: Protocol,
        channels: u32,
        bytes: u64,
    ) -> (u64, u64, u64) {
        let chunk = match u64::from(self.chunks) * u64::from(channels) {
            0 => 0,
            chunks => bytes.div_ceil(chunks),
        };
        let tile = if protocol == Protocol::Simple { chunk.min(machine.slot_bytes) } else { chunk };
        let tiles = if tile == 0 { 1 } else { chunk.div_ceil(tile) };
        (chunk, tile, tiles)
    }

    /// The time of a call.
    pub(super) fn predict(
        &self,
        machine: &Machine,
        protocol: Protocol,
        channels: u32,
        bytes: u64,
    ) -> Predicted {
        let zone = protocol != Protocol::Simple;
        let costs = machine.costs.touching(2.0 * bytes as f64 * f64::from(self.on_a_host));
        let (chunk_bytes, tile_bytes, tiles) = self.sizes(machine, protocol, channels, bytes);
        // Tiles of a chunk differ; their mean makes the bytes come out right.
        let mean_tile = chunk_bytes as f64 / tiles as f64;
        let lanes = f64::from(channels);
        let (mut rounds, mut latency, mut queue, mut work) = (0.0, 0.0, 0.0, 0.0);
        for round in &self.rounds {
            rounds += round.repeat;
            latency += round.repeat * round.latency_ns(&costs, zone);
            queue += round.repeat * round.queue_ns(machine);
            work += round.repeat * round.work_ns(machine, &costs, zone, mean_tile, lanes);
        }
        let tiles_f = tiles as f64;
        let ns = match self.flow {
            Flow::Stepwise => {
                // What the other lanes do while one waits; after the last round there is nothing left to do.
                let all_rounds = (rounds * tiles_f).max(1.0);
                let hidden = work * (lanes - 1.0) / lanes * (all_rounds - 1.0) / all_rounds;
                ((latency - hidden).max(latency / all_rounds) + queue + work) * tiles_f
            }
            Flow::Pipelined => {
                let busiest = self.whole.work_ns(machine, &costs, zone, mean_tile, lanes);
                latency + queue + work + (tiles_f - 1.0) * (busiest + self.whole.queue_ns(machine))
            }
        };
        Predicted { us: (costs.launch_ns + ns) / 1e3, correction: 1.0, chunk_bytes, tile_bytes, tiles }
    }
}
