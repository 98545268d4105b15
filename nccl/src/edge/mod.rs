//! The C edge: every function of nccl.h, each with its `pnccl` twin.
//!
//! Here and nowhere else C's pointers are followed. A function turns its arguments into values, calls what is
//! to be done, and turns the outcome into a result code; a panic is caught on the way.
#![allow(unsafe_code)] // C passes pointers; nccl.h says what they point to.
#![allow(clippy::missing_safety_doc, reason = "nccl.h is the contract: pointers are null or as it says")]
#![allow(missing_docs, reason = "include/nccl.h and docs/for-nccl-users.md describe the functions")]

use crate::abi::Code;
use crate::communicator::{Comm, Done};
use crate::outcome::{self, Failure};
use crate::{group, process, registry};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// Defines functions and their twins. Both have the body themselves: a profiler that takes the place of one
/// must not find itself behind the other.
macro_rules! exports {
    ($(fn $name:ident, $twin:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some bodies follow no pointer")]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise: pointers are null or as nccl.h says.
            $crate::edge::guarded(stringify!($name), || unsafe { $body })
        }

        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "some bodies follow no pointer")]
        pub unsafe extern "C" fn $twin($($argument: $type),*) -> c_int {
            // SAFETY: the caller's promise: pointers are null or as nccl.h says.
            $crate::edge::guarded(stringify!($name), || unsafe { $body })
        }
    )*};
}

pub mod asking;
pub mod calls;
pub(crate) mod gpu;
pub mod life;
pub(crate) mod memory;
pub mod not_there;
pub mod settings;

/// A communicator's handle, as C has it.
pub type Handle = *mut c_void;
/// A stream.
pub type Stream = *mut c_void;

/// Runs the body of a function: settings first, panics caught, a failure kept for `ncclGetLastError`.
fn guarded(function: &'static str, body: impl FnOnce() -> Result<Done, Failure>) -> c_int {
    let outcome = process::without_panic(|| {
        // The log must be there before anything is said. Settings that cannot be used stop what needs them.
        let _ = process::settings();
        body()
    });
    let code = match outcome {
        Ok(Done::Now) => Code::Success,
        Ok(Done::Later) => Code::InProgress,
        Err(failure) => {
            let kept = process::without_panic(|| Ok(outcome::keep(function, &failure)));
            kept.unwrap_or(Code::InternalError)
        }
    };
    code as c_int
}

/// Does something with a communicator, which keeps the failure as its last one.
///
/// Errors: the handle leads to none, and those of `body`.
fn on(comm: Handle, body: impl FnOnce(&Arc<Comm>) -> Result<Done, Failure>) -> Result<Done, Failure> {
    let comm = registry::find(comm as usize)?;
    body(&comm).inspect_err(|failure| comm.remember(failure))
}

/// Makes a call that belongs to the group that is open, if one is: a mistake of it is the group's.
fn grouped(call: impl FnOnce() -> Result<Done, Failure>) -> Result<Done, Failure> {
    call().inspect_err(group::spoil)
}

/// Writes an answer, with which many calls are done.
///
/// # Safety
/// `place` is null or writable.
unsafe fn put<T>(name: &str, place: *mut T, value: T) -> Result<Done, Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!("{name} is null; pass the address of a variable")));
    }
    // SAFETY: it is not null, so writable, by the caller's promise; C need not have aligned it.
    unsafe { place.write_unaligned(value) };
    Ok(Done::Now)
}

/// Reads an argument.
///
/// # Safety
/// `place` is null or readable.
unsafe fn get<T: Copy>(name: &str, place: *const T) -> Result<T, Failure> {
    if place.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: it is not null, so readable, by the caller's promise.
    Ok(unsafe { place.read_unaligned() })
}

/// Reads a text.
///
/// # Safety
/// `text` is null or ends with a zero.
unsafe fn text(name: &str, text: *const c_char) -> Result<String, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format!("{name} is null")));
    }
    // SAFETY: it is not null, so a text of C, by the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
