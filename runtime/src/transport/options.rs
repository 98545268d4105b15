//! What the transports let be set. Filled from the settings by the runtime's door; nothing here reads
//! the environment.

use super::error::LinkError;
use crate::memory::segment::Backing;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// Largest number of connections per pair. Ours: a few fill any NIC.
pub const MAX_SOCKETS_PER_PAIR: u32 = 64;

/// Largest number of addresses to listen on. Ours: peers try them one after the other.
pub const MAX_LISTEN: usize = 16;

/// Whether ranks of one host use shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedMemory {
    /// Where both ranks can.
    #[default]
    Auto,
    /// Never: sockets everywhere.
    Off,
    /// Everywhere; a pair that cannot is an error.
    Only,
}

/// Who moves the messages of socket links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Movers {
    /// Executor threads help if this machine has less than two cores for each of the communicator's
    /// ranks on it.
    #[default]
    Auto,
    /// The progress thread alone, polling while a collective runs: wants a core of its own.
    Thread,
    /// Executor threads while they wait, and the progress thread when nobody else is there.
    Everybody,
}

/// Options of [`Connections::connect`](super::Connections::connect).
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether ranks of one host use shared memory.
    pub shared_memory: SharedMemory,
    /// Overrides how a host is recognised: ranks with the same word are taken to share memory, ranks
    /// with different words not.
    pub host_id: Option<String>,
    /// Which kind of file is behind shared memory.
    pub backing: Backing,
    /// Addresses to listen on, the best one first; peers try them in this order.
    pub listen: Vec<IpAddr>,
    /// Ports to listen on; none lets the kernel choose.
    pub ports: Option<RangeInclusive<u16>>,
    /// Connections between two ranks; channels are dealt over them. The same on all ranks.
    pub sockets_per_pair: u32,
    /// Kernel buffer of each socket, each way; none leaves it to the kernel.
    pub socket_buffer_bytes: Option<usize>,
    /// Who moves the messages of socket links.
    pub movers: Movers,
    /// How many connections a rank tries to open at once.
    pub connect_concurrency: u32,
    /// Deadline of connecting, all phases together.
    pub connect_timeout: Duration,
    /// How long closing may wait for peers to confirm what was sent to them.
    pub close_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shared_memory: SharedMemory::Auto,
            host_id: None,
            backing: Backing::Auto,
            listen: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            ports: None,
            sockets_per_pair: 1,
            socket_buffer_bytes: None,
            movers: Movers::Auto,
            connect_concurrency: 32,
            connect_timeout: Duration::from_secs(120),
            close_timeout: Duration::from_secs(5),
        }
    }
}

impl Options {
    /// Checks the numbers against their bounds.
    pub(crate) fn check(&self) -> Result<(), LinkError> {
        let within = |option, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(LinkError::OptionRange { option, value, least, most })
            }
        };
        within("sockets_per_pair", self.sockets_per_pair.into(), 1, MAX_SOCKETS_PER_PAIR.into())?;
        within("connect_concurrency", self.connect_concurrency.into(), 1, 4096)?;
        within("socket_buffer_bytes", self.socket_buffer_bytes.unwrap_or(4096) as u64, 4096, 1 << 30)?;
        within("listen addresses", self.listen.len() as u64, 0, MAX_LISTEN as u64)
    }
}
