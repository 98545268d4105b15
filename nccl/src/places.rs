//! Memory that a program tells the library of: allocated here, registered, or made a window.
//!
//! On host memory registering changes nothing, since every address can be reached; what was registered is
//! kept so that a wrong handle is known as such.

use crate::outcome::Failure;
use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Alignment of allocated memory: that of a page, which windows need.
pub(crate) const ALIGN_BYTES: usize = 4096;

/// What a program has registered with one communicator, by handle.
#[derive(Default)]
pub(crate) struct Places {
    next: usize,
    buffers: HashMap<usize, (usize, usize)>,
    windows: HashMap<usize, (usize, usize)>,
}

impl Places {
    fn handle(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Registers a buffer.
    pub(crate) fn register(&mut self, address: usize, bytes: usize) -> usize {
        let handle = self.handle();
        self.buffers.insert(handle, (address, bytes));
        handle
    }

    /// Forgets a buffer. Whether there was one.
    pub(crate) fn deregister(&mut self, handle: usize) -> bool {
        self.buffers.remove(&handle).is_some()
    }

    /// Makes a buffer a window.
    pub(crate) fn add_window(&mut self, address: usize, bytes: usize) -> usize {
        let handle = self.handle();
        self.windows.insert(handle, (address, bytes));
        handle
    }

    /// Forgets a window. Whether there was one.
    pub(crate) fn remove_window(&mut self, handle: usize) -> bool {
        self.windows.remove(&handle).is_some()
    }

    /// The address of a window.
    pub(crate) fn window(&self, handle: usize) -> Option<usize> {
        self.windows.get(&handle).map(|(address, _)| *address)
    }
}

fn allocations() -> MutexGuard<'static, HashMap<usize, Layout>> {
    static ALLOCATIONS: OnceLock<Mutex<HashMap<usize, Layout>>> = OnceLock::new();
    ALLOCATIONS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The layout of an allocation.
///
/// Errors: more than memory can hold.
pub(crate) fn layout(bytes: usize) -> Result<Layout, Failure> {
    Layout::from_size_align(bytes.max(1), ALIGN_BYTES)
        .map_err(|_| Failure::argument(format!("{bytes} bytes are more than memory can hold")))
}

/// Keeps an allocation.
pub(crate) fn allocated(address: usize, layout: Layout) {
    allocations().insert(address, layout);
}

/// The layout of an allocation that is to be freed, once.
///
/// Errors: the address is no allocation of ours, or was freed before.
pub(crate) fn freed(address: usize) -> Result<Layout, Failure> {
    allocations().remove(&address).ok_or_else(|| {
        Failure::argument(format!(
            "{address:#x} is no memory of ncclMemAlloc, or was freed before; pass what ncclMemAlloc gave"
        ))
    })
}
