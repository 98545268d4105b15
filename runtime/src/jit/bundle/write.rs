//! Writing a bundle: into a new folder beside the old one, which then takes its place. Who opens the folder
//! meanwhile finds the old bundle or the new one, and one that is cut short by a crash has no name yet.

use super::manifest::{Entry, Kind, Manifest, NAME, check_name, kernel_name};
use crate::jit::cache::Family;
use crate::jit::{Cubin, Version, options, stored};
use rustix::fs::{CWD, RenameFlags};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why a bundle is not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Something else has this name.
    #[error("{}: it is there and is no bundle; give a new folder, or remove it", .0.display())]
    Occupied(PathBuf),
    /// A folder or file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Failed {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What goes into a bundle. The same contents make the same bytes.
#[derive(Debug, Default)]
pub struct Contents {
    purposes: Vec<String>,
    files: BTreeMap<String, (Entry, Vec<u8>)>,
}

impl Contents {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says what the kernels are for, on one line.
    pub fn purpose(&mut self, text: &str) {
        self.purposes.push(text.split_whitespace().collect::<Vec<_>>().join(" "));
    }

    /// Kernels so far.
    pub fn kernels(&self) -> usize {
        self.files.values().filter(|(entry, _)| matches!(entry.kind, Kind::Kernel { .. })).count()
    }

    /// Files so far, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        (self.files.len(), self.files.values().map(|(entry, _)| entry.bytes).sum())
    }

    /// Puts a plan and the source that was generated from it in, with no kernel; gives the names that they have.
    ///
    /// Panics: `name` is no plain word.
    pub fn add_texts(&mut self, name: &str, plan_text: &str, source: &str) -> (String, String) {
        assert!(check_name(name).is_ok(), "{name:?}: kernels have plain names");
        (self.text(Kind::Plan, name, plan_text), self.text(Kind::Source, name, source))
    }

    /// Puts a kernel in, with the plan and the source that it was made from. Twice the same is once.
    ///
    /// Panics: `name` is no plain word.
    pub fn add(&mut self, name: &str, plan_text: &str, source: &str, cubin: &Cubin, version: Version) {
        let (plan, source_name) = self.add_texts(name, plan_text, source);
        let architecture = cubin.architecture();
        let family = Family::new(plan_text, source, &options(architecture), architecture);
        let bytes = stored::write(&family.key(version).digest(), name, version, cubin);
        let kind = Kind::Kernel { family, architecture, version, plan, source: source_name };
        self.put(kernel_name(&family, version), kind, bytes);
    }

    /// Keeps a text, under a name that follows from it.
    fn text(&mut self, kind: Kind, name: &str, text: &str) -> String {
        let hash = super::manifest::hex(&Sha256::digest(text)[..6]);
        let stem: String = name.chars().take(150).collect();
        let name = format!("{stem}-{hash}");
        self.put(name.clone(), kind, text.as_bytes().to_vec());
        name
    }

    fn put(&mut self, name: String, kind: Kind, bytes: Vec<u8>) {
        let hash = Sha256::digest(&bytes).into();
        let entry = Entry { hash, bytes: bytes.len() as u64, name, kind };
        self.files.insert(entry.path(), (entry, bytes));
    }

    /// Whether a bundle may be written here; and whether one is there.
    ///
    /// Errors: something else has its name.
    pub fn check_place(folder: &Path) -> Result<bool, WriteError> {
        match fs::symlink_metadata(folder) {
            Ok(_) if is_replaceable(folder) => Ok(true),
            Ok(_) => Err(WriteError::Occupied(folder.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(WriteError::Failed { path: folder.to_owned(), source }),
        }
    }

    /// Writes the folder, whole or not at all, in the place of a bundle that is there.
    ///
    /// Errors: something else has its name; a folder or file that cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), WriteError> {
        let failed = |path: &Path, source| WriteError::Failed { path: path.to_owned(), source };
        let is_there = Self::check_place(folder)?;
        // A link stays a link: the folder that it leads to is replaced.
        let target = if is_there {
            fs::canonicalize(folder).map_err(|e| failed(folder, e))?
        } else {
            folder.to_owned()
        };
        let mut name =
            target.file_name().ok_or_else(|| failed(folder, io::ErrorKind::InvalidInput.into()))?.to_owned();
        name.push(format!(".unfinished-{}", std::process::id()));
        let fresh = target.with_file_name(name);
        let written = self.write_into(&fresh).and_then(|()| {
            if !is_there {
                return fs::rename(&fresh, &target).map_err(|e| (target.clone(), e));
            }
            let swapped = rustix::fs::renameat_with(CWD, &fresh, CWD, &target, RenameFlags::EXCHANGE);
            swapped.map_err(|e| (target.clone(), e.into()))
        });
        // What is left there now: the old bundle, or what could not be finished.
        let removed = fs::remove_dir_all(&fresh);
        match written {
            Err((path, error)) => Err(failed(&path, error)),
            Ok(()) if is_there => removed.map_err(|e| failed(&fresh, e)),
            Ok(()) => Ok(()),
        }
    }

    fn write_into(&self, folder: &Path) -> Result<(), (PathBuf, io::Error)> {
        let make = |path: &Path| DirBuilder::new().mode(0o755).create(path).map_err(|e| (path.to_owned(), e));
        make(folder)?;
        for part in ["plans", "sources", "kernels"] {
            make(&folder.join(part))?;
        }
        let write = |path: &str, bytes: &[u8]| {
            let path = folder.join(path);
            let written = OpenOptions::new().write(true).create_new(true).mode(0o644).open(&path).and_then(
                |mut file| {
                    file.write_all(bytes)?;
                    file.sync_all()
                },
            );
            written.map_err(|e| (path, e))
        };
        for (path, (_, bytes)) in &self.files {
            write(path, bytes)?;
        }
        let entries = self.files.values().map(|(entry, _)| entry.clone()).collect();
        write(NAME, Manifest::new(self.purposes.clone(), entries).write().as_bytes())
    }
}

/// Whether what is there is a bundle of any format, or an empty folder.
fn is_replaceable(folder: &Path) -> bool {
    let begins = |bytes: Vec<u8>| bytes.starts_with(b"ringsmith bundle ");
    fs::read(folder.join(NAME)).is_ok_and(begins)
        || fs::read_dir(folder).is_ok_and(|mut files| files.next().is_none())
}
