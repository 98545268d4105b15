//! runtime
pub mod device;
pub mod memory;
pub mod reference;
pub mod transport;
pub mod bootstrap;
pub mod communicator;
pub mod config;
pub mod error;
pub mod fault;
pub mod launcher;
pub mod log;
pub mod unique_id;
