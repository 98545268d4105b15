//! What can go wrong between source text and machine code, with the lines of the source at fault.

use super::{Architecture, BundleError, NotFound, Version};
use std::fmt;
use std::path::PathBuf;

/// Why there is no machine code for a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JitError {
    /// There is no NVRTC.
    #[error(transparent)]
    Missing(#[from] NotFound),
    /// The bundle is refused.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// The bundle has no such kernel, and there is no NVRTC to make it.
    #[error(
        "kernel {kernel} for {architecture} is not in bundle {}, which has kernels for {}, nor kept, and there is no \
         NVRTC to compile it; compile a bundle that has it (ringsmith compile with this call's collective, ranks, type \
         and operation, --arch {architecture}). {missing}", .bundle.display(), List(.holds)
    )]
    NotInBundle {
        /// What was looked for.
        kernel: String,
        /// What for.
        architecture: Architecture,
        /// The bundle.
        bundle: PathBuf,
        /// What it has kernels for.
        holds: Vec<Architecture>,
        /// Why NVRTC cannot make it.
        missing: NotFound,
    },
    /// This NVRTC does not know the architecture.
    #[error(
        "kernel {kernel}: NVRTC {version} cannot compile for {architecture}, only for {}; install another \
         (pip install nvidia-cuda-nvrtc) and set RINGSMITH_NVRTC to its folder", List(.known)
    )]
    Architecture {
        /// What was to be compiled.
        kernel: String,
        /// What for.
        architecture: Architecture,
        /// What with.
        version: Version,
        /// What this NVRTC compiles for.
        known: Vec<Architecture>,
    },
    /// The source does not compile.
    #[error("kernel {kernel} for {architecture} does not compile with NVRTC {version}:{}", Mistakes(.mistakes, .log))]
    Source {
        /// What was to be compiled.
        kernel: String,
        /// What for.
        architecture: Architecture,
        /// What with.
        version: Version,
        /// The mistakes whose lines are known.
        mistakes: Vec<SourceMistake>,
        /// All that compiler and assembler said.
        log: String,
    },
    /// NVRTC failed, through no fault of the source.
    #[error("kernel {kernel} for {architecture}: NVRTC {version}: {operation} failed: {detail}")]
    Failed {
        /// What was to be compiled.
        kernel: String,
        /// What for.
        architecture: Architecture,
        /// What with.
        version: Version,
        /// The call that failed.
        operation: &'static str,
        /// NVRTC's reason.
        detail: String,
    },
}

/// A mistake that the compiler found in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceMistake {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
    /// The line itself.
    pub text: String,
}

impl SourceMistake {
    /// The errors of a log, which calls the source `file`, with the lines of the source.
    pub(super) fn all(log: &str, file: &str, source: &str) -> Vec<Self> {
        let lines: Vec<&str> = source.lines().collect();
        log.lines()
            .filter_map(|said| {
                let (line, message) = said.strip_prefix(file)?.strip_prefix('(')?.split_once("): ")?;
                let line: usize = line.parse().ok()?;
                let message =
                    message.strip_prefix("catastrophic ").unwrap_or(message).strip_prefix("error")?;
                // Some errors have a number: `error #20: …`.
                let message = message.split_once(": ").map_or(message, |(_, message)| message);
                let text = lines.get(line.checked_sub(1)?).copied().unwrap_or_default();
                Some(Self { line, message: message.to_owned(), text: text.to_owned() })
            })
            .collect()
    }
}

/// Mistakes with their lines; the end of the log where no mistake has one.
struct Mistakes<'a>(&'a [SourceMistake], &'a str);

impl fmt::Display for Mistakes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One mistake often causes many; the log has them all.
        const SHOWN: usize = 8;
        const LOG_LINES_SHOWN: usize = 20;
        let Self(mistakes, log) = self;
        for SourceMistake { line, message, text } in mistakes.iter().take(SHOWN) {
            write!(f, "\n  line {line}: {message}\n  {line:>6} | {text}")?;
        }
        if mistakes.len() > SHOWN {
            write!(f, "\n  and {} more", mistakes.len() - SHOWN)?;
        }
        if mistakes.is_empty() {
            let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
            for line in &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..] {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}

struct List<'a>(&'a [Architecture]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, architecture) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{architecture}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "extern \"C\" __global__ void k(float* p) {\n  int unused;\n  p[0] = q;\n}\n";

    #[test]
    fn mistakes_are_shown_with_their_lines() {
        let log = "k.cu(3): error: identifier \"q\" is undefined\n    p[0] = q;\n           ^\n\n\
                   k.cu(2): warning #177-D: variable \"unused\" was declared but never referenced\n\
                   k.cu(99): error #20: past the end\nk.cu(0): error: before it\nother.cu(1): error: not ours\n\
                   k.cu(1): catastrophic error: out of words\n";
        let mistakes = SourceMistake::all(log, "k.cu", SOURCE);
        let found: Vec<_> = mistakes.iter().map(|m| (m.line, m.message.as_str(), m.text.as_str())).collect();
        let first = SOURCE.lines().next().expect("a line");
        assert_eq!(
            found,
            [
                (3, "identifier \"q\" is undefined", "  p[0] = q;"),
                (99, "past the end", ""),
                (1, "out of words", first)
            ]
        );
        let shown = Mistakes(&mistakes, log).to_string();
        assert!(shown.contains("line 3: identifier \"q\" is undefined\n       3 |   p[0] = q;"), "{shown}");
    }

    #[test]
    fn without_lines_the_log_speaks() {
        let log = "ptxas application ptx input, line 26; error   : Not a name of any known instruction: 'bogus'\n\n";
        let shown = Mistakes(&SourceMistake::all(log, "k.cu", SOURCE), log).to_string();
        assert!(shown.contains("'bogus'"), "{shown}");
        let many: Vec<_> =
            (1..=30).map(|line| SourceMistake { line, message: "m".into(), text: "t".into() }).collect();
        assert!(Mistakes(&many, "").to_string().ends_with("and 22 more"));
    }
}
