//! Whether this process is a fork of the one that used Ringsmith, asked at every call and so cheaply:
//! one byte of memory that the kernel clears in a child.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

const PAGE_BYTES: usize = 4096;

struct Page(NonNull<AtomicU8>);

// SAFETY: the page is never unmapped, and its one word is an atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

static PAGE: OnceLock<Option<Page>> = OnceLock::new();

/// A page that a child of this process sees as zeros, with one byte set.
fn page() -> Option<Page> {
    // SAFETY: a new private mapping overlaps nothing.
    let start = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let start = NonNull::new(start.ok()?)?;
    // SAFETY: the range is the mapping just made; wiping it in children is its purpose.
    unsafe { madvise(start.as_ptr(), PAGE_BYTES, Advice::LinuxWipeOnFork) }.ok()?;
    let page = Page(start.cast());
    word(&page).store(1, Ordering::Relaxed);
    Some(page)
}

fn word(page: &Page) -> &AtomicU8 {
    // SAFETY: the mapping is aligned, lives for ever and is only accessed as this atomic.
    unsafe { page.0.as_ref() }
}

/// Remembers this process. To be called before [`is_forked`] means anything.
pub(crate) fn remember() {
    PAGE.get_or_init(page);
}

/// Whether this process was forked from one that had called [`remember`]. False where the kernel (below
/// 4.14) cannot tell.
pub(crate) fn is_forked() -> bool {
    matches!(PAGE.get(), Some(Some(page)) if word(page).load(Ordering::Relaxed) == 0)
}
