//! Devices: what runs a verified kernel plan, and what is known of them.

pub mod cpu;
pub mod cuda;
pub mod nvml;
