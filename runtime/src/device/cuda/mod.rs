//! The CUDA device: generated kernels on GPUs.
//!
//! [`GpuRanks`] are the ranks of a communicator that this process launches on one GPU. Either all of them,
//! so that schedules can be tried at any number of ranks on a single card: every call is one launch that
//! holds all ranks' blocks, never more than run side by side. Or one rank among processes, which [`Joining`]
//! brings together: each maps the scratch of all others.
#![allow(unsafe_code)] // The driver is a C library, and kernels get addresses.

mod argument;
mod budget;
mod choice;
mod collectives;
mod driver;
pub mod exchange;
mod joining;
mod layout;
pub mod offline;
mod order;
mod ranks;
mod stream;

pub use argument::{Argument, Memory};
pub use budget::Budget;
pub use choice::{GpuRequest, Prepared, Source, Terms};
pub use collectives::{Collectives, DeviceMessage, DeviceSlice, Empty, WrongSize};
pub use driver::{CudaError, Device, DeviceMemory};
pub use exchange::Lists;
pub use joining::{Joining, Place};
pub use layout::{Geometry, Layout};
pub use ranks::{GpuRanks, Loaded, Shape, Share, Waiting};
pub use stream::{Event, Graph, Stream};

use ringsmith_compiler::emit::EmitError;
use std::fmt;

/// Why a GPU cannot do what was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuError {
    /// The driver's answer.
    Cuda(CudaError),
    /// No kernel can be generated.
    Emit(EmitError),
    /// NVRTC's answer.
    Compile(String),
    /// The plan needs more than the communicator has.
    Plan(String),
    /// The communicator was aborted before.
    Aborted,
    /// The call does not fit the kernel.
    Argument(String),
}

impl GpuError {
    /// Whether the call itself cannot be done, whatever the state of the world.
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Argument(_) | Self::Plan(_) | Self::Emit(_) => true,
            Self::Cuda(_) | Self::Compile(_) | Self::Aborted => false,
        }
    }
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda(error) => error.fmt(f),
            Self::Emit(error) => error.fmt(f),
            Self::Aborted => f.write_str("the communicator was aborted; make a new one"),
            Self::Compile(text) | Self::Plan(text) | Self::Argument(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for GpuError {}

impl From<CudaError> for GpuError {
    fn from(error: CudaError) -> Self {
        Self::Cuda(error)
    }
}

impl From<EmitError> for GpuError {
    fn from(error: EmitError) -> Self {
        Self::Emit(error)
    }
}
