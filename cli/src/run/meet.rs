//! A rank that a launcher or the user has started: where it meets the others.
//!
//! By hand there are two ways: an address where rank 0 listens, and a file through which rank 0 passes
//! the job's id. The file holds the job's secret: only its owner may read it, it is locked while rank 0
//! waits, so that another job cannot take it over, and it is gone when the ranks have met.

use super::job::Job;
use super::rank::failure;
use super::with_others;
use crate::input::name_of;
use crate::outcome::{Failure, Result};
use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::config::grammar::HostPort;
use ringsmith_runtime::error::{Error, Seconds};
use ringsmith_runtime::launcher::{Launch, Launcher, Meeting};
use ringsmith_runtime::unique_id::{UNIQUE_ID_BYTES, UniqueId};
use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How often a rank looks for the id's file. Ours: unnoticeable to people, and to a file server.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long after a foreign root has answered another id may come. Ours: rank 0 listens, then writes its file.
const FOREIGN_PATIENCE: Duration = Duration::from_secs(2);

/// Is a rank that a launcher started.
pub(super) fn launched(job: &Job<'_>, launch: &Launch) -> Result {
    let bootstrap = launch.join(job.config()).map_err(failure)?;
    with_others(job, bootstrap)
}

/// Is the rank that the command line says.
pub(super) fn by_hand(job: &Job<'_>, rank: u32, world: u32) -> Result {
    let config = job.config();
    let (_, address) = job.arguments().roots()?;
    let file = job.arguments().id_file.as_deref();
    let meeting = match (address, file) {
        (Some(_), Some(_)) => {
            return Err(Failure::unusable("--root HOST:PORT and --id-file are two ways to meet; give one"));
        }
        (Some(address), None) => {
            let refused = |detail| Failure::unusable(format_args!("--root {address}: {detail}"));
            let address = HostPort::parse(address).map_err(refused)?;
            Meeting::Address { address, setting: "--root", job: String::new() }
        }
        (None, Some(path)) if rank == 0 => return first(job, world, path),
        (None, Some(path)) => return through_file(job, rank, world, path),
        (None, None) => match (config.id, config.comm_id.clone()) {
            (Some(id), _) => Meeting::Id(id),
            (None, Some(address)) => {
                Meeting::Address { address, setting: "RINGSMITH_COMM_ID", job: String::new() }
            }
            (None, None) => {
                return Err(Failure::unusable(
                    "--rank and --world need a place to meet: --root HOST:PORT where rank 0 runs, or --id-file FILE that all hosts see",
                ));
            }
        },
    };
    launched(job, &Launch { launcher: Launcher::Ringsmith, rank, world, local_rank: None, meeting })
}

/// Rank 0 of a job that meets through a file.
fn first(job: &Job<'_>, world: u32, path: &Path) -> Result {
    let earlier = check_free(path)?;
    let (id, root) = UniqueId::create(job.config()).map_err(failure)?;
    let published = Published::new(path, &id, earlier)
        .map_err(|e| Failure::unusable(format_args!("--id-file {}: cannot write it: {e}", name_of(path))))?;
    let bootstrap = Bootstrap::connect(&id, 0, world, job.config()).map_err(failure)?.keep(root);
    drop(published);
    with_others(job, bootstrap)
}

/// Of a file that another rank 0 has put its id into.
const TAKEN: &str = "another job meets through this file now; name another, or end that job";

/// Whether rank 0 may write its id there. Returns the file of an earlier job, locked.
///
/// Errors: a file that is there and holds something else than the id of an earlier job, or the id of one that
/// still meets.
fn check_free(path: &Path) -> Result<Option<File>> {
    let name = name_of(path);
    match open_id(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() != io::ErrorKind::InvalidData || !path.is_file() => {
            Err(Failure::unusable(format_args!("--id-file {name}: {error}")))
        }
        Ok((file, bytes)) if UniqueId::from_bytes(&bytes).is_ok() => match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                Err(Failure::unusable(format_args!("--id-file {name}: {TAKEN}")))
            }
            // A file system without locks cannot tell.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
        },
        Ok(_) | Err(_) => Err(Failure::unusable(format_args!(
            "--id-file {name}: the file is there and holds no id of an earlier job; it is left as it is: name another"
        ))),
    }
}

/// An id in a file, until dropped.
struct Published {
    path: PathBuf,
    bytes: Vec<u8>,
    /// Holds the lock.
    _file: File,
}

impl Published {
    /// Puts the id there whole: a reader sees all of it or nothing. Replaces what an earlier job left.
    ///
    /// Errors: a file that has come there meanwhile.
    fn new(path: &Path, id: &UniqueId, earlier: Option<File>) -> io::Result<Self> {
        let mut name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary).and_then(
            |mut file| {
                // Where there are no locks, jobs are told apart by their ids alone.
                let _ = file.try_lock();
                file.write_all(id.as_bytes())?;
                file.sync_all()?;
                put(&temporary, path, earlier.as_ref())?;
                Ok(file)
            },
        );
        // It has moved, or is left over: the first error is the one to report.
        let _ = fs::remove_file(&temporary);
        Ok(Self { path: path.to_owned(), bytes: id.as_bytes().to_vec(), _file: written? })
    }
}

/// Puts a file under its name, in the place of the `earlier` one alone.
fn put(temporary: &Path, path: &Path, earlier: Option<&File>) -> io::Result<()> {
    let taken = || Err(io::Error::new(io::ErrorKind::AlreadyExists, TAKEN));
    match earlier {
        None => match fs::hard_link(temporary, path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken(),
            // A file system without links.
            Err(_) => fs::rename(temporary, path),
        },
        Some(earlier) => {
            let (found, earlier) = (fs::metadata(path)?, earlier.metadata()?);
            if (found.dev(), found.ino()) != (earlier.dev(), earlier.ino()) {
                return taken();
            }
            fs::rename(temporary, path)
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // What somebody else has put there since is not ours to remove; what has been taken away is gone.
        if read_id(&self.path).is_ok_and(|found| found == self.bytes) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Joins as a rank that finds the job's id in a file. A file may be there from an earlier job: an id that
/// leads nowhere is tried once, and the next one that comes after it.
fn through_file(job: &Job<'_>, rank: u32, world: u32, path: &Path) -> Result {
    let mut deadline = Instant::now() + job.config().init_timeout;
    let mut config = job.config().clone();
    let mut tried = None;
    loop {
        let id = wait_for_id(job, rank, path, deadline, tried.as_ref())?;
        config.init_timeout = deadline.saturating_duration_since(Instant::now());
        match Bootstrap::connect(&id, rank, world, &config) {
            Err(error @ Error::Connect { .. }) => tried = Some((id, error)),
            Err(error @ Error::ForeignRoot { .. }) => {
                // Another secret will not become the right one, unless it is rank 0's that is about to write.
                deadline = deadline.min(Instant::now() + FOREIGN_PATIENCE);
                tried = Some((id, error));
            }
            bootstrap => return with_others(job, bootstrap.map_err(failure)?),
        }
    }
}

/// Waits for rank 0's file, with another id than one that has been tried in vain.
///
/// Errors: none within the deadline; a file that holds no id.
fn wait_for_id(
    job: &Job<'_>,
    rank: u32,
    path: &Path,
    deadline: Instant,
    tried: Option<&(UniqueId, Error)>,
) -> Result<UniqueId> {
    let name = name_of(path);
    loop {
        match read_id(path) {
            Ok(bytes) => {
                let id = UniqueId::from_bytes(&bytes)
                    .map_err(|e| Failure::unusable(format_args!("--id-file {name}: {e}")))?;
                if tried.is_none_or(|(earlier, _)| id != *earlier) {
                    return Ok(id);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => {
                return Err(Failure::unusable(format_args!("--id-file {name}: cannot use it: {error}")));
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Failure::world(match tried {
                None => format!(
                    "rank {rank}: rank 0 has not written --id-file {name} within {}; it was not started, or sees another file system",
                    Seconds(job.config().init_timeout)
                ),
                Some((_, error)) => format!(
                    "rank {rank}: the id in --id-file {name} leads to no root of this job, and rank 0 has written no other: {}",
                    error.said_by(rank)
                ),
            }));
        }
        thread::sleep(LOOK_EVERY.min(left));
    }
}

/// Errors: as [`open_id`].
fn read_id(path: &Path) -> io::Result<Vec<u8>> {
    open_id(path).map(|(_, bytes)| bytes)
}

/// A file and the id in it.
///
/// Errors: what is no file, or is not of an id's length.
fn open_id(path: &Path) -> io::Result<(File, Vec<u8>)> {
    // A pipe that nobody writes to must not hold the rank for ever.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    let refused = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "it is a folder" } else { "it is no ordinary file" };
        return refused(format!("{what}, and an id is a file of {UNIQUE_ID_BYTES} bytes"));
    }
    let len = metadata.len();
    if len != UNIQUE_ID_BYTES as u64 {
        return refused(format!("it is {len} bytes long, and an id has {UNIQUE_ID_BYTES}"));
    }
    let mut bytes = Vec::new();
    (&file).take(UNIQUE_ID_BYTES as u64).read_to_end(&mut bytes)?;
    Ok((file, bytes))
}
