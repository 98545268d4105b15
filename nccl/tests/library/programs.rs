//! C programs, built against include/nccl.h and linked with the library that cargo has just built.

use libtest_mimic::Failed;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name by which programs that were linked with NCCL look for it.
pub(crate) const SONAME: &str = "libnccl.so.2";

/// Whether there is a C compiler.
pub(crate) fn has_compiler() -> bool {
    Command::new("gcc").arg("--version").output().is_ok_and(|output| output.status.success())
}

/// The root of the tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Where programs, the library under its name, and files of trials lie.
pub(crate) struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// Lays out a folder with the library and the test program.
    pub(crate) fn build() -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("library-{}", std::process::id()));
        let lib = folder.join("lib");
        std::fs::create_dir_all(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
        let built = built_library()?;
        // Under no other name: whoever finds it has found it by its soname.
        symlink(&built, lib.join(SONAME)).map_err(|error| format!("{}: {error}", built.display()))?;
        let programs = Self { folder };
        programs.link("conformance", &sources()?)?;
        Ok(programs)
    }

    /// The test program.
    pub(crate) fn conformance(&self) -> PathBuf {
        self.folder.join("conformance")
    }

    /// Where the library lies under its name.
    pub(crate) fn library_folder(&self) -> PathBuf {
        self.folder.join("lib")
    }

    /// An empty folder for the ranks of a trial to meet in.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, Failed> {
        let folder = self.folder.join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// Compiles and links a program with warnings as errors.
    pub(crate) fn link(&self, name: &str, sources: &[PathBuf]) -> Result<PathBuf, String> {
        let program = self.folder.join(name);
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-I"])
            .arg(root().join("include"));
        gcc.arg("-o").arg(&program).args(sources).arg("-L").arg(self.folder.join("lib"));
        gcc.args([&format!("-l:{SONAME}"), "-lm", "-lpthread", "-ldl"]);
        ran(&mut gcc).map(|_| program)
    }

    /// A program of these, with the library to be found, host memory, and none of the caller's settings.
    pub(crate) fn command(&self, program: PathBuf) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["RINGSMITH_", "NCCL_"].iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&*name);
            }
        }
        command
            .env("LD_LIBRARY_PATH", self.folder.join("lib"))
            .env("RINGSMITH_DEVICE", "cpu")
            .env("RINGSMITH_SOCKET_IFNAME", "=lo");
        command
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The files of the test program.
pub(crate) fn sources() -> Result<Vec<PathBuf>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/library/c");
    let mut all: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map_err(|error| format!("{}: {error}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "c"))
        .collect();
    all.sort();
    Ok(all)
}

/// The library that was built for this test: it lies beside it.
fn built_library() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let library = this.with_file_name("libnccl.so");
    if library.exists() { Ok(library) } else { Err(format!("{} is not there", library.display())) }
}

/// Runs a compiler; its complaints if it fails.
pub(crate) fn ran(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{command:?}\n{}{}", text(&output.stdout), text(&output.stderr))),
    }
}
