//! A mapped range of addresses, unmapped when dropped.
//!
//! Private ranges hold what one process alone sees (a rank's links to itself, the two ends of a
//! socket link); shared ones are windows on a [`Segment`](super::segment::Segment). Pages come into
//! being when they are first touched. This file does no arithmetic on what lies inside a range.

use rustix::fd::AsFd;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Alignment of everything that gets its own pages. A multiple of every page size in use, so that a
/// layout does not depend on the machine.
pub const PAGE_ALIGN_BYTES: u64 = 64 * 1024;

/// A readable and writable range of addresses.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len_bytes: usize,
    shared: bool,
}

// SAFETY: a mapping is an owned range of addresses with no thread affinity; what is done through the
// pointers it hands out is the business of those who dereference them.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` only yields the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves private memory, zero when first read. Takes no memory until it is touched.
    ///
    /// Errors: whatever the kernel says, `EINVAL` for an empty range.
    pub fn private(len_bytes: u64) -> Result<Self, Errno> {
        let len = checked_len(len_bytes)?;
        // SAFETY: a fresh range chosen by the kernel overlaps nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(Self { start: non_null(start)?, len_bytes: len, shared: false })
    }

    /// Maps `len_bytes` of a file from `offset_bytes`, a multiple of [`PAGE_ALIGN_BYTES`].
    ///
    /// The caller has checked that the file is that long and cannot shrink, since touching a page
    /// past its end kills the process.
    pub fn shared(file: impl AsFd, offset_bytes: u64, len_bytes: u64) -> Result<Self, Errno> {
        let len = checked_len(len_bytes)?;
        // SAFETY: a fresh range chosen by the kernel overlaps nothing.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                file,
                offset_bytes,
            )?
        };
        Ok(Self { start: non_null(start)?, len_bytes: len, shared: true })
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length of the range.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes as u64
    }

    /// Whether other processes may see it.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Bytes of the range that have memory behind them now, or none if the kernel does not say.
    pub fn resident_bytes(&self) -> Option<u64> {
        const PAGES_A_CALL: usize = 16 * 1024;
        let page = rustix::param::page_size();
        let mut resident = vec![0u8; PAGES_A_CALL];
        let mut pages = 0u64;
        let mut offset = 0;
        while offset < self.len_bytes {
            let len = (self.len_bytes - offset).min(PAGES_A_CALL * page);
            // SAFETY: offset + len stays within the mapping, and `resident` has a byte for each of
            // the at most PAGES_A_CALL pages asked about.
            let rc = unsafe {
                libc::mincore(self.start.as_ptr().add(offset).cast(), len, resident.as_mut_ptr().cast())
            };
            if rc != 0 {
                return None;
            }
            pages += resident[..len.div_ceil(page)].iter().filter(|byte| **byte & 1 != 0).count() as u64;
            offset += len;
        }
        Some(pages * page as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and is unmapped once; views into it are held
        // together with the mapping by those who made them.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.len_bytes) };
    }
}

fn checked_len(len_bytes: u64) -> Result<usize, Errno> {
    match usize::try_from(len_bytes) {
        Ok(0) => Err(Errno::INVAL),
        Ok(len) if len <= isize::MAX as usize => Ok(len),
        _ => Err(Errno::NOMEM),
    }
}

fn non_null(start: *mut c_void) -> Result<NonNull<u8>, Errno> {
    NonNull::new(start.cast()).ok_or(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_taken_when_touched() {
        let mapping = Mapping::private(256 << 20).expect("address space for 256 MiB");
        assert_eq!(mapping.resident_bytes(), Some(0));
        // SAFETY: the byte lies in the middle of the mapping.
        unsafe { mapping.start().as_ptr().add(100 << 20).write(1) };
        let page = rustix::param::page_size() as u64;
        let resident = mapping.resident_bytes().expect("mincore works on private memory");
        // One page, or one huge page where the kernel makes those unasked.
        assert!(resident >= page && resident <= 2 << 20, "{resident} bytes are resident");
    }

    #[test]
    fn an_empty_range_is_refused() {
        assert_eq!(Mapping::private(0).err(), Some(Errno::INVAL));
    }

    #[test]
    fn a_range_beyond_the_address_space_is_refused() {
        assert_eq!(Mapping::private(u64::MAX).err(), Some(Errno::NOMEM));
    }
}
