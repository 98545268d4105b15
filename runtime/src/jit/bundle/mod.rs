//! Bundles: kernels that were compiled elsewhere, with the plans and sources that they were made from.
//!
//! A folder that is written whole or not at all ([`Contents::write`]) and never changed:
//!
//! | file | holds |
//! | --- | --- |
//! | `manifest` | what is in the folder, with the hash of every file; see [`manifest`] |
//! | `plans/NAME.plan` | the canonical text of a kernel plan |
//! | `sources/NAME.cu` | what was generated from it |
//! | `kernels/HASH-VERSION.kernel` | machine code for one architecture, as the cache keeps it |
//!
//! [`Bundle::open`] checks the manifest and every kernel against it, so that what is damaged is found at
//! initialisation and not at some call; [`Bundle::check`] also reads plans and sources and sees that the
//! kernels' names follow from them. Nothing here needs NVRTC, a driver or a GPU. A bundle is not searched
//! for: whoever names one trusts it, so it may belong to anybody, but not be writable by everybody.

mod check;
pub mod manifest;
mod write;

pub use check::{Checked, CheckedKernel, CheckedText, TextKind};
pub use write::{Contents, WriteError};

use super::cache::Family;
use super::stored::{self, Damage, MAX_FILE_BYTES};
use super::{Architecture, Cubin, Version};
use manifest::{Entry, FORMAT, Kind, Manifest, NAME};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Why a bundle is refused: the folder, the file in it, where in the file, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleError {
    /// The folder, as it was named.
    pub bundle: PathBuf,
    /// The file below it; empty for the folder itself.
    pub file: String,
    /// The byte of the file from which on it is wrong, where that is known.
    pub offset: Option<u64>,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A file that cannot be read, with the reason.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// Not a regular file, or no folder.
    #[error("it is no {0}")]
    Kind(&'static str),
    /// Everybody may write it.
    #[error("everybody may write it (mode {0:o}); chmod o-w it")]
    Writable(u32),
    /// Its first line is another.
    #[error("it does not begin as the manifest of a bundle does, so this is none of Ringsmith")]
    Foreign,
    /// A format that this version does not read.
    #[error("it has format {0}, and this version of Ringsmith reads format {FORMAT}")]
    Format(u64),
    /// Made by a Ringsmith that generates other kernels.
    #[error("it was made by Ringsmith {made_by}, whose kernels are not those of this one ({own})")]
    Generator {
        /// What made it.
        made_by: String,
        /// What reads it.
        own: String,
    },
    /// It ends too early.
    #[error("it ends here, and should have {0}")]
    CutShort(String),
    /// It has more bytes than it should.
    #[error("it should end here, and has {0} bytes")]
    TooLong(u64),
    /// Its bytes are not those that were written.
    #[error("its contents do not match their checksum")]
    Checksum,
    /// A line of the manifest that says nothing that is known.
    #[error("line {line}: {reason}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// More than any bundle has.
    #[error("it has {bytes} bytes; at most {most} are read")]
    TooLarge {
        /// What it has.
        bytes: u64,
        /// What is read.
        most: u64,
    },
    /// The file of a kernel is damaged in a way that its hash does not tell.
    #[error("{0}")]
    Kernel(String),
    /// A kernel that was not made from the plan and source that it names.
    #[error("it was not made from {plan} and {source_file}")]
    OtherKernel {
        /// The plan.
        plan: String,
        /// The source.
        source_file: String,
    },
    /// A text that is none.
    #[error("it is no UTF-8")]
    Encoding,
    /// A plan that cannot be read or proved.
    #[error("{0}")]
    Plan(String),
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bundle {}", self.bundle.display())?;
        if !self.file.is_empty() {
            write!(f, ": {}", self.file)?;
        }
        if let Some(offset) = self.offset {
            write!(f, ", byte {offset}")?;
        }
        let remedy = "copy it again or compile it anew (ringsmith compile)";
        write!(f, ": {}; {remedy}", self.fault)
    }
}

impl std::error::Error for BundleError {}

/// A bundle whose manifest and kernels are sound.
#[derive(Debug)]
pub struct Bundle {
    folder: PathBuf,
    /// The very folder that was checked, whatever its path leads to later.
    handle: OwnedFd,
    manifest: Manifest,
    /// The newest compiler's kernel of each family, as a place in the manifest.
    kernels: BTreeMap<Family, usize>,
}

impl Bundle {
    /// Opens a folder: reads its manifest, and checks every kernel that it lists.
    ///
    /// Errors: the first thing that is wrong with it.
    pub fn open(folder: &Path) -> Result<Self, BundleError> {
        let bundle = Self::open_manifest(folder)?;
        bundle.manifest.check_generator().map_err(|fault| bundle.refuse(NAME, Some(0), fault))?;
        for entry in bundle.manifest.kernels() {
            bundle.kernel_of(entry)?;
        }
        Ok(bundle)
    }

    /// Opens a folder and reads its manifest, whoever made it.
    fn open_manifest(folder: &Path) -> Result<Self, BundleError> {
        let refuse = |file: &str, offset, fault| BundleError {
            bundle: folder.to_owned(),
            file: file.to_owned(),
            offset,
            fault,
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(folder, flags, Mode::empty()).map_err(|error| match error {
            Errno::NOTDIR => refuse("", None, Fault::Kind("folder")),
            error => refuse("", None, unreadable(&error.into())),
        })?;
        let stat = rustix::fs::fstat(&handle).map_err(|e| refuse("", None, unreadable(&e.into())))?;
        check_mode(stat.st_mode).map_err(|fault| refuse("", None, fault))?;
        let bytes = read_file(&handle, NAME, manifest::MAX_BYTES).map_err(|f| refuse(NAME, None, f))?;
        let manifest = Manifest::read(&bytes).map_err(|(at, fault)| refuse(NAME, Some(at), fault))?;
        let mut kernels: BTreeMap<Family, usize> = BTreeMap::new();
        for (place, entry) in manifest.entries.iter().enumerate() {
            let Kind::Kernel { family, version, .. } = &entry.kind else { continue };
            let known = kernels.get(family).map(|place| &manifest.entries[*place]);
            let is_newer = known.is_none_or(|known| match &known.kind {
                Kind::Kernel { version: other, .. } => version > other,
                Kind::Plan | Kind::Source => true,
            });
            if is_newer {
                kernels.insert(*family, place);
            }
        }
        Ok(Self { folder: folder.to_owned(), handle, manifest, kernels })
    }

    /// The folder, as it was named.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is in it.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The hash of its manifest, and so of all that is in it: what ranks compare.
    pub fn digest(&self) -> &str {
        self.manifest.digest()
    }

    /// Architectures that it has kernels for, ascending.
    pub fn architectures(&self) -> Vec<Architecture> {
        let of = |entry: &Entry| match &entry.kind {
            Kind::Kernel { architecture, .. } => Some(*architecture),
            Kind::Plan | Kind::Source => None,
        };
        let all: std::collections::BTreeSet<_> = self.manifest.kernels().filter_map(of).collect();
        all.into_iter().collect()
    }

    /// The kernel of a family, with the version of the compiler that made it; `None` if it is not there.
    ///
    /// Errors: its file is no longer as it was when the bundle was opened.
    pub fn load(&self, family: &Family) -> Result<Option<(Version, Cubin)>, BundleError> {
        let Some(place) = self.kernels.get(family) else { return Ok(None) };
        let (_, version, cubin) = self.kernel_of(&self.manifest.entries[*place])?;
        Ok(Some((version, cubin)))
    }

    fn refuse(&self, file: &str, offset: Option<u64>, fault: Fault) -> BundleError {
        BundleError { bundle: self.folder.clone(), file: file.to_owned(), offset, fault }
    }

    /// The bytes of a file, which are those that the manifest means.
    fn bytes_of(&self, entry: &Entry) -> Result<Vec<u8>, BundleError> {
        let path = entry.path();
        let refuse = |offset, fault| self.refuse(&path, offset, fault);
        let bytes = read_file(&self.handle, &path, MAX_FILE_BYTES).map_err(|fault| refuse(None, fault))?;
        let have = bytes.len() as u64;
        if have < entry.bytes {
            return Err(refuse(Some(have), Fault::CutShort(format!("{} bytes", entry.bytes))));
        }
        if have > entry.bytes {
            return Err(refuse(Some(entry.bytes), Fault::TooLong(have)));
        }
        if Sha256::digest(&bytes)[..] != entry.hash {
            return Err(refuse(None, Fault::Checksum));
        }
        Ok(bytes)
    }

    /// The kernel of an entry, with its name.
    fn kernel_of(&self, entry: &Entry) -> Result<(String, Version, Cubin), BundleError> {
        let bytes = self.bytes_of(entry)?;
        let refuse = |fault| self.refuse(&entry.path(), None, fault);
        let Kind::Kernel { family, architecture, version, .. } = &entry.kind else {
            return Err(refuse(Fault::Kernel("it is listed as something else".to_owned())));
        };
        let kept = stored::read(&bytes).map_err(|damage| refuse(Fault::Kernel(damage.to_string())))?;
        let is_meant = kept.key == family.key(*version).digest()
            && kept.version == *version
            && kept.cubin.architecture() == *architecture;
        if !is_meant {
            return Err(refuse(Fault::Kernel(Damage::OtherKernel.to_string())));
        }
        Ok((kept.name, kept.version, kept.cubin))
    }
}

fn unreadable(error: &std::io::Error) -> Fault {
    Fault::Unreadable(error.to_string())
}

/// Refuses what everybody may write: machine code that anybody could have written is not run.
fn check_mode(mode: u32) -> Result<(), Fault> {
    if mode & 0o002 == 0 { Ok(()) } else { Err(Fault::Writable(mode & 0o7777)) }
}

/// Reads a file of a folder, up to a bound.
fn read_file(folder: &OwnedFd, path: &str, most: u64) -> Result<Vec<u8>, Fault> {
    // Does not wait for a writer of a pipe.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, path, flags, Mode::empty()).map_err(|e| unreadable(&e.into()))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| unreadable(&e.into()))?;
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(Fault::Kind("regular file"));
    }
    check_mode(stat.st_mode)?;
    let bytes = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
    if bytes > most {
        return Err(Fault::TooLarge { bytes, most });
    }
    let mut read = Vec::new();
    // It may grow while it is read.
    File::from(file).take(most + 1).read_to_end(&mut read).map_err(|error| unreadable(&error))?;
    if read.len() as u64 > most {
        return Err(Fault::TooLarge { bytes: read.len() as u64, most });
    }
    Ok(read)
}

#[cfg(test)]
mod tests;
