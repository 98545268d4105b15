//! Files that are written whole or not at all: into a new file beside the old one, which then takes its place.
//!
//! A full disk, or a program that is killed, leaves the old file as it was. What is no ordinary file (a
//! device, a pipe) has nothing to be kept and is written as it is; a pipe that nobody reads is refused.

use crate::input::name_of;
use crate::outcome::{Failure, Result};
use ringsmith_runtime::files;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Refuses files that one command cannot write beside its table on standard output, before it writes any:
/// `-`, one file under two flags, and what it `reads`.
pub(crate) fn apart<'a>(
    files: &[(&str, Option<&Path>)],
    reads: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    let reads: Vec<PathBuf> = reads.into_iter().filter(|path| path.is_file()).map(place).collect();
    let mut places: Vec<(&str, PathBuf)> = Vec::new();
    for (flag, path) in files.iter().filter_map(|(flag, path)| Some((flag, (*path)?))) {
        if path == Path::new("-") {
            return Err(Failure::unusable(format_args!(
                "{flag} -: standard output has what the command prints; name a file (./- is one of that name)"
            )));
        }
        // What is no ordinary file, /dev/null say, can be written twice.
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            continue;
        }
        let place = place(path);
        if let Some((other, _)) = places.iter().find(|(_, earlier)| *earlier == place) {
            return Err(Failure::unusable(format_args!(
                "{other} and {flag} name one file, {}: give each its own",
                name_of(path)
            )));
        }
        if reads.contains(&place) {
            return Err(Failure::unusable(format_args!(
                "{flag} {}: this command reads that file, and would lose it; name another",
                name_of(path)
            )));
        }
        places.push((flag, place));
    }
    Ok(())
}

/// Where a file is or will be, whatever names lead there.
fn place(path: &Path) -> PathBuf {
    let in_its_folder = || {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?;
        Some(folder.join(path.file_name()?))
    };
    fs::canonicalize(path).ok().or_else(in_its_folder).unwrap_or_else(|| path.to_owned())
}

/// Writes a file that the user named.
///
/// Errors: a file that cannot be written, by its name.
pub(crate) fn whole(path: &Path, text: &[u8]) -> Result<()> {
    write(path, text).map_err(|e| Failure::unusable(format_args!("cannot write {}: {e}", name_of(path))))
}

/// Puts a text in a file's place, with the file's permissions if it was there.
pub(crate) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    // The name of a pipe without a place in a folder, as of process substitution, leads to no other.
    if fs::metadata(path).is_ok_and(|old| !old.is_file()) {
        return files::to_write(&mut OpenOptions::new(), path)?.write_all(text);
    }
    // A link stays a link: the file that it leads to is replaced.
    let (path, old) = match fs::canonicalize(path) {
        Ok(path) => (path.clone(), Some(fs::metadata(&path)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_owned(), None),
        Err(error) => return Err(error),
    };
    let permissions = old.map(|old| old.permissions());
    if permissions.as_ref().is_some_and(fs::Permissions::readonly) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is read-only"));
    }
    let (temporary, mut file) = beside(&path)?;
    let written = permissions
        .map_or(Ok(()), |permissions| file.set_permissions(permissions))
        .and_then(|()| file.write_all(text))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A new file in the same folder, under a name that nobody else uses.
fn beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let mut name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    Ok((temporary, file))
}
