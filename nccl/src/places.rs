//! Memory that a program tells the library of: allocated here, registered, or made a window.
//!
//! On host memory registering changes nothing, since every address can be reached; what was registered is
//! kept so that a wrong handle is known as such.

use crate::edge::memory::HostMemory;
use crate::outcome::Failure;
use ringsmith_runtime::device::cuda::DeviceMemory;
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

/// What `ncclMemAlloc` has given: freed with its owner.
pub(crate) enum Allocation {
    /// Of the host.
    Host(HostMemory),
    /// Of a GPU.
    Gpu(DeviceMemory),
}

impl Allocation {
    fn address(&self) -> usize {
        match self {
            Self::Host(memory) => memory.address(),
            Self::Gpu(memory) => memory.address() as usize,
        }
    }
}

fn allocations() -> MutexGuard<'static, HashMap<usize, Allocation>> {
    static ALLOCATIONS: OnceLock<Mutex<HashMap<usize, Allocation>>> = OnceLock::new();
    ALLOCATIONS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an allocation, and gives its address.
pub(crate) fn keep(allocation: Allocation) -> usize {
    let address = allocation.address();
    allocations().insert(address, allocation);
    address
}

/// The allocation at an address, once.
///
/// Errors: the address is no allocation of ours, or was freed before.
pub(crate) fn take(address: usize) -> Result<Allocation, Failure> {
    allocations().remove(&address).ok_or_else(|| {
        Failure::argument(format!(
            "{address:#x} is no memory of ncclMemAlloc, or was freed before; pass what ncclMemAlloc gave"
        ))
    })
}
