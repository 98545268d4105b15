//! Handles of communicators. A handle is an address of ours that nobody reads and that is never used again,
//! so a handle that was destroyed, or never was one, is known as such.

use crate::communicator::Comm;
use crate::outcome::Failure;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a handle leads to.
enum Entry {
    Live(Arc<Comm>),
    /// Past use: why, and who it was.
    Gone(&'static str, String),
}

/// How many entries are live. Changed with the table locked.
static LIVE: AtomicUsize = AtomicUsize::new(0);

fn table() -> MutexGuard<'static, HashMap<usize, Entry>> {
    static TABLE: OnceLock<Mutex<HashMap<usize, Entry>>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a communicator a handle.
pub(crate) fn add(make: impl FnOnce(usize) -> Comm) -> Arc<Comm> {
    // Never freed, as small as can be: its address is the handle, and no two are alike.
    let handle = std::ptr::from_mut(Box::leak(Box::new(0u64))) as usize;
    let comm = Arc::new(make(handle));
    let mut table = table();
    table.insert(handle, Entry::Live(comm.clone()));
    LIVE.fetch_add(1, Ordering::AcqRel);
    comm
}

/// The communicator of a handle.
///
/// Errors: null, destroyed, or never a handle.
pub(crate) fn find(handle: usize) -> Result<Arc<Comm>, Failure> {
    if handle == 0 {
        return Err(Failure::argument("the communicator is null; initialise one first"));
    }
    match table().get(&handle) {
        Some(Entry::Live(comm)) => Ok(comm.clone()),
        Some(Entry::Gone(how, who)) => Err(Failure::argument(format!(
            "{who}: the communicator was {how} before; no call may use its handle after that"
        ))),
        None => Err(Failure::argument(format!("{handle:#x} is no communicator of this library"))),
    }
}

/// Whether no communicator is in use.
pub(crate) fn is_empty() -> bool {
    LIVE.load(Ordering::Acquire) == 0
}

/// Takes a communicator out of use; `how` says by what.
///
/// Errors: as [`find`].
pub(crate) fn remove(handle: usize, how: &'static str) -> Result<Arc<Comm>, Failure> {
    let comm = find(handle)?;
    let gone = Entry::Gone(how, comm.name());
    let mut table = table();
    match table.insert(handle, gone) {
        Some(Entry::Live(comm)) => {
            LIVE.fetch_sub(1, Ordering::AcqRel);
            Ok(comm)
        }
        // Another thread was first, between the two looks.
        _ => Err(Failure::argument(format!("{}: the communicator was {how} before", comm.name()))),
    }
}
