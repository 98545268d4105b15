//! The CPU device: buffers are host memory, the calling thread runs the lanes in turn.

#![allow(unsafe_code)] // Ops move bytes by pointer, in memory that links and callers own.

pub mod arith;
pub(crate) mod exchange;
pub(crate) mod execute;
pub(crate) mod local;
pub(crate) mod wait;
