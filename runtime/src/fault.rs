//! `Fault`: the one word that ends every wait of a communicator at once.
//!
//! Shared by the bootstrap's monitor, executors, transports and proxies. Whoever learns that the
//! job is broken raises it; everyone who waits polls it or is woken. It is never lowered: a broken
//! communicator is thrown away, not mended. It decides nothing about who is to blame beyond
//! keeping the first reason.
//!
//! | word | written by | read by | order |
//! | --- | --- | --- | --- |
//! | `word` | the first `raise`, once, 0 to the reason's code | spin loops, any thread | Release after `first`; Acquire, or Relaxed in a spin followed by `check` |
//! | `first` | the first `raise`, once | whoever saw `word` not 0 | `OnceLock` |
//! | `wakers` | `on_raise`, `event_fd` | `raise` | mutex |

use crate::error::{Error, Result};
use rustix::event::{EventfdFlags, eventfd};
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Why a communicator is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A rank's process ended, or its host can no longer be reached.
    #[error("rank {rank} ({host}) is lost: {detail}")]
    PeerLost {
        /// The rank.
        rank: u32,
        /// Host and process, as `host, pid 12`.
        host: String,
        /// How that was noticed.
        detail: String,
    },
    /// The process that held the root ended, and was no rank's.
    #[error("the process that holds the root ({host}) is lost: {detail}")]
    RootLost {
        /// Host and process, as `host, pid 12`.
        host: String,
        /// How that was noticed.
        detail: String,
    },
    /// Another rank gave up and said why.
    #[error("rank {rank} aborted: {reason}")]
    AbortedBy {
        /// The rank.
        rank: u32,
        /// What it said.
        reason: String,
    },
    /// This rank gave up.
    #[error("this rank aborted: {reason}")]
    AbortedLocally {
        /// What the caller said.
        reason: String,
    },
    /// A call of this rank failed, and with it the communicator.
    #[error("this rank gave up: {reason}")]
    GaveUp {
        /// The rank that the failure is blamed on; this one if on no other.
        culprit: u32,
        /// The call's failure.
        reason: String,
    },
    /// Another rank gave up without its words coming here, since the root has gone.
    #[error("rank {rank} gave up because of {}", Blamed { rank: *rank, culprit: *culprit })]
    PeerGaveUp {
        /// The rank that gave up.
        rank: u32,
        /// The rank that it blames; perhaps itself.
        culprit: u32,
    },
    /// A transport to a rank failed.
    #[error("the connection to rank {rank} failed: {detail}")]
    Transport {
        /// The rank at the other end.
        rank: u32,
        /// What happened.
        detail: String,
    },
}

impl Reason {
    /// The value of the fault word for this reason. Never 0.
    pub fn code(&self) -> u32 {
        match self {
            Self::PeerLost { .. } => 1,
            Self::AbortedBy { .. } => 2,
            Self::AbortedLocally { .. } => 3,
            Self::Transport { .. } => 4,
            Self::RootLost { .. } => 5,
            Self::GaveUp { .. } => 6,
            Self::PeerGaveUp { .. } => 7,
        }
    }

    /// The rank that is to blame, if it is known and may be another than this one.
    pub fn culprit(&self) -> Option<u32> {
        match self {
            Self::PeerLost { rank, .. } | Self::AbortedBy { rank, .. } | Self::Transport { rank, .. } => {
                Some(*rank)
            }
            Self::GaveUp { culprit, .. } | Self::PeerGaveUp { culprit, .. } => Some(*culprit),
            Self::AbortedLocally { .. } | Self::RootLost { .. } => None,
        }
    }

    /// What to do about it. None where the reason says so itself.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::PeerLost { .. } | Self::RootLost { .. } => Some(
                "see its last output and its host's kernel log (killed? out of memory?), then start the job again",
            ),
            Self::AbortedBy { .. } | Self::AbortedLocally { .. } => {
                Some("mend that, then make a new communicator")
            }
            Self::Transport { .. } => Some(
                "see that rank's last output and the network between the hosts, then start the job again",
            ),
            Self::PeerGaveUp { .. } => Some("see what those ranks have said, then make a new communicator"),
            Self::GaveUp { .. } => None,
        }
    }
}

/// A reason with its remedy, as errors end in them.
pub(crate) struct WithRemedy<'a>(pub(crate) &'a Reason);

impl fmt::Display for WithRemedy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.remedy() {
            Some(remedy) => write!(f, "{}; {remedy}", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// The rank that a rank blames, which may be itself.
struct Blamed {
    rank: u32,
    culprit: u32,
}

impl fmt::Display for Blamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rank == self.culprit { f.write_str("itself") } else { write!(f, "rank {}", self.culprit) }
    }
}

/// A function that is called once, when the fault is raised.
type Hook = Box<dyn FnOnce(&Reason) + Send>;

#[derive(Default)]
struct Wakers {
    hooks: Vec<Hook>,
    events: Vec<Arc<OwnedFd>>,
}

#[derive(Default)]
struct Inner {
    word: AtomicU32,
    first: OnceLock<Reason>,
    wakers: Mutex<Wakers>,
}

/// A handle to the fault of one communicator. Clones share it.
#[derive(Clone, Default)]
pub struct Fault {
    inner: Arc<Inner>,
}

impl Fault {
    /// A fault that has not been raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// The word to poll: 0 while all is well, then the reason's code.
    ///
    /// Ordering: read it `Relaxed` in a spin loop; [`Fault::check`] then synchronises with `raise`.
    pub fn word(&self) -> &AtomicU32 {
        &self.inner.word
    }

    /// Whether the communicator is broken.
    pub fn is_raised(&self) -> bool {
        self.inner.word.load(Ordering::Relaxed) != 0
    }

    /// Breaks the communicator. Returns whether this was the first reason; later ones are dropped.
    pub fn raise(&self, reason: Reason) -> bool {
        let code = reason.code();
        if self.inner.first.set(reason).is_err() {
            return false;
        }
        self.inner.word.store(code, Ordering::Release);
        // Taken after the word is set: a waker registered later sees the word and runs at once.
        let wakers = std::mem::take(&mut *self.lock());
        for event in &wakers.events {
            wake(event);
        }
        let reason = self.inner.first.get().expect("the first reason was set above");
        for hook in wakers.hooks {
            hook(reason);
        }
        true
    }

    /// The first reason, if there is one.
    pub fn reason(&self) -> Option<&Reason> {
        if self.inner.word.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.inner.first.get()
    }

    /// Nothing while all is well, else the first reason as an error.
    pub fn check(&self) -> Result<()> {
        match self.reason() {
            None => Ok(()),
            Some(reason) => Err(Error::Fault(reason.clone())),
        }
    }

    /// Calls `hook` once when the fault is raised, on the raising thread; at once if it already is.
    ///
    /// A hook must not block: it delays every other waiter.
    pub fn on_raise(&self, hook: impl FnOnce(&Reason) + Send + 'static) {
        let mut wakers = self.lock();
        match self.reason() {
            None => wakers.hooks.push(Box::new(hook)),
            Some(reason) => {
                drop(wakers);
                hook(reason);
            }
        }
    }

    /// A descriptor that becomes readable when the fault is raised, for threads asleep in `poll`.
    ///
    /// Each caller gets its own. It stays readable: nobody needs to read it.
    /// Errors: `System` when no descriptor can be had.
    pub fn event_fd(&self) -> Result<Arc<OwnedFd>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = eventfd(0, flags).map_err(|source| Error::System {
            operation: "eventfd for the fault word",
            source: source.into(),
        })?;
        let event = Arc::new(event);
        let mut wakers = self.lock();
        if self.is_raised() {
            wake(&event);
        } else {
            // Events whose owner has gone would pile up over many short-lived waiters.
            wakers.events.retain(|event| Arc::strong_count(event) > 1);
            wakers.events.push(event.clone());
        }
        Ok(event)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Wakers> {
        self.inner.wakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("reason", &self.reason()).finish()
    }
}

fn wake(event: &OwnedFd) {
    // Cannot fail: the counter goes from 0 to 1 and the descriptor is open and ours.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use std::sync::mpsc;

    fn readable(event: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(event, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("polling an open descriptor") == 1
    }

    #[test]
    fn the_first_reason_wins_and_stays() {
        let fault = Fault::new();
        assert!(fault.check().is_ok());
        assert!(fault.raise(Reason::AbortedBy { rank: 2, reason: "disk full".into() }));
        assert!(!fault.clone().raise(Reason::AbortedLocally { reason: "late".into() }));
        assert_eq!(fault.word().load(Ordering::Relaxed), 2);
        let error = fault.check().expect_err("raised");
        assert_eq!(error.to_string(), "rank 2 aborted: disk full; mend that, then make a new communicator");
    }

    #[test]
    fn sleepers_are_woken_whether_they_come_before_or_after() {
        let fault = Fault::new();
        let (sender, receiver) = mpsc::channel();
        let early = fault.event_fd().expect("a descriptor");
        let dropped = fault.event_fd().expect("a descriptor");
        drop(dropped);
        let first = sender.clone();
        fault.on_raise(move |reason| first.send(reason.code()).expect("receiver lives"));
        assert!(!readable(&early));
        fault.raise(Reason::Transport { rank: 1, detail: "reset".into() });
        fault.on_raise(move |reason| sender.send(10 + reason.code()).expect("receiver lives"));
        let late = fault.event_fd().expect("a descriptor");
        assert!(readable(&early) && readable(&late));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [4, 14]);
    }

    #[test]
    fn racing_raisers_leave_one_reason() {
        let fault = Fault::new();
        let firsts = std::thread::scope(|scope| {
            let raisers: Vec<_> = (0..8)
                .map(|rank| {
                    let fault = fault.clone();
                    scope.spawn(move || fault.raise(Reason::AbortedBy { rank, reason: String::new() }))
                })
                .collect();
            raisers.into_iter().map(|r| r.join().expect("no panic") as u32).sum::<u32>()
        });
        assert_eq!(firsts, 1);
    }
}
