//! The language of Ringsmith: schedules and kernel plans, their text forms, and the verifier.
//!
//! No I/O, no threads, no clock, no CUDA.

pub mod diagnostic;
pub mod entity;
pub mod expand;
pub mod kernel_plan;
pub mod partition;
pub mod program;
pub mod schedule;
pub mod text;
pub mod topology;
pub mod types;
pub mod verify;
