//! Pure functions: planning, lowering, emission. Nothing here reads a file, a clock or the environment.

pub mod emit;
pub mod exchange;
pub mod lower;
pub mod plan;
