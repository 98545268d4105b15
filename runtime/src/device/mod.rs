//! Devices: what runs a verified kernel plan.

pub mod cpu;
pub mod cuda;
