//! The `ringsmith` program. Everything is in the cli crate.
fn main() -> std::process::ExitCode {
    ringsmith_cli::main()
}
