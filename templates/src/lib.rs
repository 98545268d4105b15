//! The CUDA that generated kernels are made of: one template for kernels of plans, one for the exchange
//! kernel, one for each form of an op, and device functions that they share. Text only;
//! `ringsmith-compiler` fills it in.
//!
//! Generated code includes no header. What differs between a GPU and the CPU on which tests run the same
//! text stands in `machine.cuh`.

/// A file of this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, by which others include it.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(File { name: $name, text: include_str!($name) }),*]
    };
}

/// The page that shows a simulation; not part of any kernel.
pub const TIMELINE: &str = include_str!("timeline.html.tera");

/// Every template of kernels.
pub const TEMPLATES: &[File] = files![
    "kernel.cu.tera",
    "exchange.cu.tera",
    "types.cu.tera",
    "machine.cuh",
    "chunks.cu.tera",
    "memory.cu.tera",
    "fifo.cu.tera",
    "step_fifo.cu.tera",
    "move_ll.cu.tera",
    "move_ll128.cu.tera",
];
