//! Rules of the tree, as tests: what ARCHITECTURE.md, the docs and the sources promise each other.
//!
//! Each rule reports everything that breaks it, with the file and the line. Nothing is built or run
//! here, so this is the first test of `cargo xtask test`.

mod architecture;
mod dependencies;
mod docs;
mod files;
mod markdown;
mod sources;
mod tokens;

/// Fails a rule with everything that breaks it.
#[track_caller]
fn report(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}; {} places do not:\n{}", broken.len(), broken.join("\n"));
}
