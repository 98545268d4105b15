//! Processes under test: started with a deadline, their output kept as it comes, killed with all that
//! they started when the trial ends, however it ends.

use crate::ensure;
use libtest_mimic::Failed;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a job may take. Ours: many times what the slowest takes on two busy cores.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);
/// How long a job may take to notice that a rank has died. "Within seconds", on a busy machine.
pub(crate) const NOTICE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Marks every process of a job, so that those that are left over are found.
const MARK: &str = "JOB_UNDER_TEST";

/// The program.
pub(crate) fn program() -> &'static str {
    env!("CARGO_BIN_EXE_ringsmith")
}

/// What a process has written so far.
#[derive(Clone, Default)]
struct Output(Arc<(Mutex<Written>, Condvar)>);

#[derive(Default)]
struct Written {
    text: String,
    ended: bool,
}

impl Output {
    fn follow(stream: impl Read + Send + 'static) -> Self {
        let output = Self::default();
        let writer = output.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
                writer.lock().text.push_str(&String::from_utf8_lossy(&line));
                writer.0.1.notify_all();
                line.clear();
            }
            writer.lock().ended = true;
            writer.0.1.notify_all();
        });
        output
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self) -> String {
        self.lock().text.clone()
    }

    /// Waits until a line satisfies `wanted`, and returns it.
    fn wait_for(&self, wanted: impl Fn(&str) -> bool, deadline: Instant) -> Option<String> {
        let mut written = self.lock();
        loop {
            if let Some(line) = written.text.lines().find(|line| wanted(line)) {
                return Some(line.to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if written.ended || left.is_zero() {
                return None;
            }
            written = self.0.1.wait_timeout(written, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A process and all that it starts.
pub(crate) struct Job {
    child: Child,
    mark: String,
    stdout: Output,
    stderr: Output,
    deadline: Instant,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with arguments, and none of the variables that the caller's environment may hold.
pub(crate) fn ringsmith(arguments: &str) -> Command {
    with_clean_environment(Command::new(program()), arguments)
}

/// Any program, likewise.
pub(crate) fn with_clean_environment(mut command: Command, arguments: &str) -> Command {
    let ours = ["RINGSMITH_", "NCCL_", "OMPI_", "PMI", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_"];
    for (name, _) in std::env::vars_os() {
        if ours.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.args(arguments.split_whitespace());
    command.env("RINGSMITH_SOCKET_IFNAME", "=lo");
    command
}

impl Job {
    /// Starts a process in a process group of its own.
    pub(crate) fn start(mut command: Command) -> Result<Self, Failed> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        command.env(MARK, &mark).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
        let stdout = Output::follow(child.stdout.take().expect("stdout was piped"));
        let stderr = Output::follow(child.stderr.take().expect("stderr was piped"));
        Ok(Self { child, mark, stdout, stderr, deadline: Instant::now() + DEADLINE })
    }

    /// Waits for a line of the process's results.
    pub(crate) fn line(&self, wanted: impl Fn(&str) -> bool) -> Result<String, Failed> {
        self.stdout.wait_for(wanted, self.deadline).ok_or_else(|| self.silent("standard output"))
    }

    /// Waits for a line of the process's messages.
    pub(crate) fn message(&self, wanted: impl Fn(&str) -> bool) -> Result<String, Failed> {
        self.stderr.wait_for(wanted, self.deadline).ok_or_else(|| self.silent("standard error"))
    }

    fn silent(&self, what: &str) -> Failed {
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        format!("the line never came on {what}\nstdout:\n{stdout}\nstderr:\n{stderr}").into()
    }

    /// The process of a rank, as the heading of the table tells it.
    pub(crate) fn pid_of(&self, rank: u32) -> Result<Pid, Failed> {
        let line = self.line(|line| rank_and_pid(line).is_some_and(|(found, _)| found == rank))?;
        let (_, pid) = rank_and_pid(&line).expect("the line was chosen for it");
        Ok(Pid::from_raw(pid).ok_or_else(|| format!("no process: {line}"))?)
    }

    /// The process that was started.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until the table has its first row: initialisation is over and data moves.
    pub(crate) fn running(&self) -> Result<(), Failed> {
        self.line(|line| !line.starts_with('#') && !line.trim().is_empty()).map(drop)
    }

    /// Every live process of the job.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        marked(&self.mark)
    }

    /// Waits for the end, and until nothing of the job is left.
    pub(crate) fn end(mut self) -> Result<Done, Failed> {
        let status = self.wait(self.deadline)?;
        // The streams end when the last process that holds them does; a rank that outlives its job
        // shows here.
        let until = Instant::now() + NOTICE;
        self.stdout.wait_for(|_| false, until);
        self.stderr.wait_for(|_| false, until);
        let left = self.processes();
        let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
        ensure(left.is_empty(), || {
            format!("processes are left: {left:?}\nstdout:\n{stdout}\nstderr:\n{stderr}")
        })?;
        Ok(Done { status, stdout, stderr })
    }

    /// As [`Job::end`], for a job that has just lost a rank and must notice it soon.
    pub(crate) fn end_soon(mut self) -> Result<Done, Failed> {
        self.deadline = Instant::now() + NOTICE;
        self.end()
    }

    fn wait(&mut self, deadline: Instant) -> Result<ExitStatus, Failed> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(self.silent("standard output: the job did not end in time, as on"));
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        for pid in marked(&self.mark) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

impl Done {
    /// The job ended with status 0 and no wrong element.
    pub(crate) fn right(&self) -> Result<(), Failed> {
        let right = self.status.success() && self.stdout.contains("# Wrong elements: 0 OK");
        ensure(right, || format!("{}\nstdout:\n{}\nstderr:\n{}", self.status, self.stdout, self.stderr))
    }

    /// The job ended with a status, and its messages hold all the words.
    pub(crate) fn failed(&self, status: i32, words: &[&str]) -> Result<(), Failed> {
        let missing: Vec<_> = words.iter().filter(|word| !self.stderr.contains(**word)).collect();
        ensure(self.status.code() == Some(status) && missing.is_empty(), || {
            format!("{}, expected {status}; missing: {missing:?}\nstderr:\n{}", self.status, self.stderr)
        })
    }
}

/// The rank and process that a line of the table's heading tells: `#   rank   1: pid 4711 on host`.
fn rank_and_pid(line: &str) -> Option<(u32, i32)> {
    let (rank, rest) = line.strip_prefix('#')?.trim().strip_prefix("rank")?.split_once(':')?;
    let pid = rest.trim().strip_prefix("pid ")?.split(' ').next()?;
    Some((rank.trim().parse().ok()?, pid.parse().ok()?))
}

/// Live processes with a mark in their environment. One that has ended has none.
fn marked(mark: &str) -> Vec<Pid> {
    let entry = format!("{MARK}={mark}");
    let has_mark = |folder: &PathBuf| {
        let environment = std::fs::read(folder.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
    };
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|process| Some(process.ok()?.path()))
        .filter(has_mark)
        .filter_map(|folder| Pid::from_raw(folder.file_name()?.to_str()?.parse().ok()?))
        .collect()
}

/// A folder that is gone when the trial ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    pub(crate) fn new() -> Result<Self, Failed> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ringsmith-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port of the loopback interface that was free just now.
pub(crate) fn free_port() -> Result<u16, Failed> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// What lies in `/dev/shm`.
pub(crate) fn shared_memory() -> Vec<PathBuf> {
    std::fs::read_dir("/dev/shm").into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}
