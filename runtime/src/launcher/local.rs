//! How ranks that a launcher started on one host find rank 0 without a network address: a Unix
//! socket in a folder that belongs to the user and is closed to others, named after the job.
//!
//! Rank 0 serves its id there until everybody has joined. A socket instead of a file: it dies with
//! its process, so a leftover of an earlier job leads nobody astray. A folder that somebody else
//! owns or may write is refused.

use crate::config::Config;
use crate::error::{Error, Result};
use crate::shown::shown;
use crate::unique_id::{UNIQUE_ID_BYTES, UniqueId};
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest path of a Unix socket on Linux.
const MAX_PATH_BYTES: usize = 107;
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// How many communicators of all ranks this process has asked for. Part of the place's name, so that
/// a quick rank that makes its second does not get the id of the first.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Where the ranks of one job on one host meet.
pub(super) struct Place {
    path: PathBuf,
    world: u32,
}

impl Place {
    /// The place of this process's next communicator. Makes the folder if need be.
    pub(super) fn new(job: &str, world: u32, config: &Config) -> Result<Self> {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let uid = rustix::process::geteuid().as_raw();
        let folder = config.run_dir.clone().unwrap_or_else(|| format!("/tmp/ringsmith-{uid}").into());
        // What somebody has chosen is a setting that cannot be used; what is found in its place without is not.
        let refuse = |path: PathBuf, detail: String, source| match config.run_dir {
            Some(_) => Error::Argument {
                operation: "RINGSMITH_RUN_DIR",
                detail: format!("{}: {detail}", shown(&path.to_string_lossy())),
            },
            None => Error::File { path, detail, source },
        };
        let digest = Sha256::digest(format!("{job}\0{call}"));
        let name: String = digest[..12].iter().map(|byte| format!("{byte:02x}")).collect();
        let path = folder.join(name);
        let len = path.as_os_str().len();
        if len > MAX_PATH_BYTES {
            let detail = format!(
                "a socket's path in it has {len} bytes, at most {MAX_PATH_BYTES} are possible; choose a shorter one"
            );
            return Err(refuse(folder, detail, None));
        }
        prepare_folder(&folder, uid).map_err(|(detail, source)| refuse(folder, detail, source))?;
        Ok(Self { path, world })
    }

    /// Rank 0: gives the id to whoever asks, until the result is dropped.
    pub(super) fn serve(self, id: &UniqueId) -> Result<Served> {
        let describe = |doing: &str, source: io::Error| Error::File {
            path: self.path.clone(),
            detail: format!("{doing}: {source}"),
            source: Some(source),
        };
        let listener = match UnixListener::bind(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(&self.path).is_ok() {
                    let detail =
                        "another rank 0 of a job of this name runs on this host; each job needs a name of \
                                  its own, or an address (RINGSMITH_COMM_ID)"
                            .to_owned();
                    return Err(Error::File { path: self.path, detail, source: None });
                }
                // Left by a process that was killed.
                std::fs::remove_file(&self.path).map_err(|e| describe("cannot remove a dead socket", e))?;
                UnixListener::bind(&self.path)
            }
            outcome => outcome,
        };
        let listener = listener.map_err(|e| describe("cannot listen", e))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, bytes) = (stop.clone(), *id.as_bytes());
        let thread = std::thread::Builder::new()
            .name("ringsmith-meet".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stopped.load(Ordering::Acquire) {
                        return;
                    }
                    match stream {
                        // Fits the socket's buffer, so a reader that sleeps delays nobody.
                        Ok(mut stream) => drop(stream.write_all(&bytes)),
                        // Out of descriptors, most likely: those who ask try again.
                        Err(_) => std::thread::sleep(LONGEST_PAUSE),
                    }
                }
            })
            .map_err(|source| Error::Thread { name: "meeting", source })?;
        Ok(Served { path: self.path, stop, thread: Some(thread) })
    }

    /// Another rank: asks rank 0 for the id.
    pub(super) fn ask(self, rank: u32, config: &Config) -> Result<UniqueId> {
        let started = Instant::now();
        let deadline = started + config.init_timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let source = match self.ask_once(deadline) {
                Ok(bytes) => return Ok(UniqueId::from_bytes(&bytes)?),
                Err(error) => error,
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (world, path, waited) = (self.world, self.path, started.elapsed());
                return Err(Error::LocalRoot { rank, world, path, waited, source });
            }
            std::thread::sleep(pause.min(left));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    fn ask_once(&self, deadline: Instant) -> io::Result<[u8; UNIQUE_ID_BYTES]> {
        let mut stream = UnixStream::connect(&self.path)?;
        let left = deadline.saturating_duration_since(Instant::now());
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let mut bytes = [0; UNIQUE_ID_BYTES];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// A place that is being served.
pub(super) struct Served {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the thread from its accept. If that fails the thread stays in it, and is not waited for.
        let woken = UnixStream::connect(&self.path).is_ok();
        let _ = std::fs::remove_file(&self.path);
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Makes the folder, and refuses one that somebody else could have prepared.
///
/// Errors: what is wrong, and what the system said if it was asked.
fn prepare_folder(folder: &Path, uid: u32) -> Result<(), (String, Option<io::Error>)> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => {
            return Err((format!("cannot make the folder where ranks meet: {error}"), Some(error)));
        }
    }
    let meta = std::fs::symlink_metadata(folder)
        .map_err(|error| (format!("cannot look at the folder where ranks meet: {error}"), Some(error)))?;
    let remedy = "remove it, or set RINGSMITH_RUN_DIR to a folder of your own";
    if !meta.is_dir() {
        return Err((format!("the place where ranks meet must be a folder; {remedy}"), None));
    }
    if meta.uid() != uid {
        return Err((format!("the folder where ranks meet belongs to user {}; {remedy}", meta.uid()), None));
    }
    if meta.mode() & 0o077 != 0 {
        let mode = meta.mode() & 0o777;
        return Err((
            format!("the folder where ranks meet is open to others (mode {mode:o}); chmod 700, or {remedy}"),
            None,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that is removed again.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("ringsmith-test-{name}-{}", std::process::id()));
            std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a folder for the test");
            Self(path)
        }

        fn config(&self) -> Config {
            let run_dir = self.0.to_str().expect("a plain path").to_owned();
            let timeout = ("RINGSMITH_INIT_TIMEOUT_S".to_owned(), "20".to_owned());
            Config::from_vars([("RINGSMITH_RUN_DIR".to_owned(), run_dir), timeout]).expect("settings").0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn place(folder: &Folder, name: &str) -> Place {
        Place { path: folder.0.join(name), world: 2 }
    }

    #[test]
    fn the_id_is_passed_on_and_the_place_cleaned_up() {
        let folder = Folder::new("pass");
        let config = folder.config();
        let (id, _root) = UniqueId::create(&config).expect("a root");
        // What a killed job leaves behind.
        drop(UnixListener::bind(folder.0.join("a")).expect("a socket"));
        let asker = {
            let (place, config) = (place(&folder, "a"), config.clone());
            std::thread::spawn(move || place.ask(1, &config).expect("rank 0 comes"))
        };
        let served = place(&folder, "a").serve(&id).expect("a dead socket is no hindrance");
        assert_eq!(asker.join().expect("no panic"), id);
        let error = place(&folder, "a").serve(&id).err().expect("the place is taken");
        assert!(error.to_string().contains("another rank 0"), "{error}");
        drop(served);
        assert_eq!(std::fs::read_dir(&folder.0).expect("the folder").count(), 0);
    }

    #[test]
    fn folders_of_others_are_refused() {
        let folder = Folder::new("trust");
        let uid = rustix::process::geteuid().as_raw();
        prepare_folder(&folder.0, uid).expect("a folder of our own");
        let theirs = prepare_folder(&folder.0, uid + 1).expect_err("it belongs to another");
        assert!(theirs.0.contains("belongs to user"), "{theirs:?}");
        std::fs::set_permissions(&folder.0, std::fs::Permissions::from_mode(0o770)).expect("our folder");
        let open = prepare_folder(&folder.0, uid).expect_err("it is open");
        assert!(open.0.contains("mode 770"), "{open:?}");
        let link = folder.0.join("link");
        std::os::unix::fs::symlink("/tmp", &link).expect("a link");
        assert!(prepare_folder(&link, uid).is_err());
        assert!(prepare_folder(&folder.0.join("no/such"), uid).is_err());
    }

    #[test]
    fn a_folder_that_was_chosen_and_cannot_serve_is_a_bad_setting() {
        let folder = Folder::new("chosen");
        let file = folder.0.join("file");
        std::fs::write(&file, "").expect("a file");
        let open = folder.0.join("open");
        std::fs::DirBuilder::new().mode(0o755).create(&open).expect("a folder");
        let long = folder.0.join("x".repeat(100));
        for (path, said) in [(&file, "must be a folder"), (&open, "mode 755"), (&long, "at most 107")] {
            let mut config = Config::default();
            config.run_dir = Some(path.clone());
            let error = Place::new("job", 2, &config).err().expect("it cannot serve");
            let text = error.to_string();
            assert!(text.starts_with("RINGSMITH_RUN_DIR: ") && text.contains(said), "{text}");
            assert_eq!(error.exit_status().code(), 2, "{text}");
        }
        assert!(!long.exists(), "nothing is left behind");
    }
}
