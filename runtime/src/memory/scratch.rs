//! Scratch memory of one rank: private, aligned to a cache line, grown on demand and kept.

use crate::error::Error;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

const ALIGN_BYTES: usize = 64;

/// A block of memory that only grows.
pub(crate) struct Scratch {
    rank: u32,
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the block is owned, and its address may be used from any thread.
unsafe impl Send for Scratch {}

impl Scratch {
    /// An empty block.
    pub(crate) fn new(rank: u32) -> Self {
        Self { rank, start: NonNull::dangling(), len_bytes: 0 }
    }

    /// The block, at least `len_bytes` long. What it held is lost when it grows.
    ///
    /// Errors: `Memory` when there is none to be had.
    pub(crate) fn at_least(&mut self, len_bytes: u64) -> Result<*mut u8, Error> {
        if len_bytes > self.len_bytes as u64 {
            self.grow(len_bytes)?;
        }
        Ok(self.start.as_ptr())
    }

    /// Bytes held.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.len_bytes as u64
    }

    #[cold]
    fn grow(&mut self, len_bytes: u64) -> Result<(), Error> {
        let failed = |kind| Error::Memory {
            rank: self.rank,
            operation: "allocation of scratch",
            len_bytes,
            remedy: "lower RINGSMITH_SLOT_BYTES or give the process more memory",
            source: std::io::Error::from(kind),
        };
        let layout = usize::try_from(len_bytes)
            .ok()
            .and_then(|len| Layout::from_size_align(len, ALIGN_BYTES).ok())
            .ok_or_else(|| failed(std::io::ErrorKind::InvalidInput))?;
        // SAFETY: the size is not zero, since it is larger than the present one.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(|| failed(std::io::ErrorKind::OutOfMemory))?;
        self.free();
        self.start = start;
        self.len_bytes = layout.size();
        Ok(())
    }

    fn free(&mut self) {
        if self.len_bytes > 0 {
            let layout = Layout::from_size_align(self.len_bytes, ALIGN_BYTES)
                .expect("the layout was valid when the block was made");
            // SAFETY: the block was allocated with this layout and is not used after.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.free();
    }
}
