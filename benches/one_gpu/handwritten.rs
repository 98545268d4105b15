//! The hand-written peer: a program of the user's that prints one JSON object a line.

use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;

/// The program in `RINGSMITH_BENCH_HANDWRITTEN`, if there is one.
pub(crate) struct Handwritten(Option<OsString>);

/// A size's fastest kernel.
pub(crate) struct Best {
    /// Its name, or nothing if its line has none.
    pub(crate) kernel: Value,
    /// Its time.
    pub(crate) us: f64,
}

/// What one run has printed.
#[derive(Default)]
pub(crate) struct Figures {
    /// Of every size in bytes.
    pub(crate) best: BTreeMap<u64, Best>,
    /// Lines that are no time of a size, as they were.
    pub(crate) others: Vec<Value>,
}

impl Handwritten {
    /// Looks whether a program was named.
    pub(crate) fn find() -> Self {
        let program = std::env::var_os("RINGSMITH_BENCH_HANDWRITTEN").filter(|path| !path.is_empty());
        if program.is_none() {
            eprintln!("the hand-written kernels are left out: RINGSMITH_BENCH_HANDWRITTEN names no program");
        }
        Self(program)
    }

    /// Runs the program once. A program that fails, or prints no time, is an error: a table would hide it.
    pub(crate) fn run(&self) -> Result<Figures, String> {
        let Some(program) = &self.0 else { return Ok(Figures::default()) };
        let shown = program.display();
        let failed = |reason: &dyn std::fmt::Display| format!("the hand-written program {shown}: {reason}");
        let output = Command::new(program).output().map_err(|e| failed(&e))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(failed(&format_args!("{}\n{text}{errors}", output.status)));
        }
        let figures = Figures::read(&text);
        if figures.best.is_empty() {
            return Err(failed(&format_args!("it printed no line with \"bytes\" and \"us\":\n{text}")));
        }
        Ok(figures)
    }
}

impl Figures {
    fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let (Some(bytes), Some(us)) = (line["bytes"].as_u64(), line["us"].as_f64()) else {
                figures.others.push(line);
                continue;
            };
            if figures.best.get(&bytes).is_none_or(|best| us < best.us) {
                figures.best.insert(bytes, Best { kernel: line["kernel"].clone(), us });
            }
        }
        figures
    }
}
