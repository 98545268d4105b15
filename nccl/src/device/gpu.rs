//! Ranks on GPUs: each on the GPU that its thread had chosen when it joined. Calls go on the caller's streams and
//! wait for nobody; a thread looks after what kernels say meanwhile.

use super::Ranks;
use crate::abi::Code;
use crate::edge::gpu;
use crate::operation::Operation;
use crate::outcome::Failure;
use crate::process::{self, Hold};
use ringsmith_runtime::bootstrap::Bootstrap;
use ringsmith_runtime::communicator::{GpuCommunicator, Part, Request};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::device::cuda::{CudaError, Device, DeviceMemory};
use ringsmith_runtime::error::Error;
use ringsmith_runtime::fault::{Fault, Reason};
use ringsmith_runtime::jit::Jit;
use ringsmith_runtime::unique_id::UniqueId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};
use std::time::Duration;

/// How often the watch looks.
const WATCH: Duration = Duration::from_secs(1);

/// Looks whether there is a driver that sees a GPU.
pub(super) fn check() -> Result<(), Failure> {
    let count = Device::count().map_err(|error| no_gpu(&error.to_string()))?;
    if count == 0 {
        return Err(no_gpu("the driver sees no GPU (CUDA_VISIBLE_DEVICES limits which)"));
    }
    Ok(())
}

fn no_gpu(why: &str) -> Failure {
    Failure::usage(format!("{why}; RINGSMITH_DEVICE=cpu is for buffers in host memory"))
}

/// Looks whether the driver knows an address.
pub(super) fn check_memory(address: usize) -> Result<(), String> {
    match Device::knows(address as u64) {
        Ok(true) => Ok(()),
        Ok(false) => Err("is not memory that a GPU can use".to_owned()),
        Err(error) => Err(format!("cannot be looked up ({error})")),
    }
}

/// The GPU that the calling thread has chosen.
pub(super) fn current() -> Result<i32, Failure> {
    let ordinal = Device::current().map_err(|error| no_gpu(&error.to_string()))?;
    Ok(i32::try_from(ordinal).unwrap_or(i32::MAX))
}

/// The process's compiler and kernels.
fn jit(config: &Config) -> Arc<Jit> {
    static JIT: OnceLock<Arc<Jit>> = OnceLock::new();
    JIT.get_or_init(|| Arc::new(Jit::new(config))).clone()
}

/// Joins the ranks of an id.
pub(super) fn join(
    id: &UniqueId,
    rank: u32,
    world: u32,
    device: i32,
    config: &Config,
    root: Hold,
) -> Result<Arc<dyn Ranks>, Error> {
    let ordinal = u32::try_from(device).ok();
    let bootstrap = Bootstrap::connect(id, rank, world, config)?;
    let communicator = GpuCommunicator::over(bootstrap, ordinal, config, jit(config))?;
    Ok(GpuRanks::watched(communicator, root))
}

/// A rank that works on a GPU.
struct GpuRanks {
    rank: u32,
    world: u32,
    memory_bytes: u64,
    /// The communicator's, within reach while it is busy.
    fault: Fault,
    held: Option<Held>,
}

/// What takes time to let go.
struct Held {
    communicator: Arc<RwLock<GpuCommunicator>>,
    /// Whether all ranks have left together.
    has_left: AtomicBool,
    /// Goes after this rank has left.
    _root: Hold,
}

impl GpuRanks {
    fn watched(communicator: GpuCommunicator, root: Hold) -> Arc<dyn Ranks> {
        let (rank, world) = (communicator.rank(), communicator.world());
        let memory_bytes = communicator.collectives().gpu().layout().bytes();
        let fault = communicator.bootstrap().fault().clone();
        let communicator = Arc::new(RwLock::new(communicator));
        let watched = Arc::downgrade(&communicator);
        let watch = std::thread::Builder::new().name("ringsmith-watch".into()).spawn(move || watch(&watched));
        if let Err(error) = watch {
            tracing::warn!(
                target: "ringsmith::init",
                "rank {rank}: nobody watches for long waits: cannot start a thread: {error}"
            );
        }
        let held = Some(Held { communicator, has_left: AtomicBool::new(false), _root: root });
        Arc::new(Self { rank, world, memory_bytes, fault, held })
    }

    fn part(part: Part<GpuCommunicator>) -> Arc<dyn Ranks> {
        Self::watched(part.communicator, Hold::new(part.root.map(Arc::new)))
    }

    fn held(&self) -> &Held {
        self.held.as_ref().expect("it is there until the drop")
    }

    fn read(&self) -> RwLockReadGuard<'_, GpuCommunicator> {
        self.held().communicator.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, GpuCommunicator> {
        self.held().communicator.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at a communicator until it is gone. One that is busy is looked at the next time.
fn watch(communicator: &Weak<RwLock<GpuCommunicator>>) {
    loop {
        std::thread::sleep(WATCH);
        let Some(communicator) = communicator.upgrade() else { return };
        if let Ok(mut communicator) = communicator.try_write() {
            communicator.look();
        }
    }
}

impl Ranks for GpuRanks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn world(&self) -> u32 {
        self.world
    }

    fn run(&self, operations: &[Operation]) -> Result<(), Error> {
        gpu::run(&mut self.write(), operations)
    }

    fn waits(&self) -> bool {
        false
    }

    fn predict_us(&self, request: &Request) -> Result<f64, Error> {
        Err(Error::Unsupported {
            operation: request.collective.to_string(),
            detail: "how long it takes on GPUs cannot be predicted in this version; measure it".to_owned(),
        })
    }

    fn abort(&self, reason: &str) {
        self.fault.raise(Reason::AbortedLocally { reason: reason.to_owned() });
    }

    fn leave(&self) -> Result<(), Error> {
        self.read().leave()?;
        self.held().has_left.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn broken(&self) -> Option<Error> {
        self.fault.check().err()
    }

    fn split(&self, color: Option<u32>, key: i32, config: &Config) -> Result<Option<Arc<dyn Ranks>>, Error> {
        Ok(self.read().split(color, key, config)?.map(Self::part))
    }

    fn shrink(&self, without: &[u32], config: &Config) -> Result<Arc<dyn Ranks>, Error> {
        self.write().shrink(without, config).map(Self::part)
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}

impl Drop for GpuRanks {
    /// A peer may still write into this rank's memory, so the memory goes when all ranks have come as far; not in
    /// the caller's time, who may have to let another communicator go before they can.
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let is_broken = self.fault.is_raised();
        process::farewell(move || {
            if !is_broken && !held.has_left.load(Ordering::Relaxed) {
                let communicator = held.communicator.read().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = communicator.leave() {
                    tracing::info!(target: "ringsmith::init", "{error}");
                }
            }
            drop(held);
        });
    }
}

/// Allocates memory of the GPU that the calling thread has chosen.
pub(crate) fn allocate(bytes: usize) -> Result<DeviceMemory, Failure> {
    let failed = |error: CudaError| Failure {
        code: Code::UnhandledCudaError,
        text: format!("{bytes} bytes of GPU memory: {error}; ask for less, or free some"),
    };
    let device = Device::current().and_then(Device::open).map_err(failed)?;
    DeviceMemory::new(&device, bytes as u64).map_err(failed)
}
