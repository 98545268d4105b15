//! Pure functions: planning, lowering, emission. Nothing here reads a file, a clock or the environment.

pub mod channels;
pub mod emit;
pub mod exchange;
pub mod import;
pub mod lower;
pub mod machines;
pub mod plan;
pub mod simulate;
pub mod tune;
