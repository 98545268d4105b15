//! Questions about the library and communicators, and memory that they are told of.

use super::{Handle, on, put};
use crate::abi::{self, ALL_WINDOW_FLAGS, CODE_TEXTS, Code, VERSION};
use crate::communicator::Done;
use crate::outcome::{self, Failure};
use crate::registry;
use std::ffi::{c_char, c_int, c_void};

/// What `ncclGetErrorString` says.
fn error_string(code: c_int) -> *const c_char {
    let text = usize::try_from(code).ok().and_then(|code| CODE_TEXTS.get(code));
    text.map_or(c"unknown result code".as_ptr(), |text| text.as_ptr())
}

/// What `ncclGetLastError` says.
fn last_error(comm: Handle) -> *const c_char {
    let of_comm = || registry::find(comm as usize).ok().and_then(|comm| comm.last_error());
    let text = crate::process::without_panic(|| Ok(of_comm().unwrap_or_else(outcome::last)));
    outcome::told(&text.unwrap_or_default())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(code: c_int) -> *const c_char {
    error_string(code)
}

#[unsafe(no_mangle)]
pub extern "C" fn pncclGetErrorString(code: c_int) -> *const c_char {
    error_string(code)
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(comm: Handle) -> *const c_char {
    last_error(comm)
}

#[unsafe(no_mangle)]
pub extern "C" fn pncclGetLastError(comm: Handle) -> *const c_char {
    last_error(comm)
}

/// Settings of the log are read once: there is nothing to read again.
#[unsafe(no_mangle)]
pub extern "C" fn ncclResetDebugInit() {}

/// As [`ncclResetDebugInit`].
#[unsafe(no_mangle)]
pub extern "C" fn pncclResetDebugInit() {}

exports! {
    fn ncclGetVersion, pncclGetVersion(version: *mut c_int) {
        put("version", version, VERSION)
    }

    fn ncclCommGetAsyncError, pncclCommGetAsyncError(comm: Handle, code: *mut c_int) {
        on(comm, |comm| put("asyncError", code, comm.state() as c_int))
    }

    fn ncclCommCount, pncclCommCount(comm: Handle, count: *mut c_int) {
        on(comm, |comm| put("count", count, comm.joined_as()?.1 as c_int))
    }

    fn ncclCommUserRank, pncclCommUserRank(comm: Handle, rank: *mut c_int) {
        on(comm, |comm| put("rank", rank, comm.joined_as()?.0 as c_int))
    }

    fn ncclCommCuDevice, pncclCommCuDevice(comm: Handle, device: *mut c_int) {
        on(comm, |comm| put("device", device, comm.device))
    }

    fn ncclCommMemStats, pncclCommMemStats(comm: Handle, what: c_int, value: *mut u64) {
        on(comm, |comm| {
            let answer = match what {
                0 => 0,
                1 => u64::from(comm.is_suspended()),
                2 | 3 => comm.memory_bytes()?,
                other => {
                    return Err(Failure::argument(format!("{}: stat is {other}; 0 to 3 are there", comm.name())));
                }
            };
            put("value", value, answer)
        })
    }

    fn ncclCommRegister, pncclCommRegister(comm: Handle, data: *mut c_void, bytes: usize, handle: *mut *mut c_void) {
        on(comm, |comm| {
            comm.ready()?;
            if handle.is_null() || data.is_null() || bytes == 0 {
                return Err(Failure::argument(format!(
                    "{}: give an address, its size, and a place for the handle",
                    comm.name()
                )));
            }
            put("handle", handle, comm.places().register(data as usize, bytes) as *mut c_void)
        })
    }

    fn ncclCommDeregister, pncclCommDeregister(comm: Handle, handle: *mut c_void) {
        // Null is what NCCL gives where registering is switched off: there is nothing to forget.
        on(comm, |comm| match handle.is_null() || comm.places().deregister(handle as usize) {
            true => Ok(Done::Now),
            false => Err(Failure::argument(format!("{}: {handle:p} is no registered buffer", comm.name()))),
        })
    }

    fn ncclCommWindowRegister, pncclCommWindowRegister(
        comm: Handle, data: *mut c_void, bytes: usize, window: *mut *mut c_void, flags: c_int,
    ) {
        on(comm, |comm| {
            comm.ready()?;
            if window.is_null() || data.is_null() || bytes == 0 || !(0..=ALL_WINDOW_FLAGS).contains(&flags) {
                return Err(Failure::argument(format!(
                    "{}: a window is an address, its size, a place for the handle, and flags up to {ALL_WINDOW_FLAGS}",
                    comm.name()
                )));
            }
            put("win", window, comm.places().add_window(data as usize, bytes) as *mut c_void)
        })
    }

    fn ncclCommWindowDeregister, pncclCommWindowDeregister(comm: Handle, window: *mut c_void) {
        on(comm, |comm| match window.is_null() || comm.places().remove_window(window as usize) {
            true => Ok(Done::Now),
            false => Err(Failure::argument(format!("{}: {window:p} is no window", comm.name()))),
        })
    }

    fn ncclWinGetUserPtr, pncclWinGetUserPtr(comm: Handle, window: *mut c_void, data: *mut *mut c_void) {
        on(comm, |comm| match comm.places().window(window as usize) {
            Some(address) => put("outUserPtr", data, address as *mut c_void),
            None => Err(Failure::argument(format!("{}: {window:p} is no window", comm.name()))),
        })
    }
}

// The codes are what their texts are found by.
const _: () = assert!(Code::InProgress as usize + 2 == CODE_TEXTS.len() && abi::FIRST_OWN_OP == 5);
