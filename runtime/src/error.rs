//! `Error`: the world failed. One variant per operation that can fail, the cause kept as source.
//!
//! Sits beside everything in the runtime: every fallible public function returns it. A mistake in
//! a user's text is a diagnostic, not an error; a bug of ours is a panic. Neither is found here.
//! The three exit statuses of the program are decided here and nowhere else.

use crate::bootstrap::refusal::Refusal;
use crate::config::ConfigError;
use crate::device::cuda::GpuError;
use crate::fault::{Reason, WithRemedy};
use crate::jit::BundleError;
use crate::launcher::LaunchError;
use crate::shown::shown;
use crate::unique_id::IdError;
use ringsmith_ir::text::codes::undecided;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a fallible operation of the runtime returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The classes of failure that the program's exit status tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Status 1: the question was understood, and the answer is no.
    No,
    /// Status 2: arguments, settings or files cannot be used as they are.
    Unusable,
    /// Status 3: a rank, a device or a deadline was lost.
    WorldFailed,
}

impl ExitStatus {
    /// The number that a process exits with.
    pub fn code(self) -> u8 {
        match self {
            Self::No => 1,
            Self::Unusable => 2,
            Self::WorldFailed => 3,
        }
    }
}

/// Why an operation of the runtime failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The launcher's variables do not say which rank this is.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// A unique id cannot be used.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An argument of a call is out of its range.
    #[error("{operation}: {detail}")]
    Argument {
        /// The call.
        operation: &'static str,
        /// Which argument, its value, and what is accepted.
        detail: String,
    },
    /// No address of this host can be given to the other ranks.
    #[error("no network interface to be reached at: {detail}")]
    Interface {
        /// What was looked at and why it was passed over, with the remedy.
        detail: String,
    },
    /// The root could not open its port.
    #[error("the root cannot listen on {address}: {source}; {remedy}")]
    Listen {
        /// Address and port or range of ports.
        address: String,
        /// What to change.
        remedy: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The name of the root's host could not be turned into an address.
    #[error("cannot resolve {host:?} (from {setting}): {source}")]
    Resolve {
        /// The name.
        host: String,
        /// Where it was set.
        setting: &'static str,
        /// What the resolver said.
        source: io::Error,
    },
    /// A rank could not reach the root before its deadline.
    #[error(
        "rank {rank} of {world}: could not join within {}: {attempts}; check that the root's process runs and that \
         {addresses} can be reached from here (RINGSMITH_SOCKET_IFNAME chooses the interface, \
         RINGSMITH_PORT_RANGE the port)",
        Seconds(*.waited),
        addresses = Addresses(.tried)
    )]
    Connect {
        /// The rank that tried.
        rank: u32,
        /// The number of ranks.
        world: u32,
        /// How long it tried.
        waited: Duration,
        /// Every address of the id.
        tried: Vec<SocketAddr>,
        /// What each address answered last.
        attempts: String,
        /// The last answer of the system.
        source: io::Error,
    },
    /// Rank 0 could not be found on this host.
    #[error(
        "rank {rank} of {world}: found no rank 0 at {} within {}: {source}; rank 0 does not run on this host, or did not \
         start: for ranks on several hosts set RINGSMITH_COMM_ID=HOST:PORT",
        Quoted(.path),
        Seconds(*.waited)
    )]
    LocalRoot {
        /// The rank that looked.
        rank: u32,
        /// The number of ranks.
        world: u32,
        /// Where it looked.
        path: PathBuf,
        /// How long it looked.
        waited: Duration,
        /// The last answer of the system.
        source: io::Error,
    },
    /// Something with another secret listens where the id says the root is.
    #[error(
        "rank {rank}: {addresses} does not hold the secret of this id ({id}): the id is that of another or an \
         earlier job, or RINGSMITH_JOB_SECRET differs between ranks",
        addresses = Addresses(.tried)
    )]
    ForeignRoot {
        /// The rank that tried.
        rank: u32,
        /// Every address of the id.
        tried: Vec<SocketAddr>,
        /// The id's fingerprint.
        id: String,
    },
    /// The root refused this rank, or gave up on the whole job while it came together.
    #[error("rank {rank} of {world}: {phase}: {refusal}")]
    Refused {
        /// The rank that was told.
        rank: u32,
        /// The number of ranks.
        world: u32,
        /// Which step of the job: `join`, or the tag of an exchange.
        phase: String,
        /// What the root said.
        refusal: Refusal,
    },
    /// The root did not answer in time.
    #[error(
        "rank {rank} of {world}: {phase}: the root at {root} gave no answer within {}; its process hangs or the \
         network between dropped the connection",
        Seconds(*.waited)
    )]
    RootSilent {
        /// The rank that waited.
        rank: u32,
        /// The number of ranks.
        world: u32,
        /// Which step of the job.
        phase: String,
        /// The root's address.
        root: SocketAddr,
        /// How long it waited.
        waited: Duration,
    },
    /// The connection to the root failed while something was being sent.
    #[error("rank {rank} of {world}: {phase}: cannot send to the root at {root}: {source}")]
    Send {
        /// The rank that sent.
        rank: u32,
        /// The number of ranks.
        world: u32,
        /// Which step of the job.
        phase: String,
        /// The root's address.
        root: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The root has left in good order, so nothing can be exchanged any more.
    #[error("rank {rank}: {phase}: the process that holds the root has left the job")]
    RootLeft {
        /// The rank that asked.
        rank: u32,
        /// Which step of the job.
        phase: String,
    },
    /// Ranks do not agree on something that must be the same everywhere.
    #[error(
        "{what}: rank {rank} has {name} = {value}, but rank 0 has {name} = {value_of_first}; set it to the same on all ranks"
    )]
    Mismatch {
        /// What was compared.
        what: String,
        /// The setting or property.
        name: String,
        /// The first rank that differs.
        rank: u32,
        /// Its value.
        value: String,
        /// The value of rank 0.
        value_of_first: String,
    },
    /// The job is broken: a rank died or aborted. From [`Fault::check`](crate::fault::Fault::check), which
    /// knows no call; calls return [`Interrupted`](Self::Interrupted).
    #[error("{}", WithRemedy(.0))]
    Fault(#[source] Reason),
    /// The job broke before a call of this rank, or while it was under way and waited for something that
    /// had not come.
    #[error("rank {rank}: {operation}: {detail}: {}", WithRemedy(.reason))]
    Interrupted {
        /// The rank whose call it was.
        rank: u32,
        /// The collective and its sequence number.
        operation: String,
        /// The op's address and what it waited for, or that the call was not begun.
        detail: String,
        /// Why the job is broken.
        #[source]
        reason: Reason,
    },
    /// A rank left in good order, and this one still waits for something of it: they did not make the
    /// same calls. All that it had sent before has been taken into account.
    #[error(
        "rank {rank}: {operation}: {detail}: rank {peer} has left the communicator; let all ranks make the same \
         calls, and each leave after its last one (finish waits for the others)"
    )]
    PeerLeft {
        /// The rank that waited.
        rank: u32,
        /// The rank that has left.
        peer: u32,
        /// The collective and its sequence number.
        operation: String,
        /// The op's address and what it waited for.
        detail: String,
    },
    /// The communicator was used in a child of the process that made it.
    #[error(
        "{operation}: this communicator belongs to process {owner}, and this is process {current}, forked from it; \
         make a communicator after the fork, or start the process with exec (Python: multiprocessing \"spawn\")"
    )]
    Forked {
        /// The call.
        operation: &'static str,
        /// The process that made the communicator.
        owner: u32,
        /// The process that used it.
        current: u32,
    },
    /// A thread could not be started.
    #[error(
        "cannot start the {name} thread: {source}; the limit on processes (ulimit -u, pids cgroup) may be reached"
    )]
    Thread {
        /// What the thread is for.
        name: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no random bytes.
    #[error("cannot draw a random secret: {source}")]
    Random {
        /// What the system said.
        source: getrandom::Error,
    },
    /// A call to the operating system failed that belongs to no other variant.
    #[error("{operation}: {source}")]
    System {
        /// What was being done.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A file or folder cannot be read, written or trusted.
    #[error("{}: {detail}", Quoted(.path))]
    File {
        /// The file.
        path: PathBuf,
        /// What was being done and what to do about it.
        detail: String,
        /// What the system said, if it was asked.
        source: Option<io::Error>,
    },
    /// Memory that ranks share could not be had.
    #[error("rank {rank}: {operation} of {len_bytes} bytes: {source}; {remedy}")]
    Memory {
        /// The rank that asked.
        rank: u32,
        /// What was being done.
        operation: &'static str,
        /// How much was asked for.
        len_bytes: u64,
        /// What to change.
        remedy: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A transport failed between two ranks.
    #[error("rank {rank}: {operation} with rank {peer}: {source}")]
    Transport {
        /// The rank that noticed.
        rank: u32,
        /// The other end.
        peer: u32,
        /// What was being done.
        operation: &'static str,
        /// What the system or the peer said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A wait ended at the limit that the user had set.
    #[error(
        "rank {rank}: {operation}: {detail}: nothing came from {} for {}; {}, or allow more with RINGSMITH_TIMEOUT_S",
        Silent::of(*.peer, .others),
        Seconds(*.waited),
        Silent::of(*.peer, .others).blame()
    )]
    Timeout {
        /// The rank that waited.
        rank: u32,
        /// The rank it waited for: the first, where there are several.
        peer: u32,
        /// Further ranks that something was awaited of, each of which may be the one that is late.
        others: Vec<u32>,
        /// The collective and its sequence number.
        operation: String,
        /// The op's address and what it waited for of `peer`.
        detail: String,
        /// How long it waited.
        waited: Duration,
    },
    /// A message has another size than its receiver expects: the ranks made different calls.
    #[error(
        "rank {rank}: {operation}: rank {peer} sent {found_bytes} bytes where {expected_bytes} were expected; the two \
         ranks made different calls: compare collective, count, type and order of calls on both"
    )]
    MessageSize {
        /// The rank that received.
        rank: u32,
        /// The rank that sent.
        peer: u32,
        /// The receiver's collective and its sequence number.
        operation: String,
        /// What the receiver's call makes of it.
        expected_bytes: u64,
        /// What came.
        found_bytes: u64,
    },
    /// Ranks could not be joined by links.
    #[error("rank {rank}: {}", without_rank(&reason(.source.as_ref()), *.rank))]
    Connections {
        /// The rank that noticed.
        rank: u32,
        /// What happened, and where.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A GPU, or what runs on it.
    #[error("rank {rank}: {operation}: {source}")]
    Device {
        /// The rank whose GPU it is.
        rank: u32,
        /// What was being done.
        operation: String,
        /// What happened.
        source: GpuError,
    },
    /// The kernels that a setting names are refused.
    #[error("rank {rank}: RINGSMITH_BUNDLE: {source}")]
    Bundle {
        /// The rank that read them.
        rank: u32,
        /// Which file, and what is wrong with it.
        source: Box<BundleError>,
    },
    /// A schedule was refuted, or cannot run here.
    #[error("{schedule} is refused: {}", List(.diagnostics))]
    Rejected {
        /// Which one.
        schedule: String,
        /// Everything that is wrong with it.
        diagnostics: Vec<ringsmith_ir::diagnostic::Diagnostic>,
    },
    /// A collective cannot be done as it was asked for.
    #[error("{operation}: {detail}")]
    Unsupported {
        /// The collective.
        operation: String,
        /// What is not there, and what could be used instead.
        detail: String,
    },
}

impl Error {
    /// The class that decides the exit status.
    pub fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Config(_)
            | Self::Launch(_)
            | Self::Id(_)
            | Self::Argument { .. }
            | Self::Bundle { .. }
            | Self::Unsupported { .. }
            | Self::Forked { .. } => ExitStatus::Unusable,
            Self::Device { source, .. } if source.is_misuse() => ExitStatus::Unusable,
            Self::Rejected { diagnostics, .. } if undecided(diagnostics) => ExitStatus::Unusable,
            Self::Mismatch { .. } | Self::MessageSize { .. } | Self::Rejected { .. } => ExitStatus::No,
            Self::Refused { refusal, .. } => refusal.exit_status(),
            Self::Interface { .. }
            | Self::Listen { .. }
            | Self::Resolve { .. }
            | Self::Connect { .. }
            | Self::LocalRoot { .. }
            | Self::ForeignRoot { .. }
            | Self::RootSilent { .. }
            | Self::Send { .. }
            | Self::RootLeft { .. }
            | Self::Fault(_)
            | Self::Interrupted { .. }
            | Self::PeerLeft { .. }
            | Self::Thread { .. }
            | Self::Random { .. }
            | Self::System { .. }
            | Self::File { .. }
            | Self::Memory { .. }
            | Self::Transport { .. }
            | Self::Connections { .. }
            | Self::Device { .. }
            | Self::Timeout { .. } => ExitStatus::WorldFailed,
        }
    }
}

impl Error {
    /// Why the job is broken, if this says no more than that: whoever broke it tells its own error.
    pub fn fault(&self) -> Option<&Reason> {
        match self {
            Self::Fault(reason) | Self::Interrupted { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// The rank that is to blame, where that may be another than the one that noticed.
    pub fn culprit(&self) -> Option<u32> {
        match self {
            Self::PeerLeft { peer, .. } | Self::Timeout { peer, .. } | Self::MessageSize { peer, .. } => {
                Some(*peer)
            }
            other => other.fault().and_then(Reason::culprit),
        }
    }

    /// The message for those who know that `rank` speaks: without its number at the head.
    pub fn said_by(&self, rank: u32) -> String {
        without_rank(&self.to_string(), rank).to_owned()
    }
}

/// A time as people read it: `5 ms`, `1.5 s`, `120 s`.
pub struct Seconds(pub Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_millis(100) {
            return write!(f, "{} ms", self.0.as_millis());
        }
        let tenths = (self.0.as_secs_f64() * 10.0).round() / 10.0;
        write!(f, "{tenths} s")
    }
}

/// An error with all its causes on one line.
pub(crate) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// A message without `rank N: ` or `rank N of M: ` at its head: for those who have named the rank.
pub fn without_rank(text: &str, rank: u32) -> &str {
    let named = || {
        let (head, rest) = text.strip_prefix(&format!("rank {rank}"))?.split_once(": ")?;
        let of = head.strip_prefix(" of ").is_some_and(|world| world.bytes().all(|b| b.is_ascii_digit()));
        (head.is_empty() || of).then_some(rest)
    };
    named().unwrap_or(text)
}

/// A path as messages quote it.
struct Quoted<'a>(&'a Path);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0.to_string_lossy()))
    }
}

/// Addresses as people read them: `10.0.0.1:4000 or [fd00::2]:4000`.
pub(crate) struct Addresses<'a>(pub(crate) &'a [SocketAddr]);

impl fmt::Display for Addresses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { " or " };
            write!(f, "{separator}{address}")?;
        }
        Ok(())
    }
}

/// Ranks of which nothing comes: `rank 3`, `ranks 1, 3`.
pub(crate) struct Silent(Vec<u32>);

impl Silent {
    /// `peer` and the others, each once.
    pub(crate) fn of(peer: u32, others: &[u32]) -> Self {
        let mut ranks: Vec<u32> = others.iter().copied().chain([peer]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self(ranks)
    }

    /// What may be the matter, and where to look.
    pub(crate) fn blame(&self) -> &'static str {
        match self.0.len() {
            1 => "it is late, stopped, or in another call: look at it there",
            _ => {
                "one of them is late, stopped, or in another call, and others may only wait for it: look at them there"
            }
        }
    }
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.0.len() == 1 { "rank" } else { "ranks" };
        write!(f, "{what} {}", Ranks(&self.0))
    }
}

/// Diagnostics in one line each, without their places: for logs and last errors. Whoever has the text
/// draws them.
struct List<'a>(&'a [ringsmith_ir::diagnostic::Diagnostic]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 3;
        for (index, diagnostic) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{diagnostic}")?;
        }
        if self.0.len() > SHOWN { write!(f, "; and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}

/// Ranks as people read them: `1, 3, 5-7`. After twenty runs the rest are counted.
pub(crate) struct Ranks<'a>(pub(crate) &'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A message that names thousands of ranks one by one would hide the rest of itself.
        const RUNS_SHOWN: usize = 20;
        let mut rest = self.0;
        for shown in 0..RUNS_SHOWN {
            let Some((&first, _)) = rest.split_first() else { return Ok(()) };
            let len = rest
                .iter()
                .zip(0u64..)
                .take_while(|&(&rank, step)| rank as u64 == first as u64 + step)
                .count();
            let last = rest[len - 1];
            let separator = if shown == 0 { "" } else { ", " };
            match len {
                1 => write!(f, "{separator}{first}")?,
                2 => write!(f, "{separator}{first}, {last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            rest = &rest[len..];
        }
        if rest.is_empty() { Ok(()) } else { write!(f, " and {} more", rest.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::LinkError;

    #[test]
    fn a_rank_is_named_once_at_the_head() {
        for text in ["rank 3: no", "rank 3 of 40: no", "no"] {
            assert_eq!(without_rank(text, 3), "no");
        }
        for text in ["rank 30: no", "rank 3 of them: no", "rank 3 left"] {
            assert_eq!(without_rank(text, 3), text);
        }
        let taken = LinkError::NoTransport { rank: 2, peer: 1, reason: "rank 2 listens nowhere".to_owned() };
        let error = Error::Connections { rank: 2, source: Box::new(taken) };
        assert_eq!(error.to_string(), "rank 2: no transport reaches rank 1: rank 2 listens nowhere");
    }

    #[test]
    fn short_times_are_not_nothing() {
        let text = |ms| Seconds(Duration::from_millis(ms)).to_string();
        assert_eq!([1, 99, 100, 1500].map(text), ["1 ms", "99 ms", "0.1 s", "1.5 s"]);
    }

    #[test]
    fn ranks_are_written_as_runs() {
        assert_eq!(Ranks(&[]).to_string(), "");
        assert_eq!(Ranks(&[4]).to_string(), "4");
        assert_eq!(Ranks(&[1, 2, 4, 6, 7, 8, 9]).to_string(), "1, 2, 4, 6-9");
        let even: Vec<u32> = (0..50).map(|r| 2 * r).collect();
        assert!(Ranks(&even).to_string().ends_with("36, 38 and 30 more"));
        assert_eq!(Ranks(&[u32::MAX - 1, u32::MAX]).to_string(), "4294967294, 4294967295");
    }

    #[test]
    fn classes_follow_the_kind_of_failure() {
        let unusable = Error::Argument { operation: "all_reduce", detail: "count 3 of 2".into() };
        assert_eq!(unusable.exit_status().code(), 2);
        let lost = Error::Fault(Reason::AbortedBy { rank: 3, reason: "out of memory".into() });
        assert_eq!(lost.exit_status().code(), 3);
        let no = Error::Mismatch {
            what: "settings".into(),
            name: "ALGO".into(),
            rank: 1,
            value: "ring".into(),
            value_of_first: "tree".into(),
        };
        assert_eq!(no.exit_status().code(), 1);
    }
}
