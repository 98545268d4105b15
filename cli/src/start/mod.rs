//! What only the first moment of a process knows: whether its standard output was open.
//!
//! Rust's runtime opens /dev/null in the place of a standard stream that is closed, so that no file of
//! the program's gets its number. From then on a result that is written there vanishes without an error.
//! Hence this looks before the runtime does: the system's loader calls [`look`] before `main`.

use rustix::io::{Errno, fcntl_getfd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Written once, before there is a second thread.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Whether standard output was closed when the process began.
pub(crate) fn output_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}

// SAFETY: the section holds functions that the loader calls as C functions, once, in one thread; this one
// makes a system call and writes a word of its own, and needs nothing that Rust's runtime prepares.
#[allow(unsafe_code, reason = "no other place is reached before Rust's runtime")]
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    if fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF) {
        WAS_CLOSED.store(true, Ordering::Relaxed);
    }
}
