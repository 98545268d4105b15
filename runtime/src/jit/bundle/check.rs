//! All that can be said of a bundle without a compiler: every file against its hash, every kernel against the
//! plan and source that it names.

use super::manifest::{Entry, Kind};
use super::{Bundle, BundleError, Fault};
use crate::jit::cache::Family;
use crate::jit::{Cubin, Version, options};
use std::collections::HashMap;
use std::path::Path;

/// A bundle and all that is wrong with it.
#[derive(Debug)]
pub struct Checked {
    /// The bundle.
    pub bundle: Bundle,
    /// Its sound kernels, in the manifest's order.
    pub kernels: Vec<CheckedKernel>,
    /// Its sound plans and sources, in the manifest's order.
    pub texts: Vec<CheckedText>,
    /// What is wrong.
    pub damage: Vec<BundleError>,
}

/// A sound plan or source.
#[derive(Debug)]
pub struct CheckedText {
    /// Which of the two.
    pub kind: TextKind,
    /// Where it is, from the bundle's folder on.
    pub path: String,
    /// What it says.
    pub text: String,
}

/// What a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// A kernel plan, as it claims to be: whoever uses it proves it.
    Plan,
    /// CUDA C++.
    Source,
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
    /// The path of its plan.
    pub plan: String,
    /// The path of its source.
    pub source: String,
}

impl Bundle {
    /// Reads all of a bundle, and goes on after what is wrong.
    ///
    /// Errors: its manifest cannot be used.
    pub fn check(folder: &Path) -> Result<Checked, BundleError> {
        let bundle = Self::open_manifest(folder)?;
        let (mut kernels, mut texts, mut damage) = (Vec::new(), Vec::new(), Vec::new());
        if let Err(fault) = bundle.manifest.check_generator() {
            damage.push(bundle.refuse(super::NAME, Some(0), fault));
        }
        for entry in &bundle.manifest.entries {
            let kind = match entry.kind {
                Kind::Plan => TextKind::Plan,
                Kind::Source => TextKind::Source,
                Kind::Kernel { .. } => continue,
            };
            match bundle.text_of(entry) {
                Ok(text) => texts.push(CheckedText { kind, path: entry.path(), text }),
                Err(error) => damage.push(error),
            }
        }
        let by_path: HashMap<&str, &str> =
            texts.iter().map(|text| (text.path.as_str(), text.text.as_str())).collect();
        for entry in bundle.manifest.kernels() {
            match bundle.checked(entry, &by_path) {
                Ok(kernel) => kernels.extend(kernel),
                Err(error) => damage.push(error),
            }
        }
        Ok(Checked { bundle, kernels, texts, damage })
    }

    /// What is wrong with a plan, as somebody has found who could read or prove it no further.
    pub fn wrong_plan(&self, path: &str, reason: String) -> BundleError {
        self.refuse(path, None, Fault::Plan(reason))
    }

    fn text_of(&self, entry: &Entry) -> Result<String, BundleError> {
        String::from_utf8(self.bytes_of(entry)?).map_err(|error| {
            let offset = error.utf8_error().valid_up_to() as u64;
            self.refuse(&entry.path(), Some(offset), Fault::Encoding)
        })
    }

    /// A kernel held against its plan and source; none where one of those is damaged, which is told already.
    fn checked(
        &self,
        entry: &Entry,
        texts: &HashMap<&str, &str>,
    ) -> Result<Option<CheckedKernel>, BundleError> {
        let (name, version, cubin) = self.kernel_of(entry)?;
        let Kind::Kernel { family, architecture, plan, source, .. } = &entry.kind else { return Ok(None) };
        let path =
            |kind: Kind, name: &String| Entry { hash: [0; 32], bytes: 0, name: name.clone(), kind }.path();
        let (plan, source) = (path(Kind::Plan, plan), path(Kind::Source, source));
        let (Some(plan_text), Some(source_text)) = (texts.get(&*plan), texts.get(&*source)) else {
            return Ok(None);
        };
        if Family::new(plan_text, source_text, &options(*architecture), *architecture) != *family {
            return Err(self.refuse(&entry.path(), None, Fault::OtherKernel { plan, source_file: source }));
        }
        Ok(Some(CheckedKernel { name, cubin, version, plan, source }))
    }
}
