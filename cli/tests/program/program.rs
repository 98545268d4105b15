//! Starting the program and looking at what it did.

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A process of this test with this variable set is the program.
pub(crate) const AS_PROGRAM: &str = "CLI_TEST_AS_PROGRAM";

/// Variables of a launcher or of settings that must not reach the program from outside.
const PREFIXES: [&str; 8] =
    ["RINGSMITH_", "NCCL_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "RANK", "WORLD_SIZE"];

/// What a process did.
pub(crate) struct Done {
    /// The exit status; -1 if a signal ended it.
    pub(crate) status: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
        let status = output.status.code().unwrap_or(-1);
        Self { status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

/// The folder of sample files, which is where the program runs.
pub(crate) fn samples() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "samples"].iter().collect()
}

/// The program, not yet started.
pub(crate) fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test has a file"));
    for (name, _) in std::env::vars_os() {
        if PREFIXES.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
        .env(AS_PROGRAM, "1")
        .env("COLUMNS", "100")
        .args(arguments)
        .current_dir(samples())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the program to its end.
pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Done {
    command(arguments).output().expect("the program starts").into()
}

/// Runs the program to its end with something to read.
pub(crate) fn run_with<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>, stdin: &[u8]) -> Done {
    let mut child = command(arguments).stdin(Stdio::piped()).spawn().expect("the program starts");
    // It may have refused its arguments and not read a byte.
    let _ = child.stdin.take().expect("it is piped").write_all(stdin);
    child.wait_with_output().expect("the program ends").into()
}

/// Runs the program to its end in a shell that has set its limits: `ulimit -n 40`.
pub(crate) fn limited<A: AsRef<OsStr>>(limits: &str, arguments: impl IntoIterator<Item = A>) -> Done {
    let program = command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limits}; exec \"$0\" \"$@\"")]).arg(program.get_program());
    shell.args(program.get_args()).current_dir(samples()).stdin(Stdio::null());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.output().expect("there is a shell").into()
}

/// A folder for one test, gone when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    /// An empty folder. Names of tests differ, so folders do.
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringsmith-cli-{}-{test}", std::process::id()));
        std::fs::create_dir(&path).expect("a new folder among temporary files");
        Self(path)
    }

    /// Writes a file and returns its name.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file in a folder of our own");
        path
    }

    /// Makes a named pipe and returns its name.
    pub(crate) fn pipe(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("there is mkfifo");
        assert!(made.success(), "a pipe in a folder of our own");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind fails no test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
