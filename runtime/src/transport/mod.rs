//! How ranks reach each other: FIFO links in memory, whatever carries them.
//!
//! [`Connections::connect`] joins every pair of ranks by shared memory or by sockets and hands the
//! executor the same thing either way: for every ordered pair and channel a [`Fifo`], and between
//! ranks that share memory a [`Zone`]. docs/transports.md tells how pairs choose and what happens when
//! a peer dies. This module moves bytes and nothing else: it knows no plan, collective or type.
#![allow(unsafe_code)] // Links are words and bytes in memory shared with other threads and processes.

pub(crate) mod connect;
pub mod connections;
mod departure;
pub(crate) mod doorbell;
pub mod error;
pub mod fifo;
pub mod geometry;
mod glue;
pub(crate) mod offer;
pub mod options;
pub(crate) mod shm;
pub(crate) mod socket;
pub mod zone;

pub use connections::{Connections, Direction, InCollective, LinkState, MemoryUse};
pub use departure::Departure;
pub use error::{ExchangeError, LinkError, LinkFault};
pub use fifo::Fifo;
pub use geometry::Geometry;
pub use options::{Movers, Options, SharedMemory};
pub use zone::{Cell, Zone};

use std::fmt;

/// What carries the links between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportKind {
    /// A rank and itself: private memory.
    Local,
    /// Shared memory of one host.
    Shm,
    /// TCP.
    Socket,
}

impl fmt::Display for TransportKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::Shm => "shm",
            Self::Socket => "socket",
        })
    }
}

/// What connecting needs of the bootstrap: everybody's word to everybody, in rank order.
pub trait Exchange {
    /// This rank.
    fn rank(&self) -> u32;

    /// Number of ranks.
    fn world(&self) -> u32;

    /// Gathers `bytes` of every rank. All ranks call it in the same order with the same tag.
    ///
    /// Errors: a rank is gone or late; the error names it.
    fn all_gather(&self, tag: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, ExchangeError>;
}

/// What links need of the communicator's fault word.
pub trait Alarm: Send + Sync {
    /// Whether the communicator has failed or was aborted. Cheap: asked in loops.
    fn raised(&self) -> bool;

    /// The rank that is to blame, if it has failed and that is known: peers are told.
    fn culprit(&self) -> Option<u32>;

    /// Reports what happened to a link and so ends every wait. The first report counts.
    fn raise(&self, fault: LinkFault);
}

impl fmt::Debug for dyn Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alarm").field("raised", &self.raised()).finish_non_exhaustive()
    }
}
