//! Everything of Ringsmith that touches the world: settings, launchers, the bootstrap, transports, memory,
//! the CPU device, the compilation of kernels, and communicators, which put them together.
//!
//! Where to begin: [`communicator`] is what callers use, [`bootstrap`] how ranks find each other,
//! [`transport`] how they reach each other, [`device`] what runs a proved plan. Nothing here judges a
//! schedule: executors take what the verifier has proved, and nothing else.

pub mod bootstrap;
pub mod communicator;
pub mod config;
pub mod device;
pub mod discover;
pub mod error;
pub mod fault;
pub mod files;
pub mod jit;
pub mod launcher;
pub mod log;
pub mod memory;
pub mod reference;
pub mod shown;
pub mod transport;
pub mod unique_id;
