//! All that can be said of a bundle without a compiler: every file against its hash, every kernel against the
//! plan and source that it names.

use super::manifest::{Entry, Kind};
use super::{Bundle, BundleError, Fault};
use crate::jit::cache::Family;
use crate::jit::{Cubin, Version, options};
use std::path::Path;

/// A bundle and all that is wrong with it.
#[derive(Debug)]
pub struct Checked {
    /// The bundle.
    pub bundle: Bundle,
    /// Its sound kernels, in the manifest's order.
    pub kernels: Vec<CheckedKernel>,
    /// What is wrong.
    pub damage: Vec<BundleError>,
}

/// A sound kernel.
#[derive(Debug)]
pub struct CheckedKernel {
    /// What people call it.
    pub name: String,
    /// What it is for and what it uses.
    pub cubin: Cubin,
    /// The compiler that made it.
    pub version: Version,
    /// The path of its plan, and the plan's text.
    pub plan: (String, String),
}

impl Bundle {
    /// Reads all of a bundle, and goes on after what is wrong.
    ///
    /// Errors: its manifest cannot be used.
    pub fn check(folder: &Path) -> Result<Checked, BundleError> {
        let bundle = Self::open_manifest(folder)?;
        let (mut kernels, mut damage) = (Vec::new(), Vec::new());
        if let Err(fault) = bundle.manifest.check_generator() {
            damage.push(bundle.refuse(super::NAME, Some(0), fault));
        }
        for entry in &bundle.manifest.entries {
            match entry.kind {
                Kind::Plan | Kind::Source => damage.extend(bundle.bytes_of(entry).err()),
                Kind::Kernel { .. } => match bundle.checked(entry) {
                    Ok(kernel) => kernels.push(kernel),
                    // Plans and sources are told once, by their own entries.
                    Err(error) if error.file == entry.path() => damage.push(error),
                    Err(_) => {}
                },
            }
        }
        Ok(Checked { bundle, kernels, damage })
    }

    fn checked(&self, entry: &Entry) -> Result<CheckedKernel, BundleError> {
        let (name, version, cubin) = self.kernel_of(entry)?;
        let refuse = |fault| self.refuse(&entry.path(), None, fault);
        let Kind::Kernel { family, architecture, plan, source, .. } = &entry.kind else {
            return Err(refuse(Fault::Foreign));
        };
        let text = |kind: Kind, name: &str| -> Result<(String, String), BundleError> {
            let found = self.manifest.entries.iter().find(|e| e.kind == kind && e.name == name);
            let found = found.ok_or_else(|| refuse(Fault::Foreign))?;
            let text = String::from_utf8(self.bytes_of(found)?);
            let offset = |e: &std::string::FromUtf8Error| Some(e.utf8_error().valid_up_to() as u64);
            let text = text.map_err(|e| self.refuse(&found.path(), offset(&e), Fault::Foreign))?;
            Ok((found.path(), text))
        };
        let (plan, source) = (text(Kind::Plan, plan)?, text(Kind::Source, source)?);
        if Family::new(&plan.1, &source.1, &options(*architecture), *architecture) != *family {
            return Err(refuse(Fault::OtherKernel { plan: plan.0, source_file: source.0 }));
        }
        Ok(CheckedKernel { name, cubin, version, plan })
    }
}
