//! What the process has once: settings, the log, and the roots of the ids that it has made.

use crate::abi::{Code, VERSION_TEXT};
use crate::device;
use crate::outcome::Failure;
use ringsmith_runtime::bootstrap::root::Root;
use ringsmith_runtime::config::{Config, Warning};
use ringsmith_runtime::log::{self, Style};
use ringsmith_runtime::unique_id::UniqueId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

static SETTINGS: OnceLock<Result<Config, String>> = OnceLock::new();

/// The settings of the environment, read at the first call of the process; the log begins with them.
///
/// Errors: every setting that cannot be used.
pub(crate) fn settings() -> Result<&'static Config, Failure> {
    SETTINGS.get_or_init(read).as_ref().map_err(|text| Failure::usage(text.clone()))
}

/// The settings, once they have been read and can be used.
pub(crate) fn settings_so_far() -> Option<&'static Config> {
    SETTINGS.get()?.as_ref().ok()
}

fn read() -> Result<Config, String> {
    let read = Config::from_env();
    let fallback = Config::default();
    // The log tells of the settings that cannot be used, too.
    let style = Style::Nccl { version: VERSION_TEXT, device: device::of_thread };
    if let Err(error) = log::install_as(read.as_ref().map_or(&fallback, |(config, _)| config), style) {
        tracing::warn!(target: "ringsmith::env", "{error}");
    }
    // The library's own copy of the hook: a program that holds another one keeps it.
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!(target: "ringsmith::call", "{panic}; this is a bug of Ringsmith");
    }));
    let (config, warnings) = read.map_err(|error| error.to_string())?;
    for warning in warnings {
        match warning {
            Warning::NoEffect { .. } => tracing::info!(target: "ringsmith::env", "{warning}"),
            _ => tracing::warn!(target: "ringsmith::env", "{warning}"),
        }
    }
    Ok(config)
}

/// A root, held by the process until the first rank takes it, then by the ranks.
struct Held {
    until_taken: Option<Arc<Root>>,
    taken: Weak<Root>,
}

fn roots() -> MutexGuard<'static, HashMap<UniqueId, Held>> {
    static ROOTS: OnceLock<Mutex<HashMap<UniqueId, Held>>> = OnceLock::new();
    ROOTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where `NCCL_COMM_ID` has ranks meet, under the name that messages call it by.
const FIXED_ADDRESS: &str = "NCCL_COMM_ID";

/// The id of the address that `NCCL_COMM_ID` names: the same in every process, so that each can make it.
fn fixed_id(config: &Config) -> Option<Result<UniqueId, Failure>> {
    static FIXED: OnceLock<Result<UniqueId, Failure>> = OnceLock::new();
    let address = config.comm_id.as_ref()?;
    let id = || UniqueId::from_address(address, FIXED_ADDRESS, "", config).map_err(Failure::from);
    Some(FIXED.get_or_init(id).clone())
}

/// Makes an id whose root runs in this process; with `NCCL_COMM_ID` one whose root rank 0 will start.
pub(crate) fn make_id() -> Result<UniqueId, Failure> {
    let settings = settings()?;
    if let Some(fixed) = fixed_id(settings) {
        return fixed;
    }
    let (id, root) = UniqueId::create(settings)?;
    let root = Arc::new(root);
    let mut roots = roots();
    roots.retain(|_, held| held.until_taken.is_some() || held.taken.strong_count() > 0);
    roots.insert(id, Held { taken: Arc::downgrade(&root), until_taken: Some(root) });
    Ok(id)
}

/// The root of an id, if it runs here: for each rank of this process to hold while it is joined. Rank 0 starts that
/// of `NCCL_COMM_ID`.
///
/// Errors: nobody can listen there.
pub(crate) fn take_root(id: &UniqueId, rank: u32, config: &Config) -> Result<Option<Arc<Root>>, Failure> {
    if let Some(address) = &config.comm_id
        && rank == 0
        && fixed_id(config).is_some_and(|fixed| fixed.is_ok_and(|fixed| fixed == *id))
    {
        let (_, root) = UniqueId::create_at(address, FIXED_ADDRESS, "", config)?;
        return Ok(Some(Arc::new(root)));
    }
    let mut roots = roots();
    let held = roots.get_mut(id);
    Ok(held.and_then(|held| held.until_taken.take().or_else(|| held.taken.upgrade())))
}

/// A root that a rank of this process holds as long as it is joined.
pub(crate) struct Hold(Option<Arc<Root>>);

impl Hold {
    /// Holds a root, if it runs here.
    pub(crate) fn new(root: Option<Arc<Root>>) -> Self {
        Self(root)
    }
}

impl Drop for Hold {
    /// The last holder's root waits for the ranks of other processes to leave. That is not for the caller to
    /// wait for: it may have to let another communicator go before they can.
    fn drop(&mut self) {
        let Some(root) = self.0.take().and_then(Arc::into_inner) else { return };
        farewell(move || drop(root));
    }
}

/// Lets something go that waits for other ranks, in a thread of its own.
pub(crate) fn farewell(let_go: impl FnOnce() + Send + 'static) {
    // A thread that cannot be started drops what the closure holds, here and now.
    if let Ok(thread) = std::thread::Builder::new().name("ringsmith-farewell".into()).spawn(let_go) {
        let mut farewells = farewells();
        farewells.retain(|thread| !thread.is_finished());
        farewells.push(thread);
    }
}

fn farewells() -> MutexGuard<'static, Vec<JoinHandle<()>>> {
    static FAREWELLS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());
    FAREWELLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a process that ends waits for what it has let go: as long as a root waits for ranks that still leave.
const FAREWELL: Duration = Duration::from_secs(5);

/// Waits until what was let go is gone, for some seconds at most: for a process that is about to end, and would
/// otherwise take roots and GPU memory from ranks that still leave.
pub(crate) fn wait_for_farewells() {
    let deadline = Instant::now() + FAREWELL;
    let leaving = std::mem::take(&mut *farewells());
    for thread in leaving {
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            // Its panic is in the log.
            let _ = thread.join();
        }
    }
}

/// Runs a job; a panic becomes a failure.
pub(crate) fn without_panic<T>(job: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).unwrap_or_else(|_| Err(panicked()))
}

/// What a panic is told as.
pub(crate) fn panicked() -> Failure {
    let text = "this is a bug of Ringsmith; the log says where, please report it".to_owned();
    Failure { code: Code::InternalError, text }
}
