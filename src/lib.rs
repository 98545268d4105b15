//! Ringsmith computes collectives (all_reduce, broadcast and their kin) between processes, with
//! schedules that are planned for the machine and the size, and proved before they run.
//!
//! This crate is the facade: typed, safe calls on slices over `ringsmith-runtime`. It installs no
//! `tracing` subscriber and reads settings (`RINGSMITH_*`, docs/settings.md) only where a communicator
//! is made. The program `ringsmith` is in this package too.
//!
//! ```
//! use ringsmith::Op;
//!
//! // Three ranks as threads; Communicator::from_env and Communicator::connect join processes alike.
//! let means = ringsmith::on_threads(3, |comm| {
//!     let mut values = [comm.rank() as f32, 6.0];
//!     comm.all_reduce_in_place(&mut values, Op::Avg)?;
//!     Ok(values)
//! })?;
//! assert_eq!(means, [[1.0, 6.0]; 3]);
//! # Ok::<(), ringsmith::Error>(())
//! ```
//!
//! | to | see |
//! | --- | --- |
//! | start | [`Communicator::from_env`], [`Communicator::connect`], [`Communicator::alone`], [`on_threads`] |
//! | reduce, gather, exchange | [`Communicator`] |
//! | run calls together | [`Communicator::group`] |
//! | choose an operation, an element type | [`Op`], [`Element`] |
//! | tell whose mistake an error is | [`Error::exit_status`] |

mod collectives;
mod communicator;
mod element;
mod group;
mod id;
mod lengths;
mod op;
mod threads;

pub use communicator::Communicator;
pub use element::{Element, F8E4M3, F8E5M2};
pub use group::Group;
pub use half::{bf16, f16};
pub use id::UniqueId;
pub use op::Op;
pub use ringsmith_ir::types::{Collective, DataType};
pub use ringsmith_runtime::communicator::Timings;
pub use ringsmith_runtime::config::Config;
pub use ringsmith_runtime::error::{Error, ExitStatus, Result};
pub use ringsmith_runtime::fault::Reason;
pub use ringsmith_runtime::unique_id::IdError;
pub use threads::on_threads;
