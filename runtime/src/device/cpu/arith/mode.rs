//! The thread's floating-point mode.
//!
//! Libraries built for speed over accuracy, and some frameworks' settings, make a thread treat
//! subnormal numbers as zero, and threads inherit that. Results would then depend on who else lives
//! in the process. Nothing is done on processors other than x86-64, whose mode nobody changes
//! behind a program's back.

use std::marker::PhantomData;

/// Round to nearest, keep subnormals, mask all exceptions: what a program starts with.
#[cfg(target_arch = "x86_64")]
const DEFAULT: u32 = 0x1f80;

/// While it lives, its thread rounds to nearest and keeps subnormals. Made once around a lane's
/// work, not around each move.
#[derive(Debug)]
pub struct FloatMode {
    #[cfg(target_arch = "x86_64")]
    before: u32,
    /// The mode is the thread's own.
    not_send: PhantomData<*const ()>,
}

impl FloatMode {
    /// Sets the mode that docs/arithmetic.md assumes; dropping it sets the one before.
    pub fn standard() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let before = read();
            write(DEFAULT);
            Self { before, not_send: PhantomData }
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self { not_send: PhantomData }
    }
}

impl Drop for FloatMode {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        write(self.before);
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) fn read() -> u32 {
    let mut mode = 0u32;
    // SAFETY: stores the control word into four bytes of this function's own.
    unsafe { std::arch::asm!("stmxcsr [{}]", in(reg) &raw mut mode, options(nostack)) }
    mode
}

#[cfg(target_arch = "x86_64")]
pub(super) fn write(mode: u32) {
    // SAFETY: loads the control word from four bytes of this function's own; `mode` came from
    // `read` or is the default, so no reserved bit is set.
    unsafe { std::arch::asm!("ldmxcsr [{}]", in(reg) &raw const mode, options(nostack, readonly)) }
}
