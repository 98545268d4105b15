//! The CPU device: buffers are host memory, lanes are threads.

pub mod arith;
