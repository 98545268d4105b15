//! What the root says when it gives up on a rank, on a gathering, or on the whole job.
//!
//! Made by the hub, carried by [`super::frame`], shown inside `Error::Refused`. Plain data.

use crate::error::{ExitStatus, Ranks};
use std::fmt;

/// A rank's process, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The host's name.
    pub host: String,
    /// The process id on that host.
    pub pid: u32,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, pid {}", self.host, self.pid)
    }
}

/// Why the root refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Ranks did not come before the deadline of the first that waited.
    Missing {
        /// The ranks that did not come, ascending.
        missing: Vec<u32>,
        /// How long was waited, in milliseconds.
        waited_ms: u64,
        /// Connections that failed the handshake meanwhile, with the last of them, if any.
        strangers: Option<String>,
    },
    /// Two processes claim one rank.
    DuplicateRank {
        /// The rank.
        rank: u32,
        /// Who had joined.
        first: Process,
        /// Who came second.
        second: Process,
    },
    /// A rank is not below the number of ranks.
    RankOutOfRange {
        /// The rank.
        rank: u32,
        /// The number of ranks that it gave.
        world: u32,
        /// Who gave it.
        process: Process,
    },
    /// Ranks disagree about their number.
    WorldMismatch {
        /// The rank that came later.
        rank: u32,
        /// The number of ranks that it gave.
        world: u32,
        /// Who gave it.
        process: Process,
        /// The number of ranks that the first rank gave.
        first_world: u32,
        /// The first rank.
        first_rank: u32,
    },
    /// Everybody has joined already: an id serves one communicator.
    Finished {
        /// The rank that came too late.
        rank: u32,
        /// The number of ranks that have joined.
        world: u32,
    },
    /// Ranks run different versions of the protocol.
    Version {
        /// The rank that came with the other one.
        rank: u32,
        /// Its version.
        theirs: String,
        /// The root's version.
        ours: String,
    },
    /// Ranks are at different steps of the job.
    TagMismatch {
        /// The rank that is elsewhere.
        rank: u32,
        /// Its step.
        tag: String,
        /// The first rank.
        first_rank: u32,
        /// Its step.
        first_tag: String,
    },
    /// A rank left the job before a step to which all belong.
    Left {
        /// The rank.
        rank: u32,
        /// Who it was.
        process: Process,
    },
    /// A rank's process ended before the step was done.
    Lost {
        /// The rank.
        rank: u32,
        /// Who it was.
        process: Process,
        /// How that was noticed.
        detail: String,
    },
    /// A step gathers more than the root keeps.
    TooLarge {
        /// The rank whose part went over the bound.
        rank: u32,
        /// The bound, in bytes.
        max_bytes: u64,
    },
    /// The root is shutting down before everybody joined.
    ShuttingDown,
}

impl Refusal {
    /// The class that decides the exit status.
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Missing { .. } | Self::Left { .. } | Self::Lost { .. } | Self::ShuttingDown => {
                ExitStatus::WorldFailed
            }
            Self::DuplicateRank { .. }
            | Self::RankOutOfRange { .. }
            | Self::WorldMismatch { .. }
            | Self::Finished { .. }
            | Self::Version { .. }
            | Self::TagMismatch { .. }
            | Self::TooLarge { .. } => ExitStatus::Unusable,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { missing, waited_ms, strangers } => {
                let plural = if missing.len() == 1 { "rank" } else { "ranks" };
                let seconds = crate::error::Seconds(std::time::Duration::from_millis(*waited_ms));
                write!(f, "{plural} {} did not come within {seconds}", Ranks(missing))?;
                if let Some(strangers) = strangers {
                    write!(f, " ({strangers})")?;
                }
                f.write_str(
                    "; check that every rank was started, with the same id and number of ranks, or raise \
                     RINGSMITH_INIT_TIMEOUT_S",
                )
            }
            Self::DuplicateRank { rank, first, second } => write!(
                f,
                "rank {rank} was claimed twice, by ({first}) and by ({second}); give each process its own rank"
            ),
            Self::RankOutOfRange { rank, world, process } => write!(
                f,
                "({process}) claims rank {rank} of {world}; ranks count from 0 and stay below the number of ranks"
            ),
            Self::WorldMismatch { rank, world, process, first_world, first_rank } => write!(
                f,
                "rank {rank} ({process}) says there are {world} ranks, but rank {first_rank} says {first_world}; \
                 start all ranks with one number"
            ),
            Self::Finished { rank, world } => write!(
                f,
                "rank {rank} came to an id that is used up: all {world} ranks have joined; an id serves one \
                 communicator, make another"
            ),
            Self::Version { rank, theirs, ours } => write!(
                f,
                "rank {rank} runs Ringsmith {theirs}, the root runs {ours}; install one version on all hosts"
            ),
            Self::TagMismatch { rank, tag, first_rank, first_tag } => write!(
                f,
                "rank {rank} is at {tag:?} while rank {first_rank} is at {first_tag:?}; every rank must make the same \
                 calls in the same order"
            ),
            Self::Left { rank, process } => write!(f, "rank {rank} ({process}) has left the job"),
            Self::Lost { rank, process, detail } => write!(f, "rank {rank} ({process}) is lost: {detail}"),
            Self::TooLarge { rank, max_bytes } => {
                write!(
                    f,
                    "with the part of rank {rank} the ranks gather more than {max_bytes} bytes in one step"
                )
            }
            Self::ShuttingDown => {
                f.write_str("the process that holds the root ends before every rank has joined")
            }
        }
    }
}
