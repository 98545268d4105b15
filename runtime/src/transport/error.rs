//! What can go wrong while ranks are being connected, and what a link reports once they are.

use crate::error::Seconds;
use crate::memory::segment::SegmentError;
use rustix::io::Errno;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Any error, as the exchange over the bootstrap hands it up.
pub type ExchangeError = Box<dyn std::error::Error + Send + Sync>;

/// Why ranks could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A size is out of range.
    #[error("{field} is {value}; it must be between {least} and {most}")]
    GeometryField {
        /// Which.
        field: &'static str,
        /// What it is.
        value: u64,
        /// Least allowed.
        least: u64,
        /// Most allowed.
        most: u64,
    },
    /// An option is out of range.
    #[error("option {option} is {value}; it must be between {least} and {most}")]
    OptionRange {
        /// Which.
        option: &'static str,
        /// What it is.
        value: u64,
        /// Least allowed.
        least: u64,
        /// Most allowed.
        most: u64,
    },
    /// The exchange over the bootstrap failed.
    #[error("rank {rank}: exchanging `{tag}` with all ranks failed")]
    Exchange {
        /// This rank.
        rank: u32,
        /// What was exchanged.
        tag: &'static str,
        /// Why.
        #[source]
        source: ExchangeError,
    },
    /// A rank sent something that does not parse, or is of another version.
    #[error("rank {rank}: rank {peer} sent `{tag}` that this version cannot read: {reason}")]
    Unreadable {
        /// This rank.
        rank: u32,
        /// The sender.
        peer: u32,
        /// What was exchanged.
        tag: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Two ranks were given different sizes or options.
    #[error("rank {rank} has {setting} = {mine}, rank {peer} has {theirs}: give all ranks the same settings")]
    Mismatch {
        /// This rank.
        rank: u32,
        /// The other.
        peer: u32,
        /// Which setting.
        setting: &'static str,
        /// This rank's value.
        mine: String,
        /// The other's value.
        theirs: String,
    },
    /// Another rank failed; it reports its own reason in full.
    #[error("rank {rank}: rank {peer} could not connect: {reason}")]
    Peer {
        /// This rank.
        rank: u32,
        /// The rank that failed.
        peer: u32,
        /// What it said.
        reason: String,
    },
    /// The shared memory of this rank could not be made.
    #[error("rank {rank}: no shared memory for links from {peers} ranks of this host")]
    Segment {
        /// This rank.
        rank: u32,
        /// How many ranks would write to it.
        peers: usize,
        /// Why.
        #[source]
        source: SegmentError,
    },
    /// Memory could not be mapped.
    #[error(
        "rank {rank}: mapping {bytes} bytes for {purpose} failed; lower the number of channels, slots or \
         the slot size, or raise the limit on address space (ulimit -v)"
    )]
    Map {
        /// This rank.
        rank: u32,
        /// How many bytes.
        bytes: u64,
        /// What for.
        purpose: &'static str,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// No transport joins two ranks.
    #[error("rank {rank}: no transport reaches rank {peer}: {reason}")]
    NoTransport {
        /// This rank.
        rank: u32,
        /// The other.
        peer: u32,
        /// What was tried and why it cannot be.
        reason: String,
    },
    /// Shared memory between two ranks did not carry a pattern over.
    #[error("rank {rank}: a pattern written by rank {peer} into shared memory came back changed")]
    Pattern {
        /// This rank.
        rank: u32,
        /// The other.
        peer: u32,
    },
    /// No socket could be opened to listen on.
    #[error("{}", cannot_listen(*.ip, .ports.as_ref()))]
    Listen {
        /// Where.
        ip: IpAddr,
        /// The ports to which the settings limit it.
        ports: Option<RangeInclusive<u16>>,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// A peer was not connected by the deadline.
    #[error("rank {rank}: rank {peer} at {address} was not connected within {} ({state})", Seconds(*.after))]
    Deadline {
        /// This rank.
        rank: u32,
        /// The other.
        peer: u32,
        /// The address last tried, or where this rank listens.
        address: String,
        /// How far it got and the last error.
        state: String,
        /// The time given.
        after: Duration,
    },
    /// A call of the progress engine failed.
    #[error("rank {rank}: {call} failed for the links' progress thread")]
    Progress {
        /// This rank.
        rank: u32,
        /// The call.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
    /// No random numbers for tokens.
    #[error("rank {rank}: the system gives no random numbers: {reason}")]
    Random {
        /// This rank.
        rank: u32,
        /// What it said.
        reason: String,
    },
    /// The communicator was aborted meanwhile.
    #[error("rank {rank}: aborted while connecting to its peers")]
    Aborted {
        /// This rank.
        rank: u32,
    },
}

fn cannot_listen(ip: IpAddr, ports: Option<&RangeInclusive<u16>>) -> String {
    match ports {
        None => format!("cannot listen on {ip}"),
        Some(ports) => {
            let last = if ports.end() > ports.start() { format!("-{}", ports.end()) } else { String::new() };
            format!(
                "no port of RINGSMITH_PORT_RANGE={}{last} can be had on {ip}; widen it: every rank of a host takes one, and rank 0 one more",
                ports.start()
            )
        }
    }
}

/// What happened to a link of a running communicator. Ends every wait through the [`Alarm`].
///
/// [`Alarm`]: super::Alarm
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// The connection to a peer ended while it was needed.
    #[error("rank {rank}: lost rank {peer}: {reason} (connection to {address})")]
    PeerLost {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// The far end of the connection that showed it.
        address: String,
        /// How it showed.
        reason: String,
    },
    /// A peer sent something it may not.
    #[error("rank {rank}: rank {peer} at {address} broke the link protocol: {reason}")]
    Protocol {
        /// This rank.
        rank: u32,
        /// The peer.
        peer: u32,
        /// Its address.
        address: String,
        /// What was wrong.
        reason: String,
    },
    /// The progress thread cannot go on.
    #[error("rank {rank}: the links' progress thread stopped: {reason}")]
    Progress {
        /// This rank.
        rank: u32,
        /// Why.
        reason: String,
    },
}
