//! The machine as the cost model sees it: where ranks sit, what a message and a byte cost there, and
//! how large the communicator's links are.
//!
//! The constants below are one table on purpose: they are the only numbers of the model, to be
//! replaced by what `ringsmith tune` measures. Nothing here finds anything out about the machine.

use std::fmt;

/// What a message costs on one kind of connection.
#[derive(Clone, Copy, Debug, PartialEq)]
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

/// Bytes that all cores of a host move in a second together, counting a byte once when it is copied.
/// Measured as above: two ranks reduce 64 MiB, which no cache holds, in 6.4 ms, which is 42 GB/s; what caches
/// hold moves at twice that.
const MEMORY_BYTES_PER_S: f64 = 6e10;

/// What a host sends, and receives, in a second. Assumed: 100 Gbit/s.
const NETWORK_BYTES_PER_S: f64 = 12.5e9;

/// Handing a core to another rank where there are more ranks than cores: a yield and a switch. Measured
/// as above: one-shot all_reduce of 8 bytes between four ranks on two cores takes 2.2 us.
const SWITCH_NS: f64 = 700.0;

/// A call from entry to its first op, and from its last op to the return. Measured as above.
const LAUNCH_NS: f64 = 50.0;

/// The largest number of ranks that is planned for. Ours: what the transports take.
pub const MAX_RANKS: u32 = 16 * 1024;

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
            shm: SHM,
            zone: ZONE,
            socket: SOCKET,
            reduce_bytes_per_s: REDUCE_BYTES_PER_S,
            memory_bytes_per_s: MEMORY_BYTES_PER_S,
            network_bytes_per_s: NETWORK_BYTES_PER_S,
            switch_ns: SWITCH_NS,
            launch_ns: LAUNCH_NS,
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
        let positive = |field, value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { Err(MachineError { field, value }) }
        };
        let ranks = self.hosts.len() as u64;
        count("ranks", ranks, MAX_RANKS.into())?;
        count("hosts", u64::from(self.hosts.iter().copied().max().unwrap_or(0)) + 1, ranks)?;
        count("cores_per_host", self.cores_per_host.into(), u32::MAX.into())?;
        count("threads_per_rank", self.threads_per_rank.into(), u32::MAX.into())?;
        count("slots", self.slots.into(), u32::MAX.into())?;
        count("slot_bytes", self.slot_bytes, u64::MAX)?;
        count("channels", self.channels.into(), u32::MAX.into())?;
        for (name, class) in [("shm", self.shm), ("zone", self.zone), ("socket", self.socket)] {
            positive(name, class.latency_ns)?;
            positive(name, class.message_ns)?;
            positive(name, class.bytes_per_s)?;
        }
        positive("reduce_bytes_per_s", self.reduce_bytes_per_s)?;
        positive("memory_bytes_per_s", self.memory_bytes_per_s)?;
        positive("network_bytes_per_s", self.network_bytes_per_s)?;
        positive("switch_ns", self.switch_ns)?;
        positive("launch_ns", self.launch_ns)
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
