//! Where NVRTC may lie, in order, and why it was not taken from there.
//!
//! The places: the setting, which alone counts if it is given; a copy that this process has loaded
//! already (a framework's, mostly), since two in one process are a waste; the CUDA toolkit; the wheels of
//! python3's packages; what `cargo xtask setup` installed beside the program that is running. Later
//! places are not looked at once one will do: asking python3 costs a process.

use crate::config::Config;
use std::ffi::OsStr;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Where a toolkit is installed if nothing says otherwise.
const USUAL_TOOLKIT: &str = "/usr/local/cuda";
/// Folders of libraries inside a toolkit.
const TOOLKIT_FOLDERS: [&str; 4] = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
/// Folders of NVRTC's wheels inside python's packages: of CUDA 13, and of CUDA 12.
const WHEEL_FOLDERS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];
/// The folder that `cargo xtask setup` installs wheels to, inside cargo's folder of built things.
const TOOLS_FOLDER: &str = "tools/python";
/// How long python3 may take to say where its packages lie. Ours; a sound one takes a fifth of a second.
const PYTHON_PATIENCE: Duration = Duration::from_secs(10);
/// More than any list of python's folders is long.
const PYTHON_BYTES: u64 = 64 << 10;

/// Who or what led to a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The setting `RINGSMITH_NVRTC`.
    Setting,
    /// This process had loaded it already.
    Loaded,
    /// The CUDA toolkit.
    Toolkit,
    /// The packages of python3.
    Python,
    /// `cargo xtask setup`.
    Setup,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setting => "the setting RINGSMITH_NVRTC",
            Self::Loaded => "loaded by this process",
            Self::Toolkit => "the CUDA toolkit",
            Self::Python => "python3's packages",
            Self::Setup => "cargo xtask setup",
        })
    }
}

/// A place that was looked at in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// What led there.
    pub origin: Origin,
    /// The folder, where there was one.
    pub folder: Option<PathBuf>,
    /// Why nothing was taken from there.
    pub reason: String,
}

/// NVRTC was found nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFound {
    /// Every place that was looked at, in order.
    pub tried: Vec<Tried>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NVRTC, CUDA's run-time compiler, was not found; looked at")?;
        for Tried { origin, folder, reason } in &self.tried {
            match folder {
                Some(folder) => write!(f, "\n  {origin}: {}: {reason}", folder.display())?,
                None => write!(f, "\n  {origin}: {reason}")?,
            }
        }
        let by_setting = self.tried.iter().any(|tried| tried.origin == Origin::Setting);
        f.write_str(match by_setting {
            true => "\nset RINGSMITH_NVRTC to the folder of libnvrtc.so, or unset it to search the usual places",
            false => "\ninstall it (pip install nvidia-cuda-nvrtc), or set RINGSMITH_NVRTC to the folder of libnvrtc.so",
        })
    }
}

impl std::error::Error for NotFound {}

/// The NVRTC that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) origin: Origin,
    /// The library.
    pub(super) path: PathBuf,
}

/// What the search depends on, from the settings.
#[derive(Clone, Debug)]
pub(super) struct Places {
    setting: Option<PathBuf>,
    toolkits: Vec<PathBuf>,
}

/// The folders that one origin leads to, or why there are none.
type Folders = Result<Vec<PathBuf>, String>;

impl Places {
    pub(super) fn new(config: &Config) -> Self {
        let toolkits = config.cuda_toolkits.iter().cloned().chain([USUAL_TOOLKIT.into()]);
        Self { setting: config.nvrtc.clone(), toolkits: toolkits.collect() }
    }

    /// Opens the first NVRTC that can be opened. `open` is given the built-ins and the library, in the
    /// order in which they must be loaded.
    pub(super) fn find<T>(
        &self,
        open: impl Fn(&[PathBuf], &Path) -> Result<T, String>,
    ) -> Result<(T, Found), NotFound> {
        type Stage = (Origin, fn(&Places) -> Folders);
        const EVERYWHERE: [Stage; 4] = [
            (Origin::Loaded, |_| loaded()),
            (Origin::Toolkit, |places| Ok(places.toolkit_folders())),
            (Origin::Python, |_| python("python3".as_ref(), PYTHON_PATIENCE)),
            (Origin::Setup, |_| setup()),
        ];
        const SETTING_ONLY: [Stage; 1] = [(Origin::Setting, |places| Ok(places.setting_folders()))];
        let stages = if self.setting.is_some() { &SETTING_ONLY[..] } else { &EVERYWHERE };
        first(stages.iter().map(|(origin, folders)| (origin.clone(), folders(self))), open)
    }

    fn setting_folders(&self) -> Vec<PathBuf> {
        let folder = self.setting.as_deref().unwrap_or(Path::new(""));
        let inside = TOOLKIT_FOLDERS.iter().map(|inside| folder.join(inside));
        // The rest only if it is there, so that a wrong setting is answered with one line.
        [folder.to_owned()].into_iter().chain(inside.filter(|inside| inside.is_dir())).collect()
    }

    fn toolkit_folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for toolkit in &self.toolkits {
            let inside: Vec<_> =
                TOOLKIT_FOLDERS.iter().map(|inside| toolkit.join(inside)).filter(|f| f.is_dir()).collect();
            match inside.is_empty() {
                true => folders.push(toolkit.clone()),
                false => folders.extend(inside),
            }
        }
        folders
    }
}

/// Opens the first NVRTC of the folders, in order; each origin is only asked once all before had nothing.
fn first<T>(
    stages: impl Iterator<Item = (Origin, Folders)>,
    open: impl Fn(&[PathBuf], &Path) -> Result<T, String>,
) -> Result<(T, Found), NotFound> {
    let mut tried = Vec::new();
    let mut seen: Vec<PathBuf> = Vec::new();
    for (origin, folders) in stages {
        let folders = match folders {
            Ok(folders) => folders,
            Err(reason) => {
                tried.push(Tried { origin, folder: None, reason });
                continue;
            }
        };
        for folder in folders {
            // One folder often has several names, as /usr/local/cuda/lib64 has.
            let canonical = std::fs::canonicalize(&folder).unwrap_or_else(|_| folder.clone());
            if seen.contains(&canonical) {
                continue;
            }
            seen.push(canonical);
            let outcome =
                libraries(&folder).and_then(|(builtins, nvrtc)| Ok((open(&builtins, &nvrtc)?, nvrtc)));
            match outcome {
                Ok((opened, path)) => return Ok((opened, Found { origin, path })),
                Err(reason) => {
                    let origin = origin.clone();
                    tried.push(Tried { origin, folder: Some(folder), reason });
                }
            }
        }
    }
    Err(NotFound { tried })
}

/// The built-ins and the newest NVRTC of a folder.
fn libraries(folder: &Path) -> Result<(Vec<PathBuf>, PathBuf), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such folder".to_owned(),
        _ => format!("cannot be read: {error}"),
    })?;
    let names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    let versions = |prefix: &str| {
        let mut found: Vec<_> =
            names.iter().filter_map(|name| Some((version(name, prefix)?, name))).collect();
        found.sort();
        found.into_iter().map(|(_, name)| folder.join(name)).collect::<Vec<_>>()
    };
    let Some(nvrtc) = versions("libnvrtc.so").pop() else { return Err("holds no libnvrtc.so".to_owned()) };
    let builtins = versions("libnvrtc-builtins.so");
    if builtins.is_empty() {
        return Err("holds libnvrtc.so without the libnvrtc-builtins.so that it needs".to_owned());
    }
    Ok((builtins, nvrtc))
}

/// The numbers after a library's name: `libnvrtc.so.13` has 13; a plain name, none.
fn version(name: &OsStr, prefix: &str) -> Option<Vec<u32>> {
    match name.to_str()?.strip_prefix(prefix)? {
        "" => Some(Vec::new()),
        numbers => numbers.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect(),
    }
}

/// Where the NVRTC lies that this process has loaded.
fn loaded() -> Folders {
    let maps = std::fs::read("/proc/self/maps").map_err(|error| format!("cannot tell: {error}"))?;
    let maps = String::from_utf8_lossy(&maps);
    match loaded_in(&maps) {
        Some(folder) => Ok(vec![folder]),
        None => Err("none is".to_owned()),
    }
}

/// The same, of a table of mappings as /proc has it.
fn loaded_in(maps: &str) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        let path = Path::new(&line[line.find('/')?..]);
        version(path.file_name()?, "libnvrtc.so")?;
        Some(path.parent()?.to_owned())
    })
}

/// The folders of wheels among python's packages.
fn python(program: &OsStr, patience: Duration) -> Folders {
    // Imports nothing but a built-in module, so nothing of the working folder is run.
    let script = "import sys\nfor folder in sys.path: print(folder)";
    let name = program.to_string_lossy();
    let mut child = Command::new(program)
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("{name} is not on the search path"),
            _ => format!("{name} cannot be started: {error}"),
        })?;
    let output = child.stdout.take().expect("it was piped");
    let (sender, receiver) = mpsc::channel();
    // Ends with the child, whose end of the pipe it reads.
    let reader = std::thread::Builder::new().name("ringsmith-python".into()).spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(PYTHON_BYTES).read_to_end(&mut bytes);
        // Nobody receives it any more if it came too late.
        let _ = sender.send(read.map(|_| bytes));
    });
    let answer = match reader {
        Ok(_) => receiver.recv_timeout(patience).map_err(|_| format!("{name} does not answer")),
        Err(error) => Err(format!("no thread to ask {name} with: {error}")),
    };
    // It has said all that it will; one that hangs is not waited for.
    let _ = child.kill();
    let _ = child.wait();
    let bytes = answer?.map_err(|error| format!("{name} cannot be read: {error}"))?;
    let folders: Vec<PathBuf> = String::from_utf8_lossy(&bytes)
        .lines()
        .filter(|line| line.starts_with('/'))
        .flat_map(|line| WHEEL_FOLDERS.map(|wheel| Path::new(line).join(wheel)))
        .filter(|folder| folder.is_dir())
        .collect();
    if folders.is_empty() {
        return Err("the package nvidia-cuda-nvrtc is not installed".to_owned());
    }
    Ok(folders)
}

/// The folders of wheels that `cargo xtask setup` installed, for a program that cargo built.
fn setup() -> Folders {
    let program = std::env::current_exe().map_err(|error| format!("cannot tell: {error}"))?;
    setup_beside(&program).ok_or_else(|| "this program does not lie where cargo builds".to_owned())
}

/// The same, for a program.
fn setup_beside(program: &Path) -> Option<Vec<PathBuf>> {
    // Only cargo's own folder: a `tools` above an installed program would be anybody's.
    let target = program.ancestors().skip(1).find(|folder| folder.join("CACHEDIR.TAG").is_file())?;
    Some(WHEEL_FOLDERS.map(|wheel| target.join(TOOLS_FOLDER).join(wheel)).to_vec())
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
