//! The numbered example programs as real processes: what they print, compute and refuse.
//!
//! Each program is built once by cargo, which does nothing where it is up to date. Every job has a
//! deadline, after which it is killed with all its ranks and the test fails.

mod average;
mod hello;
mod hostile;
mod numbers;
mod shards;

use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Ours: many times what the slowest takes on two busy cores.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(5);

/// The folder of the programs, built in the profile of this test.
fn programs() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let own = std::env::current_exe().expect("this program has a path");
        let profile = own.parent().and_then(Path::parent).expect("a test lies in PROFILE/deps");
        let target = profile.parent().expect("a profile lies in the target folder");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "--package", "ringsmith", "--examples"]);
        if profile.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().expect("cargo can be started").success(), "the examples are built");
        profile.join("examples")
    })
}

/// A program, and none of the variables that this test's environment may hold.
fn program(name: &str) -> Command {
    let mut command = Command::new(programs().join(name));
    let ours = ["RINGSMITH_", "NCCL_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"];
    for (name, _) in std::env::vars_os() {
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env("RINGSMITH_SOCKET_IFNAME", "=lo");
    command
}

/// A job that has ended.
struct Done {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Done {
    #[track_caller]
    fn well(self) -> Self {
        assert_eq!(self.status, Some(0), "stdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// It ended with this status, and every rank has said all the words in one line.
    #[track_caller]
    fn refused_on(&self, ranks: u32, status: i32, words: &[&str]) {
        assert_eq!(self.status, Some(status), "{words:?}\nstderr:\n{}", self.stderr);
        for rank in 0..ranks {
            let told = format!("rank {rank} stops: ");
            let line = self.stderr.lines().find(|line| line.contains(&told));
            let line = line.unwrap_or_else(|| panic!("rank {rank} says nothing:\n{}", self.stderr));
            for word in words {
                assert!(line.contains(word), "{line}\nlacks {word}");
            }
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }
}

/// Runs a program to its end.
fn run(command: &mut Command) -> Done {
    let mut done = run_all([command]);
    done.pop().expect("one was started")
}

/// Runs programs at once, to their ends.
fn run_all<'a>(commands: impl IntoIterator<Item = &'a mut Command>) -> Vec<Done> {
    let jobs: Vec<Job> = commands.into_iter().map(Job::start).collect();
    let deadline = Instant::now() + DEADLINE;
    jobs.into_iter().map(|job| job.end(deadline)).collect()
}

/// A process and what it writes. It and its children die with this value.
struct Job {
    child: Child,
    stdout: Option<thread::JoinHandle<String>>,
    stderr: Option<thread::JoinHandle<String>>,
}

impl Job {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("an example can be started");
        let stdout = collect(child.stdout.take().expect("it is piped"));
        let stderr = collect(child.stderr.take().expect("it is piped"));
        Self { child, stdout: Some(stdout), stderr: Some(stderr) }
    }

    fn end(mut self, deadline: Instant) -> Done {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                break status;
            }
            assert!(Instant::now() < deadline, "the job did not end within {} s", DEADLINE.as_secs());
            thread::sleep(POLL);
        };
        // The streams end with the last rank, so a rank that outlives its job would show here.
        let mut text = |reader: fn(&mut Self) -> Option<thread::JoinHandle<String>>| {
            let reader = reader(&mut self).expect("read once");
            while !reader.is_finished() {
                assert!(Instant::now() < deadline, "a rank outlives its job");
                thread::sleep(POLL);
            }
            reader.join().expect("the reader does not panic")
        };
        let (stdout, stderr) = (text(|job| job.stdout.take()), text(|job| job.stderr.take()));
        Done { status: status.code(), stdout, stderr }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Empty if all has ended as it should.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is worth showing.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringsmith-examples-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder for the test");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path(name), bytes).expect("a file of the test");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
