//! The machine as the cost model sees it: where ranks sit, what a message and a byte cost there, and
//! how large the communicator's links are.
//!
//! The constants below are one table on purpose: they are the only numbers of the model, and what
//! `ringsmith tune` measures takes their place ([`Costs`]). Nothing here finds anything out about the machine.

use super::tuning::Measurements;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a message costs on one kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkClass {
    /// From the sender's signal to the receiver's first look at it, both running.
    pub latency_ns: f64,
    /// Work of each end for a message, whatever its size.
    pub message_ns: f64,
    /// Bytes that one thread moves into or out of a message in a second.
    pub bytes_per_s: f64,
}

/// Slots between ranks of one host, over cache-coherent shared memory. Measured on a virtual machine with
/// two cores (AMD EPYC 9005), each rank on its own: one-shot all_reduce of two ranks over slots takes 0.15
/// us for 8 bytes, 2.5 us for 64 KiB and 44 us for 1 MiB.
const SHM: LinkClass = LinkClass { latency_ns: 50.0, message_ns: 20.0, bytes_per_s: 4.5e10 };

/// Cells of an epoch zone: payload and flag in one line, and no credit to wait for. Measured as above: 0.12
/// us for 8 bytes, 0.36 us for 8 KiB.
const ZONE: LinkClass = LinkClass { latency_ns: 40.0, message_ns: 10.0, bytes_per_s: 6e10 };

/// Slots between hosts, over TCP. Latency: 11 us one way, and 1.6 GB/s a stream, measured over loopback
/// on a virtual machine with two cores (blocking reads and writes of 64 bytes and of 128 KiB);
/// a real network adds its own. The work of an end is a system call and a wake-up of the progress
/// thread.
const SOCKET: LinkClass = LinkClass { latency_ns: 15_000.0, message_ns: 4_000.0, bytes_per_s: 1.6e9 };

/// One thread adding float32 from two streams into a third. Measured as above, in second-level cache.
const REDUCE_BYTES_PER_S: f64 = 4e10;

/// Bytes that all cores of a host move in a second together, counting a byte once when it is copied, as long as
/// caches hold what is moved. Measured as above: two ranks reduce 1 MiB in 44 us, which is 95 GB/s.
const MEMORY_BYTES_PER_S: f64 = 9e10;

/// What a host sends, and receives, in a second. Assumed: 100 Gbit/s.
const NETWORK_BYTES_PER_S: f64 = 12.5e9;

/// Handing a core to another rank where there are more ranks than cores: a yield and a switch. Measured
/// as above: one-shot all_reduce of 8 bytes between four ranks on two cores takes 2.2 us.
const SWITCH_NS: f64 = 700.0;

/// A call from entry to its first op, and from its last op to the return. Measured as above.
const LAUNCH_NS: f64 = 50.0;

/// What the caches of a host hold. Assumed: one die's share of a server's last level.
const CACHED_BYTES: f64 = 32e6;

/// How many times longer a byte takes that no cache holds. Measured as above: two ranks reduce 64 MiB in 6.4 ms, which
/// is 42 GB/s.
const COLD: f64 = 2.1;

/// The largest number of ranks that is planned for. Ours: what the transports take.
pub const MAX_RANKS: u32 = 16 * 1024;

/// What things cost on a machine: every number of the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Slots between ranks that share memory.
    pub shm: LinkClass,
    /// Zone cells between ranks that share memory.
    pub zone: LinkClass,
    /// Slots between ranks that do not.
    pub socket: LinkClass,
    /// Bytes that one thread reduces in a second.
    pub reduce_bytes_per_s: f64,
    /// Bytes that a host's cores copy in a second together.
    pub memory_bytes_per_s: f64,
    /// Bytes that a host sends, and receives, in a second.
    pub network_bytes_per_s: f64,
    /// Handing a core from one rank to another.
    pub switch_ns: f64,
    /// What every call costs.
    pub launch_ns: f64,
    /// Bytes that a host's caches hold: the speeds above are those of calls that touch no more.
    pub cached_bytes: f64,
    /// How many times longer copying or reducing a byte takes in calls that touch twice as much or more.
    pub cold: f64,
}

impl Costs {
    /// Ranks on CPUs, with the constants of this file.
    pub const CPU: Self = Self {
        shm: SHM,
        zone: ZONE,
        socket: SOCKET,
        reduce_bytes_per_s: REDUCE_BYTES_PER_S,
        memory_bytes_per_s: MEMORY_BYTES_PER_S,
        network_bytes_per_s: NETWORK_BYTES_PER_S,
        switch_ns: SWITCH_NS,
        launch_ns: LAUNCH_NS,
        cached_bytes: CACHED_BYTES,
        cold: COLD,
    };

    /// The same for calls in which the ranks of a host touch so many bytes together: slower in memory, in
    /// proportion to what exceeds the caches, up to twice their size. What passes through a socket is copied in
    /// pieces that caches hold.
    pub fn touching(&self, bytes: f64) -> Self {
        let missed = (bytes / self.cached_bytes - 1.0).clamp(0.0, 1.0);
        let slower = 1.0 + missed * (self.cold - 1.0);
        let class = |class: LinkClass| LinkClass { bytes_per_s: class.bytes_per_s / slower, ..class };
        Self {
            shm: class(self.shm),
            zone: class(self.zone),
            reduce_bytes_per_s: self.reduce_bytes_per_s / slower,
            memory_bytes_per_s: self.memory_bytes_per_s / slower,
            ..*self
        }
    }

    /// Every number, with its name, to be read or replaced.
    pub fn numbers(&mut self) -> [(&'static str, &mut f64); 16] {
        [
            ("shm.latency_ns", &mut self.shm.latency_ns),
            ("shm.message_ns", &mut self.shm.message_ns),
            ("shm.bytes_per_s", &mut self.shm.bytes_per_s),
            ("zone.latency_ns", &mut self.zone.latency_ns),
            ("zone.message_ns", &mut self.zone.message_ns),
            ("zone.bytes_per_s", &mut self.zone.bytes_per_s),
            ("socket.latency_ns", &mut self.socket.latency_ns),
            ("socket.message_ns", &mut self.socket.message_ns),
            ("socket.bytes_per_s", &mut self.socket.bytes_per_s),
            ("reduce_bytes_per_s", &mut self.reduce_bytes_per_s),
            ("memory_bytes_per_s", &mut self.memory_bytes_per_s),
            ("network_bytes_per_s", &mut self.network_bytes_per_s),
            ("switch_ns", &mut self.switch_ns),
            ("launch_ns", &mut self.launch_ns),
            ("cached_bytes", &mut self.cached_bytes),
            ("cold", &mut self.cold),
        ]
    }

    /// Checks that planning with them makes sense.
    pub fn check(&self) -> Result<(), MachineError> {
        let mut costs = *self;
        let wrong = costs.numbers().into_iter().find(|(_, value)| !(value.is_finite() && **value > 0.0));
        wrong.map_or(Ok(()), |(field, value)| Err(MachineError { field, value: *value }))
    }
}

/// Where ranks sit and what things cost there.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The host of each rank, numbered from 0.
    pub hosts: Vec<u32>,
    /// Cores that the ranks of a host share.
    pub cores_per_host: u32,
    /// Threads that run the lanes of a rank. The CPU executor has one.
    pub threads_per_rank: u32,
    /// Whether ranks of a host use shared memory; they use sockets otherwise.
    pub shared_memory: bool,
    /// What things cost.
    pub costs: Costs,
    /// What calls took where they were measured: what is predicted for these follows them.
    pub measured: Measurements,
    /// Slots per FIFO.
    pub slots: u32,
    /// Bytes per slot: the largest tile.
    pub slot_bytes: u64,
    /// Cells per parity of a zone, for all messages from one rank to another in a launch.
    pub zone_cells: u32,
    /// Bytes per cell: the largest message of a zone.
    pub zone_cell_bytes: u64,
    /// FIFOs per ordered pair of ranks.
    pub channels: u32,
}

impl Machine {
    /// Ranks on CPUs, with the constants of this file.
    pub fn cpu(hosts: Vec<u32>, cores_per_host: u32) -> Self {
        Self {
            hosts,
            cores_per_host,
            threads_per_rank: 1,
            shared_memory: true,
            costs: Costs::CPU,
            measured: Measurements::default(),
            slots: 8,
            slot_bytes: 128 << 10,
            zone_cells: 64,
            zone_cell_bytes: 8 << 10,
            channels: 4,
        }
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// The most ranks of a host.
    pub fn most_on_a_host(&self) -> u32 {
        let mut ranks = vec![0u32; self.hosts.iter().max().map_or(0, |last| *last as usize + 1)];
        self.hosts.iter().for_each(|host| ranks[*host as usize] += 1);
        ranks.into_iter().max().unwrap_or(0)
    }

    /// Bytes that the ranks of a host touch together in a call whose larger side has `bytes` bytes at each rank:
    /// both sides, in the busiest host.
    pub fn touched(&self, bytes: u64) -> f64 {
        2.0 * bytes as f64 * f64::from(self.most_on_a_host())
    }

    /// Whether all ranks share memory, so that zones can be used.
    pub fn all_share_memory(&self) -> bool {
        self.stranger().is_none()
    }

    /// A rank that shares no memory with rank 0, if there is one.
    pub(super) fn stranger(&self) -> Option<u32> {
        let first = self.hosts.first()?;
        let stranger = |&r: &usize| r > 0 && (!self.shared_memory || self.hosts[r] != *first);
        (0..self.hosts.len()).find(stranger).map(|r| r as u32)
    }

    /// Whether a message from one rank to another goes through shared memory.
    pub(crate) fn is_local(&self, from: u32, to: u32) -> bool {
        self.shared_memory && self.hosts[from as usize] == self.hosts[to as usize]
    }

    /// Checks that planning for it makes sense.
    pub fn check(&self) -> Result<(), MachineError> {
        let count = |field, value: u64, most: u64| {
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(MachineError { field, value: value as f64 })
            }
        };
        let ranks = self.hosts.len() as u64;
        count("ranks", ranks, MAX_RANKS.into())?;
        count("hosts", u64::from(self.hosts.iter().copied().max().unwrap_or(0)) + 1, ranks)?;
        count("cores_per_host", self.cores_per_host.into(), u32::MAX.into())?;
        count("threads_per_rank", self.threads_per_rank.into(), u32::MAX.into())?;
        count("slots", self.slots.into(), u32::MAX.into())?;
        count("slot_bytes", self.slot_bytes, u64::MAX)?;
        count("channels", self.channels.into(), u32::MAX.into())?;
        self.costs.check()
    }
}

/// A number in a machine's description that no plan can be made from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineError {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: f64,
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot plan for a machine whose {} is {}", self.field, self.value)
    }
}

impl std::error::Error for MachineError {}
