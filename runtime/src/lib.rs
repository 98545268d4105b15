//! runtime
pub mod device;
pub mod memory;
pub mod transport;
