//! Pure functions: planning and lowering. Nothing here reads a file, a clock or the environment.

pub mod exchange;
pub mod lower;
pub mod plan;
