//! runtime
pub mod memory;
pub mod transport;
