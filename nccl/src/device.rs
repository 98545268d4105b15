//! What a communicator works on: the one place where a kind of device is plugged in.
//!
//! Host memory is here, and GPUs are in [`gpu`]; `RINGSMITH_DEVICE` says which. Another kind is another
//! implementation of [`Ranks`] and an arm in every function below that looks at [`DeviceKind`]; what groups, handles
//! and argument checks do is the same for all. Addresses are numbers until [`Ranks::run`], and every operation names
//! the stream that its caller gave.

pub(crate) mod gpu;

use crate::arguments::Side;
use crate::edge::memory;
use crate::operation::Operation;
use crate::outcome::Failure;
use crate::places::{self, Allocation};
use crate::pointers;
use crate::process::{self, Hold};
use ringsmith_runtime::bootstrap::refusal::Refusal;
use ringsmith_runtime::communicator::{Communicator, Part, Request};
use ringsmith_runtime::config::{Config, DeviceKind};
use ringsmith_runtime::error::Error;
use ringsmith_runtime::unique_id::UniqueId;
use std::sync::Arc;

/// A rank that has joined the others, whatever it works on. Calls may come from any thread.
pub(crate) trait Ranks: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> u32;
    /// The number of ranks.
    fn world(&self) -> u32;
    /// Runs calls together, on the stream that each names. Returns when they are enqueued; on host memory,
    /// where there is no stream, when they are done.
    fn run(&self, operations: &[Operation]) -> Result<(), Error>;
    /// Whether [`Self::run`] waits for other ranks.
    fn waits(&self) -> bool;
    /// What a collective should take, in microseconds.
    fn predict_us(&self, request: &Request) -> Result<f64, Error>;
    /// Ends every wait of every rank.
    fn abort(&self, reason: &str);
    /// Leaves in good order once every rank has come here.
    fn leave(&self) -> Result<(), Error>;
    /// Why the communicator is broken, if it is.
    fn broken(&self) -> Option<Error>;
    /// The ranks of one colour as a communicator.
    fn split(&self, color: Option<u32>, key: i32, config: &Config) -> Result<Option<Arc<dyn Ranks>>, Error>;
    /// The ranks without some of them, who take no part.
    fn shrink(&self, without: &[u32], config: &Config) -> Result<Arc<dyn Ranks>, Error>;
    /// Bytes that the communicator holds for itself.
    fn memory_bytes(&self) -> u64;
}

/// Refuses settings that ask for a device which is not there.
///
/// Errors: what is not there, and what to set.
pub(crate) fn check(config: &Config) -> Result<(), Failure> {
    match config.device {
        DeviceKind::Cpu => Ok(()),
        DeviceKind::Cuda => gpu::check(),
    }
}

/// Allocates memory that ranks can use.
///
/// Errors: none to be had.
pub(crate) fn allocate(config: &Config, bytes: usize) -> Result<usize, Failure> {
    check(config)?;
    let allocation = match config.device {
        DeviceKind::Cpu => Allocation::Host(memory::allocate(bytes)?),
        DeviceKind::Cuda => Allocation::Gpu(gpu::allocate(bytes)?),
    };
    Ok(places::keep(allocation))
}

/// Looks whether a call may use a range of memory.
///
/// Errors: what is wrong with it, for a sentence about the buffer.
pub(crate) fn check_memory(config: &Config, side: Side, address: usize, bytes: u64) -> Result<(), String> {
    match config.device {
        DeviceKind::Cpu => pointers::check(side, address, bytes),
        DeviceKind::Cuda => gpu::check_memory(address),
    }
}

/// The number of the device that the calling thread has chosen. All of host memory is device 0.
///
/// Errors: there is no GPU to choose.
pub(crate) fn current(config: &Config) -> Result<i32, Failure> {
    match config.device {
        DeviceKind::Cpu => Ok(0),
        DeviceKind::Cuda => gpu::current(),
    }
}

/// The same for the log: 0 before settings are read, and where there is none.
pub(crate) fn of_thread() -> i32 {
    process::settings_so_far().and_then(|config| current(config).ok()).unwrap_or(0)
}

/// Joins the ranks of an id, on the device of a number.
pub(crate) fn join(
    id: &UniqueId,
    rank: u32,
    world: u32,
    device: i32,
    config: &Config,
) -> Result<Arc<dyn Ranks>, Failure> {
    check(config)?;
    let root = Hold::new(process::take_root(id, rank, config)?);
    let joined = match config.device {
        DeviceKind::Cpu => Communicator::init(id, rank, world, config)
            .map(|communicator| Arc::new(HostRanks { communicator, _root: root }) as Arc<dyn Ranks>),
        DeviceKind::Cuda => gpu::join(id, rank, world, device, config, root),
    };
    joined.map_err(|error| at_id(id, rank, world, error))
}

/// A failure to join, with the id: whoever made one of its own waits for others who never come there.
fn at_id(id: &UniqueId, rank: u32, world: u32, error: Error) -> Failure {
    let is_alone = matches!(
        &error,
        Error::Refused { refusal: Refusal::Missing { missing, .. }, .. } if missing.len() as u32 + 1 == world
    );
    let mut failure = Failure::from(error);
    failure.text += &match is_alone {
        true => format!(
            "; rank {rank} of {id} waits alone: one rank makes the id and the others receive it, since processes that \
             each make their own never meet"
        ),
        false => format!(" (the id is {id})"),
    };
    failure
}

/// A rank that works on host memory.
struct HostRanks {
    communicator: Communicator,
    /// Goes after this rank has left.
    _root: Hold,
}

impl HostRanks {
    fn part(part: Part<Communicator>) -> Arc<dyn Ranks> {
        Arc::new(Self { communicator: part.communicator, _root: Hold::new(part.root.map(Arc::new)) })
    }
}

impl Ranks for HostRanks {
    fn rank(&self) -> u32 {
        self.communicator.rank()
    }

    fn world(&self) -> u32 {
        self.communicator.world()
    }

    fn run(&self, operations: &[Operation]) -> Result<(), Error> {
        memory::run(&self.communicator, operations)
    }

    fn waits(&self) -> bool {
        true
    }

    fn predict_us(&self, request: &Request) -> Result<f64, Error> {
        self.communicator.predict_us(request)
    }

    fn abort(&self, reason: &str) {
        self.communicator.abort(reason);
    }

    fn leave(&self) -> Result<(), Error> {
        self.communicator.leave()
    }

    fn broken(&self) -> Option<Error> {
        self.communicator.fault().check().err()
    }

    fn split(&self, color: Option<u32>, key: i32, config: &Config) -> Result<Option<Arc<dyn Ranks>>, Error> {
        Ok(self.communicator.split(color, key, config)?.map(Self::part))
    }

    fn shrink(&self, without: &[u32], config: &Config) -> Result<Arc<dyn Ranks>, Error> {
        self.communicator.shrink(without, config).map(Self::part)
    }

    fn memory_bytes(&self) -> u64 {
        self.communicator.memory().iter().map(|part| part.resident_bytes.unwrap_or(part.reserved_bytes)).sum()
    }
}
