//! The thread's floating-point mode.
//!
//! Libraries built for speed over accuracy, and some frameworks' settings, make a thread treat
//! subnormal numbers as zero, and threads inherit that. Results would then depend on who else lives
//! in the process. So each move that rounds looks at the mode, which takes some 7 ns on a Zen 5
//! (`cargo bench --bench arithmetic`, 8 bytes), and runs in the
//! standard one. Nothing is done on processors other than x86-64, whose mode nobody changes
//! behind a program's back.

/// Round to nearest, keep subnormals, mask all exceptions: what a program starts with.
#[cfg(target_arch = "x86_64")]
const STANDARD: u32 = 0x1f80;
/// Which exceptions have happened: says nothing about how numbers are treated.
#[cfg(target_arch = "x86_64")]
const FLAGS: u32 = 0x3f;

/// Runs `work` in the standard mode and puts the thread's own back.
#[inline]
pub(super) fn in_standard_mode(work: impl FnOnce()) {
    #[cfg(target_arch = "x86_64")]
    {
        let before = read();
        if before & !FLAGS != STANDARD {
            let _restore = Restore(before);
            write(STANDARD);
            return work();
        }
    }
    work();
}

/// Sets a mode when dropped, also by a panic.
#[cfg(target_arch = "x86_64")]
struct Restore(u32);

#[cfg(target_arch = "x86_64")]
impl Drop for Restore {
    fn drop(&mut self) {
        write(self.0);
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
