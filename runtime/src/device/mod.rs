//! Devices: what runs a verified kernel plan.

pub mod cpu;
