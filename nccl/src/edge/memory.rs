//! Addresses of C's become memory: at the moment of a call, and only for it.

use crate::operation::Operation;
use crate::outcome::Failure;
use crate::places::ALIGN_BYTES;
use ringsmith_runtime::communicator::{Buffers, Call, Communicator};
use ringsmith_runtime::error::Error;
use ringsmith_runtime::memory::foreign::Foreign;
use std::alloc::Layout;
use std::ptr::NonNull;

/// Runs calls of host memory.
pub(crate) fn run(communicator: &Communicator, operations: &[Operation]) -> Result<(), Error> {
    if let [Operation::Collective { function, request, input, output, .. }] = operations {
        return communicator.run(request, collective(function, *input, *output));
    }
    let mut calls: Vec<Call<'_>> = operations
        .iter()
        .map(|operation| match *operation {
            Operation::Collective { function, request, input, output, .. } => {
                Call::Collective(request, collective(function, input, output))
            }
            Operation::Send { peer, data, bytes, .. } => {
                let data = address(data).as_ptr().cast_const();
                // SAFETY: nccl.h asks the caller for `bytes` readable bytes until the call is done, and it is
                // done when this function returns; the address is not null, and was checked for null before.
                Call::Send { peer, data: unsafe { std::slice::from_raw_parts(data, bytes) } }
            }
            Operation::Recv { peer, data, bytes, .. } => {
                let data = address(data).as_ptr();
                // SAFETY: as above, writable and for this call alone.
                Call::Recv { peer, data: unsafe { std::slice::from_raw_parts_mut(data, bytes) } }
            }
        })
        .collect();
    communicator.run_group(&mut calls)
}

fn collective(function: &'static str, input: usize, output: usize) -> Buffers<'static> {
    // SAFETY: nccl.h asks the caller for buffers of the size that follows from the call, untouched until it is
    // done, and it is done when the runtime returns.
    Buffers::Foreign(unsafe { Foreign::new(function, input as *const u8, output as *mut u8) })
}

/// The address of a message; any where it is empty.
fn address(data: usize) -> NonNull<u8> {
    NonNull::new(data as *mut u8).unwrap_or(NonNull::dangling())
}

/// Host memory that the library has allocated: freed with its owner.
pub(crate) struct HostMemory {
    address: usize,
    layout: Layout,
}

impl HostMemory {
    /// Where it is.
    pub(crate) fn address(&self) -> usize {
        self.address
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: `allocate` got it with this layout, and it has one owner.
        unsafe { std::alloc::dealloc(self.address as *mut u8, self.layout) };
    }
}

/// Allocates host memory, cleared.
///
/// Errors: none to be had.
pub(crate) fn allocate(bytes: usize) -> Result<HostMemory, Failure> {
    let layout = Layout::from_size_align(bytes.max(1), ALIGN_BYTES)
        .map_err(|_| Failure::argument(format!("{bytes} bytes are more than memory can hold")))?;
    // SAFETY: the layout is at least one byte long.
    let address = unsafe { std::alloc::alloc_zeroed(layout) } as usize;
    if address == 0 {
        return Err(Failure {
            code: crate::abi::Code::SystemError,
            text: format!("there is no memory for {bytes} bytes; ask for less, or free some"),
        });
    }
    Ok(HostMemory { address, layout })
}
