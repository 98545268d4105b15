//! Addresses of C's become memory: at the moment of a call, and only for it.

use crate::operation::Operation;
use crate::outcome::Failure;
use crate::places;
use ringsmith_runtime::communicator::{Buffers, Call, Communicator};
use ringsmith_runtime::error::Error;
use ringsmith_runtime::memory::foreign::Foreign;
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

/// Allocates memory that ranks can use.
///
/// Errors: none to be had.
pub(crate) fn allocate(bytes: usize) -> Result<usize, Failure> {
    let layout = places::layout(bytes)?;
    // SAFETY: the layout is at least one byte long.
    let address = unsafe { std::alloc::alloc_zeroed(layout) } as usize;
    if address == 0 {
        return Err(Failure {
            code: crate::abi::Code::SystemError,
            text: format!("there is no memory for {bytes} bytes; ask for less, or free some"),
        });
    }
    places::allocated(address, layout);
    Ok(address)
}

/// Frees what [`allocate`] gave.
///
/// Errors: it did not give it, or it was freed before.
pub(crate) fn free(address: usize) -> Result<(), Failure> {
    let layout = places::freed(address)?;
    // SAFETY: the table held it: it came from `allocate` with this layout, and was not freed since.
    unsafe { std::alloc::dealloc(address as *mut u8, layout) };
    Ok(())
}
