//! NVRTC as the rest of this module uses it: one set of options, source in, machine code or the lines at
//! fault out.

use super::library::{Failure, Library};
use super::search::{Found, Origin, Places};
use super::{Architecture, Cubin, JitError, NotFound, SourceMistake};
use crate::config::Config;
use std::ffi::CString;
use std::fmt;
use std::path::Path;

/// A version of NVRTC. Written `13.0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// As the CUDA toolkit's.
    pub major: u32,
    /// As the CUDA toolkit's.
    pub minor: u32,
}

/// The oldest that is used. Ours: what was tried; older ones do not know the architectures of today.
const OLDEST: Version = Version { major: 12, minor: 0 };

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// How every kernel is compiled. Sums must be the same bits on every device, so products and sums are
/// not contracted; the assembler says what each kernel uses.
pub fn options(architecture: Architecture) -> Vec<String> {
    vec![
        // Lambdas in kernels are device functions without being told.
        "-default-device".to_owned(),
        "--fmad=false".to_owned(),
        "--std=c++17".to_owned(),
        format!("--gpu-architecture={architecture}"),
        "--ptxas-options=-v".to_owned(),
    ]
}

/// CUDA's run-time compiler. Threads may share it.
pub struct Nvrtc {
    library: Library,
    found: Found,
    version: Version,
    architectures: Vec<Architecture>,
}

impl Nvrtc {
    /// Looks for NVRTC and opens it. The order of places: the setting `RINGSMITH_NVRTC` (then nowhere
    /// else), what this process has loaded already, the CUDA toolkit, python3's packages, and what
    /// `cargo xtask setup` has installed.
    ///
    /// Errors: `Missing`, with every place that was looked at.
    pub fn find(config: &Config) -> Result<Self, JitError> {
        Ok(Self::in_places(&Places::new(config))?)
    }

    pub(super) fn in_places(places: &Places) -> Result<Self, NotFound> {
        let (mut nvrtc, found) = places.find(|builtins, path| {
            let library = Library::open(builtins, path)?;
            let (major, minor) = library.version()?;
            let version = Version { major, minor };
            if version < OLDEST {
                return Err(format!("it is version {version}, and {OLDEST} or later is needed"));
            }
            let known = library.architectures()?;
            let architectures = known
                .into_iter()
                .filter_map(|number| Architecture::of_capability(number / 10, number % 10).ok());
            let architectures = architectures.collect();
            let found = Found { origin: Origin::Loaded, path: path.to_owned() };
            Ok(Self { library, found, version, architectures })
        })?;
        tracing::info!(
            target: "ringsmith::jit",
            "NVRTC {} is {} ({})", nvrtc.version, found.path.display(), found.origin
        );
        nvrtc.found = found;
        Ok(nvrtc)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its library.
    pub fn path(&self) -> &Path {
        &self.found.path
    }

    /// Where it was found.
    pub fn origin(&self) -> &Origin {
        &self.found.origin
    }

    /// What it compiles for, ascending.
    pub fn architectures(&self) -> &[Architecture] {
        &self.architectures
    }

    /// Compiles a source that includes no header. `name` is what messages call it.
    ///
    /// Errors: `Architecture` if this NVRTC is too old or too new for it, `Source` with the lines at
    /// fault, `Failed` for anything else.
    pub fn compile(&self, name: &str, source: &str, architecture: Architecture) -> Result<Cubin, JitError> {
        let (kernel, version) = (name.to_owned(), self.version);
        if !self.architectures.contains(&architecture) {
            let known = self.architectures.clone();
            return Err(JitError::Architecture { kernel, architecture, version, known });
        }
        let file = file_name(name);
        let c_file = CString::new(file.as_str()).expect("no such byte is left in the name");
        let options: Vec<CString> = options(architecture)
            .into_iter()
            .map(|option| CString::new(option).expect("options are plain words"))
            .collect();
        let Ok(c_source) = CString::new(source) else {
            let (line, text) = line_with_zero(source);
            let message = "a zero byte ends the source here".to_owned();
            let mistakes = vec![SourceMistake { line, message, text }];
            return Err(JitError::Source { kernel, architecture, version, mistakes, log: String::new() });
        };
        match self.library.compile(&c_file, &c_source, &options) {
            Ok(compiled) => Ok(Cubin::new(compiled.bytes, architecture, compiled.log)),
            Err(Failure::Source { log }) => {
                let mistakes = SourceMistake::all(&log, &file, source);
                Err(JitError::Source { kernel, architecture, version, mistakes, log })
            }
            Err(Failure::Call { operation, detail }) => {
                Err(JitError::Failed { kernel, architecture, version, operation, detail })
            }
        }
    }
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvrtc").field("version", &self.version).field("found", &self.found).finish()
    }
}

/// What NVRTC calls the source in its log: plain characters only, so that its lines can be found.
fn file_name(name: &str) -> String {
    // Longer than any name; the rest tells nothing more.
    const LONGEST: usize = 100;
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    let stem: String = name.chars().take(LONGEST).map(plain).collect();
    format!("{stem}.cu")
}

/// The line of the first zero byte, and its text up to there.
fn line_with_zero(source: &str) -> (usize, String) {
    let before = source.split('\0').next().unwrap_or_default();
    (before.split('\n').count(), before.rsplit('\n').next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_plain() {
        assert_eq!(file_name("ring@8 all/reduce(1): error\n"), "ring_8_all_reduce_1___error_.cu");
        assert_eq!(file_name(&"x".repeat(10_000)).len(), 103);
        assert_eq!(line_with_zero("a\nb\0c\n"), (2, "b".to_owned()));
    }

    #[test]
    fn options_are_the_agreed_ones() {
        let architecture = "sm_90".parse().expect("an architecture");
        assert_eq!(
            options(architecture),
            [
                "-default-device",
                "--fmad=false",
                "--std=c++17",
                "--gpu-architecture=sm_90",
                "--ptxas-options=-v"
            ]
        );
    }
}
