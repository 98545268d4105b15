//! A file without a name that several processes map: the memory behind the links of one host.
//!
//! It is a memfd; where the kernel or a filter refuses those, a nameless file in `/dev/shm` whose
//! space is allocated before anybody maps it, so that a full file system is an error and not a
//! SIGBUS. Neither has a name in any directory after [`Segment::create`] returns, so a killed job
//! leaves nothing behind: the kernel frees the memory with the last process that maps it.
//!
//! A memfd is sealed against shrinking before it is handed out, so a peer cannot cut it short under
//! those who map it. A file in `/dev/shm` cannot be sealed; the length is checked once, on receipt.

use super::mapping::PAGE_ALIGN_BYTES;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// Where shared memory files go if memfd is refused.
const SHM_DIRECTORY: &str = "/dev/shm";

/// Which kind of file to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Backing {
    /// A memfd if there are such, else a file in `/dev/shm`.
    #[default]
    Auto,
    /// A memfd or nothing.
    Memfd,
    /// A nameless file in this directory, which should be in memory.
    Directory(PathBuf),
}

/// Why a segment could not be made or taken over.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The file system has too little room.
    #[error(
        "{needed_bytes} bytes of shared memory are needed and {} has {free_bytes} free: enlarge it \
         (docker run --shm-size), or let the process use memfd_create, which does not count against it",
        .directory.display()
    )]
    NoSpace {
        /// Bytes of the whole segment.
        needed_bytes: u64,
        /// Bytes the file system reports free.
        free_bytes: u64,
        /// The directory.
        directory: PathBuf,
    },
    /// A call failed.
    #[error("{call} failed for a segment of {bytes} bytes")]
    Call {
        /// The call.
        call: &'static str,
        /// Bytes of the whole segment.
        bytes: u64,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
    /// A file received from a peer has another length than agreed.
    #[error("the file has {actual_bytes} bytes, and {expected_bytes} were agreed")]
    Length {
        /// Its length.
        actual_bytes: u64,
        /// The length that follows from the geometry.
        expected_bytes: u64,
    },
    /// A file received from a peer is neither a memfd sealed against shrinking nor a regular file.
    #[error("the file could shrink while it is mapped")]
    Unsealed,
}

/// An open file of shared memory.
#[derive(Debug)]
pub struct Segment {
    file: OwnedFd,
    len_bytes: u64,
    memfd: bool,
}

impl Segment {
    /// Makes a segment of `len_bytes`, zero when first read, that has no name in any directory.
    pub fn create(len_bytes: u64, backing: &Backing) -> Result<Self, SegmentError> {
        let len_bytes = len_bytes.next_multiple_of(PAGE_ALIGN_BYTES).max(PAGE_ALIGN_BYTES);
        match backing {
            Backing::Memfd => Self::memfd(len_bytes),
            Backing::Directory(directory) => Self::in_directory(len_bytes, directory),
            Backing::Auto => match Self::memfd(len_bytes) {
                Err(SegmentError::Call { call: "memfd_create", .. }) => {
                    Self::in_directory(len_bytes, Path::new(SHM_DIRECTORY))
                }
                result => result,
            },
        }
    }

    /// Takes over a file that a peer sent, after checking that it is as long as agreed and stays so.
    pub fn adopt(file: OwnedFd, expected_bytes: u64) -> Result<Self, SegmentError> {
        let expected_bytes = expected_bytes.next_multiple_of(PAGE_ALIGN_BYTES).max(PAGE_ALIGN_BYTES);
        let call = |call| move |source| SegmentError::Call { call, bytes: expected_bytes, source };
        let status = fs::fstat(&file).map_err(call("fstat"))?;
        let actual_bytes = u64::try_from(status.st_size).unwrap_or(0);
        if actual_bytes != expected_bytes {
            return Err(SegmentError::Length { actual_bytes, expected_bytes });
        }
        // Files that know no seals answer EINVAL; those come from a peer without memfd.
        let memfd = match fs::fcntl_get_seals(&file) {
            Ok(seals) => {
                // A file of /dev/shm is on tmpfs too and reports the seal against seals.
                if !seals.contains(SealFlags::SHRINK) && seals != SealFlags::SEAL {
                    return Err(SegmentError::Unsealed);
                }
                seals.contains(SealFlags::SHRINK)
            }
            Err(_) => false,
        };
        Ok(Self { file, len_bytes: expected_bytes, memfd })
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Whether it is a memfd.
    pub fn is_memfd(&self) -> bool {
        self.memfd
    }

    /// Bytes that have memory behind them now.
    pub fn resident_bytes(&self) -> Option<u64> {
        let blocks = fs::fstat(&self.file).ok()?.st_blocks;
        u64::try_from(blocks).ok().map(|blocks| blocks * 512)
    }

    fn memfd(len_bytes: u64) -> Result<Self, SegmentError> {
        let call = |call| move |source| SegmentError::Call { call, bytes: len_bytes, source };
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = fs::memfd_create("ringsmith", flags).map_err(call("memfd_create"))?;
        fs::ftruncate(&file, len_bytes).map_err(call("ftruncate"))?;
        fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(call("fcntl(F_ADD_SEALS)"))?;
        Ok(Self { file, len_bytes, memfd: true })
    }

    fn in_directory(len_bytes: u64, directory: &Path) -> Result<Self, SegmentError> {
        let call = |call| move |source| SegmentError::Call { call, bytes: len_bytes, source };
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = fs::open(directory, flags, Mode::RUSR | Mode::WUSR).map_err(call("open(O_TMPFILE)"))?;
        loop {
            match fs::fallocate(&file, FallocateFlags::empty(), 0, len_bytes) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC) => {
                    let free_bytes =
                        fs::statvfs(directory).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
                    let directory = directory.to_owned();
                    return Err(SegmentError::NoSpace { needed_bytes: len_bytes, free_bytes, directory });
                }
                Err(errno) => return Err(call("fallocate")(errno)),
            }
        }
        Ok(Self { file, len_bytes, memfd: false })
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memfd_is_sparse_and_cannot_shrink() {
        let segment = Segment::create(1 << 30, &Backing::Memfd).expect("memfd of 1 GiB");
        assert!(segment.is_memfd());
        assert_eq!(segment.resident_bytes(), Some(0));
        assert_eq!(fs::ftruncate(&segment, 4096).err(), Some(Errno::PERM));
    }

    #[test]
    fn a_file_that_could_shrink_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = fs::memfd_create("loose", flags).expect("memfd");
        fs::ftruncate(&file, PAGE_ALIGN_BYTES).expect("ftruncate");
        assert!(matches!(Segment::adopt(file, PAGE_ALIGN_BYTES), Err(SegmentError::Unsealed)));
    }

    #[test]
    fn a_file_of_another_length_is_refused() {
        let segment = Segment::create(2 * PAGE_ALIGN_BYTES, &Backing::Memfd).expect("memfd");
        let error = Segment::adopt(segment.file, PAGE_ALIGN_BYTES).expect_err("twice too long");
        assert!(
            matches!(error, SegmentError::Length { actual_bytes, .. } if actual_bytes == 2 * PAGE_ALIGN_BYTES)
        );
    }

    #[test]
    fn without_memfd_a_nameless_file_with_its_space_allocated_serves() {
        let backing = Backing::Directory(SHM_DIRECTORY.into());
        let segment = Segment::create(PAGE_ALIGN_BYTES, &backing).expect("64 KiB in /dev/shm");
        assert!(!segment.is_memfd());
        assert_eq!(segment.resident_bytes(), Some(PAGE_ALIGN_BYTES));
        assert_eq!(fs::fstat(&segment).expect("fstat").st_nlink, 0);
        Segment::adopt(segment.file, PAGE_ALIGN_BYTES).expect("a peer takes it");
    }

    #[test]
    fn too_little_room_names_the_size_needed() {
        let stat = fs::statvfs(SHM_DIRECTORY).expect("statvfs");
        let total = stat.f_blocks.saturating_mul(stat.f_frsize);
        let backing = Backing::Directory(SHM_DIRECTORY.into());
        let error = Segment::create(total + (1 << 30), &backing).expect_err("more than there is");
        let SegmentError::NoSpace { needed_bytes, .. } = &error else { panic!("{error:?}") };
        assert!(*needed_bytes > total);
        assert!(error.to_string().contains(&needed_bytes.to_string()), "{error}");
    }
}
