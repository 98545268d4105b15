//! The `ringsmith` program. Everything is in the cli crate.
fn main() {}
