//! Kernels from source text: finds NVRTC, compiles with it, and keeps what was compiled.
//!
//! Takes CUDA source that was generated from a proved plan and gives machine code; where the source
//! comes from and how the code is launched is no business of this module. [`Jit`] is the front: memory,
//! then a [`bundle`], then the [`cache`] on disk, then [`Nvrtc`]. Nothing here needs a GPU or a driver, and a kernel of a
//! bundle or of the cache needs no NVRTC either. Nothing of NVRTC is linked: it is opened at run time, by the path that
//! the search in `search.rs` found, so that the one that was asked for is the one that is used.
#![allow(unsafe_code)] // Calling into a library that was opened at run time; all of it is in library.rs.

mod architecture;
pub mod bundle;
pub mod cache;
mod cubin;
mod error;
mod library;
mod nvrtc;
mod search;
mod stored;

pub use architecture::{Architecture, ArchitectureError};
pub use bundle::{Bundle, BundleError};
pub use cache::Cache;
pub use cubin::{Cubin, Entry};
pub use error::{JitError, SourceMistake};
pub use nvrtc::{Nvrtc, Version, options};
pub use search::{NotFound, Origin, Tried};

use crate::config::Config;
use cache::Family;
use search::Places;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// Compiled kernels, from wherever they can be had soonest. Threads may share it.
pub struct Jit {
    places: Places,
    /// Found when the first kernel is asked for.
    nvrtc: OnceLock<Result<Nvrtc, NotFound>>,
    /// What the setting names, or why it is refused.
    bundle: Option<Result<Bundle, BundleError>>,
    cache: Option<Cache>,
    /// One slot per kernel, locked while it is being made: threads that want one kernel make it once.
    memory: Mutex<HashMap<Family, Arc<Slot>>>,
}

type Slot = Mutex<Option<Arc<Cubin>>>;

impl Jit {
    /// Opens the bundle that the settings name, and the kernel cache; a cache that cannot be used costs a
    /// warning, a bundle that is refused fails whatever needs a kernel. NVRTC is looked for when it is first
    /// needed.
    pub fn new(config: &Config) -> Self {
        let cache = Cache::open(config).map_err(|error| {
            tracing::warn!(target: "ringsmith::jit", "kernels are not kept: {error}");
        });
        Self {
            places: Places::new(config),
            nvrtc: OnceLock::new(),
            bundle: config.bundle.as_deref().map(Bundle::open),
            cache: cache.ok(),
            memory: Mutex::new(HashMap::new()),
        }
    }

    /// The compiler that is used here.
    ///
    /// Errors: `Missing`, with every place that was looked at.
    pub fn nvrtc(&self) -> Result<&Nvrtc, JitError> {
        let found = self.nvrtc.get_or_init(|| Nvrtc::in_places(&self.places));
        found.as_ref().map_err(|missing| JitError::Missing(missing.clone()))
    }

    /// The bundle, if the settings name one.
    ///
    /// Errors: it is refused.
    pub fn bundle(&self) -> Result<Option<&Bundle>, BundleError> {
        self.bundle.as_ref().map(|found| found.as_ref().map_err(Clone::clone)).transpose()
    }

    /// The cache on disk, if it can be used.
    pub fn cache(&self) -> Option<&Cache> {
        self.cache.as_ref()
    }

    /// The kernels of a source, for an architecture.
    ///
    /// `plan_text` is the canonical text of the plan that the source was generated from, `name` is what
    /// people call it. Sources that differ in plan, text or architecture never share code; `name` makes
    /// no difference. A kernel of the bundle is used whatever made it. Where NVRTC is present, a kernel of the cache is used only if the same version made
    /// it, else one of any version, the newest first.
    ///
    /// Errors: `Bundle` if that is refused; `Missing`, or `NotInBundle` where there is a bundle, if the kernel
    /// is not kept and there is no NVRTC; otherwise those of
    /// [`Nvrtc::compile`]. An error is not remembered.
    pub fn kernel(
        &self,
        plan_text: &str,
        name: &str,
        source: &str,
        architecture: Architecture,
    ) -> Result<Arc<Cubin>, JitError> {
        let started = Instant::now();
        let family = Family::new(plan_text, source, &options(architecture), architecture);
        let slot = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(memory.entry(family).or_default())
        };
        let mut kept = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cubin) = &*kept {
            tracing::debug!(target: "ringsmith::jit", "kernel {name} for {architecture}: from memory");
            return Ok(Arc::clone(cubin));
        }
        let (cubin, whence) = self.make(family, name, source, architecture)?;
        tracing::info!(
            target: "ringsmith::jit",
            "kernel {name} for {architecture}: {whence}, {:.1} ms, {} bytes{}",
            started.elapsed().as_secs_f64() * 1e3,
            cubin.bytes().len(),
            match cubin.spill_bytes() {
                0 => String::new(),
                spilled => format!(", spills {spilled} bytes"),
            }
        );
        let cubin = Arc::new(cubin);
        *kept = Some(Arc::clone(&cubin));
        Ok(cubin)
    }

    /// From the bundle, the cache or NVRTC, with a word on which.
    fn make(
        &self,
        family: Family,
        name: &str,
        source: &str,
        architecture: Architecture,
    ) -> Result<(Cubin, String), JitError> {
        let bundle = self.bundle()?;
        if let Some(bundle) = bundle
            && let Some((version, cubin)) = bundle.load(&family)?
        {
            return Ok((
                cubin,
                format!("from bundle {}, made by NVRTC {version}", bundle.folder().display()),
            ));
        }
        let nvrtc = self.nvrtc();
        if let Some(cache) = &self.cache {
            let kept = match &nvrtc {
                Ok(nvrtc) => cache.load(&family.key(nvrtc.version())).map(|cubin| (nvrtc.version(), cubin)),
                Err(_) => cache.load_of_any_version(&family),
            };
            if let Some((version, cubin)) = kept {
                return Ok((cubin, format!("from the cache, made by NVRTC {version}")));
            }
        }
        let nvrtc = match (nvrtc, bundle) {
            (Err(JitError::Missing(missing)), Some(bundle)) => {
                let (kernel, holds) = (name.to_owned(), bundle.architectures());
                let bundle = bundle.folder().to_owned();
                return Err(JitError::NotInBundle { kernel, architecture, bundle, holds, missing });
            }
            (nvrtc, _) => nvrtc?,
        };
        let cubin = nvrtc.compile(name, source, architecture)?;
        if let Some(cache) = &self.cache {
            cache.store(&family.key(nvrtc.version()), name, &cubin);
        }
        Ok((cubin, format!("compiled by NVRTC {}", nvrtc.version())))
    }
}
