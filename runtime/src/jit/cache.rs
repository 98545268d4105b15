//! Kernels kept on disk, so that the next process need not compile them.
//!
//! A folder of the user's, one file per kernel, whose name is the hash of all that the code depends on.
//! A file appears whole or not at all: it is written under another name and then renamed, so any number
//! of processes may read and write at once, and two that make one kernel both write the same. Whatever
//! is damaged, of another format or of another owner is refused with a warning and made anew, never
//! loaded: machine code that others could have written is not run. Nothing is ever thrown away by
//! itself; [`Cache::clear`] does.

use super::stored::{self, Damage, FORMAT, MAX_FILE_BYTES, Stored};
use super::{Architecture, Cubin, Version};
use crate::config::Config;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What names of kernels end with.
const ENDING: &str = ".kernel";
/// What names of files begin with that are still being written.
const UNFINISHED: &str = ".unfinished-";

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// No setting, and no home.
    #[error(
        "there is no folder for the kernel cache: neither XDG_CACHE_HOME nor HOME is an absolute path; set RINGSMITH_CACHE_DIR"
    )]
    NoFolder,
    /// The folder cannot be made, opened or listed.
    #[error("kernel cache {}: cannot {operation} the folder: {source}; set RINGSMITH_CACHE_DIR to another", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What failed.
        operation: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Somebody else's folder.
    #[error("kernel cache {}: the folder belongs to user {uid}; set RINGSMITH_CACHE_DIR to one of your own", .folder.display())]
    Owner {
        /// The folder.
        folder: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// Others may write into the folder.
    #[error("kernel cache {}: others may write into the folder (mode {mode:o}); chmod go-w, or set RINGSMITH_CACHE_DIR to another", .folder.display())]
    Writable {
        /// The folder.
        folder: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// All that machine code depends on but the compiler's version, as a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Family([u8; 32]);

impl Family {
    /// The hash of a plan's canonical text, the source, the compiler's options, and the architecture.
    pub fn new(plan_text: &str, source: &str, options: &[String], architecture: Architecture) -> Self {
        let mut hash = Sha256::new();
        let mut put = |part: &[u8]| {
            // With their lengths, or two parts could be cut elsewhere and give the same.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        put(b"ringsmith kernel");
        put(&FORMAT.to_le_bytes());
        put(plan_text.as_bytes());
        put(source.as_bytes());
        put(&(options.len() as u64).to_le_bytes());
        options.iter().for_each(|option| put(option.as_bytes()));
        put(&architecture.number().to_le_bytes());
        Self(hash.finalize().into())
    }

    /// With the compiler's version.
    pub fn key(self, version: Version) -> Key {
        Key { family: self, version }
    }
}

/// All that machine code depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    family: Family,
    version: Version,
}

impl Key {
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        hash.update(self.family.0);
        hash.update(self.version.major.to_le_bytes());
        hash.update(self.version.minor.to_le_bytes());
        hash.finalize().into()
    }

    /// The name of its file: the family, so that all versions of a kernel are found, and the version.
    fn file_name(&self) -> String {
        format!("{}{}{ENDING}", self.family.prefix(), self.version)
    }
}

impl Family {
    /// The family of a hash that was written down.
    pub(super) fn of_hash(hash: [u8; 32]) -> Self {
        Self(hash)
    }

    /// The hash, as digits.
    pub(super) fn hex(&self) -> String {
        let mut text = String::with_capacity(65);
        self.0.iter().for_each(|byte| write!(text, "{byte:02x}").expect("strings take all"));
        text
    }

    fn prefix(&self) -> String {
        self.hex() + "-"
    }

    /// The version in the name of a file, if the file is of this family.
    fn version_of(&self, file_name: &str) -> Option<Version> {
        let version = file_name.strip_prefix(&self.prefix())?.strip_suffix(ENDING)?;
        let (major, minor) = version.split_once('.')?;
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// A file of the cache, as it is listed.
#[derive(Debug)]
pub struct CacheEntry {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// The kernel in it, or why it will not be used.
    pub kernel: Result<KeptKernel, Damage>,
}

/// What a sound file holds.
#[derive(Debug)]
pub struct KeptKernel {
    /// What people call it.
    pub name: String,
    /// The compiler that made it.
    pub version: Version,
    /// Its code.
    pub cubin: Cubin,
}

/// What [`Cache::clear`] removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Cleared {
    /// Kernels, damaged ones included.
    pub kernels: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// A folder of kernels. Threads may share it, and processes the folder.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// The very folder that was checked, whatever its path leads to later.
    handle: OwnedFd,
    /// Whether it was said that nothing can be kept.
    has_warned: AtomicBool,
}

impl Cache {
    /// Opens the folder of the settings, and makes it, closed to others, if it is not there.
    ///
    /// Errors: no folder, one that cannot be opened, or one that others own or may write.
    pub fn open(config: &Config) -> Result<Self, CacheError> {
        let usual = || config.user_cache.as_ref().map(|folder| folder.join("ringsmith"));
        let folder = config.cache_dir.clone().or_else(usual).ok_or(CacheError::NoFolder)?;
        Self::open_folder(folder, rustix::process::geteuid().as_raw())
    }

    fn open_folder(folder: PathBuf, uid: u32) -> Result<Self, CacheError> {
        let failed = |operation, source| CacheError::Folder { folder: folder.clone(), operation, source };
        match std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            Ok(()) => {}
            // Perhaps it is there and its parent is closed; opening it tells.
            Err(_) if folder.is_dir() => {}
            Err(source) => return Err(failed("make", source)),
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(&folder, flags, Mode::empty()).map_err(|e| failed("open", e.into()))?;
        let stat = rustix::fs::fstat(&handle).map_err(|e| failed("look at", e.into()))?;
        if stat.st_uid != uid {
            return Err(CacheError::Owner { folder, uid: stat.st_uid });
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(CacheError::Writable { folder, mode: stat.st_mode & 0o7777 });
        }
        Ok(Self { folder, handle, has_warned: AtomicBool::new(false) })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kernel of a key, if it is kept and sound. One that is not sound costs a warning.
    pub fn load(&self, key: &Key) -> Option<Cubin> {
        let name = key.file_name();
        let stored = match self.read(&name) {
            Ok(stored) if stored.key == key.digest() => Ok(stored),
            Ok(_) => Err(Damage::OtherKernel),
            Err(Damage::Unreadable(error)) if error.kind() == std::io::ErrorKind::NotFound => return None,
            Err(damage) => Err(damage),
        };
        stored.map(|stored| stored.cubin).map_err(|damage| self.refuse(&name, &damage)).ok()
    }

    /// The kernel of a family that the newest compiler made, for those who have none themselves.
    pub fn load_of_any_version(&self, family: &Family) -> Option<(Version, Cubin)> {
        let names = self.names().unwrap_or_default();
        let mut versions: Vec<_> = names.iter().filter_map(|name| family.version_of(name)).collect();
        versions.sort_unstable();
        versions.into_iter().rev().find_map(|version| Some((version, self.load(&family.key(version))?)))
    }

    /// Keeps a kernel, in place of a damaged one too. A folder that is read-only or full costs a
    /// warning, the first time.
    pub fn store(&self, key: &Key, name: &str, cubin: &Cubin) {
        let bytes = stored::write(&key.digest(), name, key.version, cubin);
        if let Err(error) = self.write(&key.file_name(), &bytes)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                target: "ringsmith::jit",
                "kernel cache {}: kernel {name} cannot be kept, nor will others be that fail so: {error}",
                self.folder.display()
            );
        }
    }

    /// Every kernel of the cache, read and checked, by file name.
    ///
    /// Errors: the folder cannot be listed.
    pub fn entries(&self) -> Result<Vec<CacheEntry>, CacheError> {
        let mut names: Vec<_> = self.names()?.into_iter().filter(|name| family_in(name).is_some()).collect();
        names.sort_unstable();
        let entry = |name: String| {
            let bytes = self.file_bytes(&name)?;
            let kernel = self.read(&name).and_then(|stored| {
                let Stored { key, name: called, version, cubin } = stored;
                let expected = family_in(&name).map(|family| family.key(version));
                match expected.filter(|expected| expected.digest() == key && expected.file_name() == name) {
                    Some(_) => Ok(KeptKernel { name: called, version, cubin }),
                    None => Err(Damage::OtherKernel),
                }
            });
            Some(CacheEntry { path: self.folder.join(&name), bytes, kernel })
        };
        // A file that was removed meanwhile is none.
        Ok(names.into_iter().filter_map(entry).collect())
    }

    /// Bytes of all files that are the cache's, unfinished ones included.
    ///
    /// Errors: the folder cannot be listed.
    pub fn size(&self) -> Result<u64, CacheError> {
        let ours = self.names()?.into_iter().filter(|name| is_ours(name));
        Ok(ours.filter_map(|name| self.file_bytes(&name)).sum())
    }

    /// Removes every file that is the cache's, and no other. Kernels that processes have loaded stay
    /// loaded.
    ///
    /// Errors: the folder cannot be listed, or a file of it not be removed.
    pub fn clear(&self) -> Result<Cleared, CacheError> {
        let mut cleared = Cleared::default();
        for name in self.names()?.into_iter().filter(|name| is_ours(name)) {
            let bytes = self.file_bytes(&name).unwrap_or(0);
            match rustix::fs::unlinkat(&self.handle, &name, AtFlags::empty()) {
                Ok(()) => {
                    cleared.kernels += u64::from(name.ends_with(ENDING));
                    cleared.bytes += bytes;
                }
                // Another process was faster.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.failed("remove files of", error)),
            }
        }
        Ok(cleared)
    }

    fn failed(&self, operation: &'static str, error: Errno) -> CacheError {
        CacheError::Folder { folder: self.folder.clone(), operation, source: error.into() }
    }

    fn refuse(&self, name: &str, damage: &Damage) {
        tracing::warn!(
            target: "ringsmith::jit",
            "kernel cache: {} is not used: {damage}",
            self.folder.join(name).display()
        );
    }

    /// Names of all files, in no order. Names that are no Unicode are not ours.
    fn names(&self) -> Result<Vec<String>, CacheError> {
        let list = || -> Result<Vec<String>, Errno> {
            let name = |name: &CStr| name.to_str().ok().map(str::to_owned);
            let entries = Dir::read_from(&self.handle)?;
            entries.filter_map(|entry| entry.map(|entry| name(entry.file_name())).transpose()).collect()
        };
        list().map_err(|error| self.failed("list", error))
    }

    fn file_bytes(&self, name: &str) -> Option<u64> {
        let stat = rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        u64::try_from(stat.st_size).ok()
    }

    fn read(&self, name: &str) -> Result<Stored, Damage> {
        // Does not wait for a writer of a pipe, and follows no link.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::LOOP) => return Err(Damage::NotAFile),
            Err(error) => return Err(Damage::Unreadable(error.into())),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| Damage::Unreadable(error.into()))?;
        check_file(&stat, rustix::process::geteuid().as_raw())?;
        let mut bytes = Vec::new();
        File::from(file).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        stored::read(&bytes)
    }

    /// Writes a file whole or not at all.
    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Processes of other hosts may share the folder and the number of this one.
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(std::io::Error::other)?;
        let (pid, next, random) =
            (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed), u64::from_ne_bytes(random));
        let unfinished = format!("{UNFINISHED}{pid}-{next}-{random:016x}");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.handle, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
        // Not forced to the disk: after a crash the checksum tells, and the kernel is made again.
        let written = File::from(file).write_all(bytes).and_then(|()| {
            rustix::fs::renameat(&self.handle, &unfinished, &self.handle, name).map_err(Into::into)
        });
        if written.is_err() {
            // What cannot be removed either, `clear` removes.
            let _ = rustix::fs::unlinkat(&self.handle, &unfinished, AtFlags::empty());
        }
        written
    }
}

/// Whether code that others may have written stands in a file.
fn check_file(stat: &Stat, uid: u32) -> Result<(), Damage> {
    let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        Err(Damage::NotAFile)
    } else if stat.st_uid != uid {
        Err(Damage::Owner { uid: stat.st_uid })
    } else if stat.st_mode & 0o022 != 0 {
        Err(Damage::Writable { mode: stat.st_mode & 0o7777 })
    } else if bytes > MAX_FILE_BYTES {
        Err(Damage::TooLarge { bytes })
    } else {
        Ok(())
    }
}

/// Whether a file is the cache's, by its name. Others that lie in the folder are left alone.
fn is_ours(name: &str) -> bool {
    name.starts_with(UNFINISHED) || family_in(name).is_some()
}

/// The family in the name of a file.
fn family_in(name: &str) -> Option<Family> {
    let (digits, version) = name.strip_suffix(ENDING)?.split_once('-')?;
    if digits.len() != 64 || version.is_empty() || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return None;
    }
    let mut family = [0; 32];
    for (byte, at) in family.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[at..at + 2], 16).ok()?;
    }
    Some(Family(family))
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
