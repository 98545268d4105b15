//! Memory of callers who pass addresses without lengths, as the functions of nccl.h do.
//!
//! What a call needs of it follows from the call; that it is there is the caller's promise, made where the
//! address comes in. A null address is refused where bytes are needed.

use crate::error::Error;
use std::ptr::NonNull;

/// Where a call of a foreign caller reads and writes.
#[derive(Debug)]
pub struct Foreign {
    call: &'static str,
    input: *const u8,
    output: *mut u8,
}

impl Foreign {
    /// Takes the addresses of one call. Either may be null where the call has no such side.
    ///
    /// # Safety
    /// Until the call has returned, `input` is readable and `output` writable for the bytes that its request
    /// needs of them, and nobody else writes there. They may be one, or overlap as the collective's in-place
    /// form has it.
    pub unsafe fn new(call: &'static str, input: *const u8, output: *mut u8) -> Self {
        Self { call, input, output }
    }

    /// The input, of which `bytes` are needed.
    pub(crate) fn input(&self, bytes: u64) -> Result<*const u8, Error> {
        self.side("send buffer", self.input.cast_mut(), bytes).map(<*mut u8>::cast_const)
    }

    /// The output, of which `bytes` are needed.
    pub(crate) fn output(&self, bytes: u64) -> Result<*mut u8, Error> {
        self.side("receive buffer", self.output, bytes)
    }

    fn side(&self, side: &str, address: *mut u8, bytes: u64) -> Result<*mut u8, Error> {
        match NonNull::new(address) {
            Some(address) => Ok(address.as_ptr()),
            None if bytes == 0 => Ok(NonNull::dangling().as_ptr()),
            None => Err(Error::Argument {
                operation: self.call,
                detail: format!("the {side} is null, and {bytes} bytes of it are needed"),
            }),
        }
    }
}
