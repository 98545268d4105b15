//! A communicator as its handle stands for it: where it is in its life, what runs in the background, and
//! what a program has made for it.

use crate::abi::Code;
use crate::device::{self, Ranks};
use crate::outcome::Failure;
use crate::places::Places;
use crate::process;
use crate::registry;
use ringsmith_ir::types::DataType;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::unique_id::UniqueId;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a communicator is in its life.
enum Stage {
    Starting,
    Ready(Arc<dyn Ranks>),
    /// Its initialisation failed, and this is why.
    Failed(String),
    Suspended(Arc<dyn Ranks>),
    Revoked(Arc<dyn Ranks>),
    Finalized(Arc<dyn Ranks>),
    Gone,
}

/// What runs in the background of a communicator that does not block.
#[derive(Default)]
struct Background {
    running: usize,
    failure: Option<Failure>,
}

/// What a call does without an answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// It is done.
    Now,
    /// `ncclCommGetAsyncError` says when.
    Later,
}

/// The factor of an operation that a program has made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Factor {
    /// Known.
    Value(f64),
    /// In GPU memory at an address, to be read when a call is run.
    At(usize),
}

/// A communicator.
pub(crate) struct Comm {
    pub(crate) handle: usize,
    /// Rank and number of ranks; a split knows them only when the others have spoken.
    place: AtomicU64,
    pub(crate) device: i32,
    pub(crate) blocking: bool,
    /// The settings that it was made with.
    pub(crate) config: Config,
    /// Calls that have moved data, or will.
    calls: AtomicU64,
    stage: Mutex<Stage>,
    background: Mutex<Background>,
    last_error: Mutex<Option<String>>,
    /// Factors of the operations that the program made, by number.
    factors: Mutex<Vec<Option<(DataType, Factor)>>>,
    places: Mutex<Places>,
}

/// Rank and number of ranks in one word.
fn place(rank: u32, world: u32) -> AtomicU64 {
    AtomicU64::new(u64::from(rank) << 32 | u64::from(world))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Comm {
    /// A communicator that is about to join.
    pub(crate) fn starting(
        rank: u32,
        world: u32,
        device: i32,
        blocking: bool,
        config: Config,
    ) -> impl FnOnce(usize) -> Self {
        move |handle| Self {
            handle,
            place: place(rank, world),
            device,
            blocking,
            config,
            calls: AtomicU64::new(0),
            stage: Mutex::new(Stage::Starting),
            background: Mutex::default(),
            last_error: Mutex::default(),
            factors: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// This rank.
    pub(crate) fn rank(&self) -> u32 {
        (self.place.load(Ordering::Relaxed) >> 32) as u32
    }

    /// The number of ranks.
    pub(crate) fn world(&self) -> u32 {
        self.place.load(Ordering::Relaxed) as u32
    }

    /// How messages name it.
    pub(crate) fn name(&self) -> String {
        format!("rank {} of {}", self.rank(), self.world())
    }

    /// Counts a call that moves data. How many were before it.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Joins the ranks of an id, because of a call to `function`. Tells the log in NCCL's words.
    pub(crate) fn join(&self, function: &str, id: &UniqueId) -> Result<(), Failure> {
        let tell = |stage: &str| {
            tracing::info!(
                target: "ringsmith::init",
                "{function} comm {:#x} rank {} nranks {} cudaDev {} nvmlDev {} busId 0 commId 0x{} - Init {stage}",
                self.handle,
                self.rank(),
                self.world(),
                self.device,
                self.device,
                id.to_string().trim_start_matches("id-")
            );
        };
        tell("START");
        let joined = device::join(id, self.rank(), self.world(), self.device, &self.config);
        self.joined(joined)?;
        tell("COMPLETE");
        Ok(())
    }

    /// Takes what joining came to.
    pub(crate) fn joined(&self, joined: Result<Arc<dyn Ranks>, Failure>) -> Result<(), Failure> {
        let mut stage = locked(&self.stage);
        match joined {
            // Aborted meanwhile: the ranks are let go at once.
            Ok(_) if matches!(*stage, Stage::Gone) => {
                Err(Failure::usage(format!("{}: the communicator was aborted while it joined", self.name())))
            }
            Ok(ranks) => {
                self.place.store(place(ranks.rank(), ranks.world()).into_inner(), Ordering::Relaxed);
                *stage = Stage::Ready(ranks);
                Ok(())
            }
            Err(failure) => {
                if !matches!(*stage, Stage::Gone) {
                    *stage = Stage::Failed(failure.text.clone());
                }
                Err(failure)
            }
        }
    }

    /// The ranks, for a call that moves data or needs all of them.
    ///
    /// Errors: the communicator is not ready, or no longer is.
    pub(crate) fn ready(&self) -> Result<Arc<dyn Ranks>, Failure> {
        if locked(&self.background).running > 0 {
            return Err(Failure::usage(format!(
                "{}: an earlier call is still in progress; ask ncclCommGetAsyncError until it no longer says \
                 ncclInProgress",
                self.name()
            )));
        }
        self.ready_inside()
    }

    /// The same for a call that may itself be what is in progress.
    pub(crate) fn ready_inside(&self) -> Result<Arc<dyn Ranks>, Failure> {
        let refuse = |text: &str| Err(Failure::usage(format!("{}: {text}", self.name())));
        match &*locked(&self.stage) {
            Stage::Ready(ranks) => Ok(ranks.clone()),
            Stage::Starting => refuse("initialisation is not done; end the group that it is in first"),
            Stage::Failed(why) => {
                refuse(&format!("initialisation failed ({why}); make another communicator"))
            }
            Stage::Suspended(_) => refuse("the communicator is suspended; call ncclCommResume first"),
            Stage::Revoked(_) => refuse("the communicator was revoked; destroy it, and make another one"),
            Stage::Finalized(_) => refuse("the communicator is finalized; only ncclCommDestroy may follow"),
            Stage::Gone => refuse("the communicator is being destroyed"),
        }
    }

    /// Its rank and number of ranks, as it has joined: what a split makes of it is known only then.
    ///
    /// Errors: it has not joined.
    pub(crate) fn joined_as(&self) -> Result<(u32, u32), Failure> {
        match &*locked(&self.stage) {
            Stage::Ready(ranks)
            | Stage::Suspended(ranks)
            | Stage::Revoked(ranks)
            | Stage::Finalized(ranks) => Ok((ranks.rank(), ranks.world())),
            Stage::Starting | Stage::Failed(_) | Stage::Gone => Err(Failure::usage(format!(
                "{}: the communicator has not joined; end the group that it is in, or ask ncclCommGetAsyncError",
                self.name()
            ))),
        }
    }

    /// Bytes that it holds for itself.
    ///
    /// Errors: it is not ready.
    pub(crate) fn memory_bytes(&self) -> Result<u64, Failure> {
        match &*locked(&self.stage) {
            Stage::Suspended(ranks) | Stage::Ready(ranks) => Ok(ranks.memory_bytes()),
            _ => Err(Failure::usage(format!("{}: the communicator holds no memory now", self.name()))),
        }
    }

    /// Leaves in good order, together with all ranks.
    pub(crate) fn finalize(&self) -> Result<(), Failure> {
        let ranks = self.ready_inside()?;
        ranks.leave()?;
        *locked(&self.stage) = Stage::Finalized(ranks);
        Ok(())
    }

    /// Lets calls wait until [`Self::resume`].
    pub(crate) fn suspend(&self) -> Result<(), Failure> {
        let ranks = self.ready()?;
        *locked(&self.stage) = Stage::Suspended(ranks);
        Ok(())
    }

    /// Takes calls again.
    pub(crate) fn resume(&self) -> Result<(), Failure> {
        let mut stage = locked(&self.stage);
        match std::mem::replace(&mut *stage, Stage::Starting) {
            Stage::Suspended(ranks) => {
                *stage = Stage::Ready(ranks);
                Ok(())
            }
            other => {
                *stage = other;
                Err(Failure::usage(format!("{}: the communicator is not suspended", self.name())))
            }
        }
    }

    /// Whether it is suspended.
    pub(crate) fn is_suspended(&self) -> bool {
        matches!(*locked(&self.stage), Stage::Suspended(_))
    }

    /// Ends what is under way; the handle stays.
    pub(crate) fn revoke(&self) -> Result<(), Failure> {
        let mut stage = locked(&self.stage);
        match std::mem::replace(&mut *stage, Stage::Gone) {
            Stage::Ready(ranks) | Stage::Suspended(ranks) => {
                ranks.abort("ncclCommRevoke was called");
                *stage = Stage::Revoked(ranks);
                Ok(())
            }
            other => {
                *stage = other;
                Err(Failure::usage(format!(
                    "{}: only a communicator that is ready can be revoked",
                    self.name()
                )))
            }
        }
    }

    /// Lets the ranks go. The caller has taken the handle away.
    pub(crate) fn release(&self) -> Option<Arc<dyn Ranks>> {
        match std::mem::replace(&mut *locked(&self.stage), Stage::Gone) {
            Stage::Ready(ranks)
            | Stage::Suspended(ranks)
            | Stage::Revoked(ranks)
            | Stage::Finalized(ranks) => Some(ranks),
            Stage::Starting | Stage::Failed(_) | Stage::Gone => None,
        }
    }

    /// Ends what is under way and lets the ranks go, at once.
    pub(crate) fn abort(&self) {
        let Some(ranks) = self.release() else { return };
        ranks.abort("ncclCommAbort was called");
        // Threads that serve connections are joined: not in the caller's time.
        let let_go = move || drop(ranks);
        if let Err(error) = std::thread::Builder::new().name("ringsmith-abort".into()).spawn(let_go) {
            tracing::warn!(target: "ringsmith::init", "{}: aborted without a thread: {error}", self.name());
        }
    }

    /// What `ncclCommGetAsyncError` says.
    pub(crate) fn state(&self) -> Code {
        let background = locked(&self.background);
        if background.running > 0 {
            return Code::InProgress;
        }
        if let Some(failure) = &background.failure {
            return failure.code;
        }
        drop(background);
        let broken = match &*locked(&self.stage) {
            Stage::Ready(ranks) | Stage::Suspended(ranks) => ranks.broken(),
            Stage::Starting => return Code::InProgress,
            Stage::Failed(_) => return Code::InvalidUsage,
            Stage::Revoked(_) | Stage::Finalized(_) | Stage::Gone => None,
        };
        match broken {
            None => Code::Success,
            Some(error) => {
                let failure = Failure::from(error);
                self.remember(&failure);
                failure.code
            }
        }
    }

    /// Says that something begins in the background.
    pub(crate) fn begin(&self) {
        locked(&self.background).running += 1;
    }

    /// Says that it has ended.
    pub(crate) fn end(&self, outcome: Result<(), Failure>) {
        let mut background = locked(&self.background);
        background.running -= 1;
        if let Err(failure) = outcome {
            self.remember(&failure);
            background.failure.get_or_insert(failure);
        }
    }

    /// Keeps a failure for `ncclGetLastError`.
    pub(crate) fn remember(&self, failure: &Failure) {
        *locked(&self.last_error) = Some(failure.text.clone());
    }

    /// The last failure of this communicator.
    pub(crate) fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }

    /// Keeps the factor of an operation and gives its number.
    pub(crate) fn add_factor(&self, dtype: DataType, value: Factor) -> usize {
        let mut factors = locked(&self.factors);
        let free = factors.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            factors.push(None);
            factors.len() - 1
        });
        factors[at] = Some((dtype, value));
        at
    }

    /// The factor of an operation that was made for this communicator.
    pub(crate) fn factor(&self, at: usize) -> Option<(DataType, Factor)> {
        locked(&self.factors).get(at).copied().flatten()
    }

    /// Forgets an operation. Whether there was one.
    pub(crate) fn remove_factor(&self, at: usize) -> bool {
        locked(&self.factors).get_mut(at).is_some_and(|place| place.take().is_some())
    }

    /// Registered buffers and windows.
    pub(crate) fn places(&self) -> MutexGuard<'_, Places> {
        locked(&self.places)
    }
}

/// Makes a communicator of some ranks of `parent`.
pub(crate) fn split(
    parent: &Arc<Comm>,
    (color, key): (Option<u32>, i32),
    child: &Arc<Comm>,
) -> Result<(), Failure> {
    let made = parent.ready_inside().and_then(|ranks| {
        ranks.split(color, key, &child.config).map_err(Failure::from)?.ok_or_else(|| {
            Failure::usage("a rank with a colour got no communicator; this is a bug of Ringsmith")
        })
    });
    child.joined(made)
}

/// Makes a communicator without some ranks of `parent`.
pub(crate) fn shrink(parent: &Arc<Comm>, without: &[u32], child: &Arc<Comm>) -> Result<(), Failure> {
    let shrunk = |ranks: Arc<dyn Ranks>| Ok(ranks.shrink(without, &child.config)?);
    child.joined(parent.ready_inside().and_then(shrunk))
}

/// Takes part in a split without becoming part of what it makes.
pub(crate) fn split_off(parent: &Arc<Comm>) -> Result<(), Failure> {
    parent.ready_inside()?.split(None, 0, &parent.config)?;
    Ok(())
}

/// Destroys the communicator of a handle. The last one of the process waits until roots here are not needed.
pub(crate) fn destroy(handle: usize) -> Result<(), Failure> {
    registry::remove(handle, "destroyed")?.release();
    if registry::is_empty() {
        process::wait_for_farewells();
    }
    Ok(())
}

/// Aborts the communicator of a handle.
pub(crate) fn abort(handle: usize) -> Result<(), Failure> {
    registry::remove(handle, "aborted")?.abort();
    Ok(())
}
