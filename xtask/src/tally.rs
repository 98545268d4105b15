//! Counts what test programs report.
//!
//! Reads the closing line that Rust's test harness, and every harness of this project, prints:
//! `test result: ok. 3 passed; 0 failed; 1 ignored; …`.

use std::fmt;
use std::ops::AddAssign;

/// How many tests ended how. An ignored test is one that could not run here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: u64,
    /// Tests that failed.
    pub(crate) failed: u64,
    /// Tests that could not run here.
    pub(crate) skipped: u64,
}

impl Tally {
    /// One check that either passed or failed.
    pub(crate) fn one(passed: bool) -> Self {
        Self { passed: u64::from(passed), failed: u64::from(!passed), skipped: 0 }
    }

    /// What a line of output reports; none if it is no closing line.
    pub(crate) fn of_line(line: &str) -> Option<Self> {
        let counts = line.trim().strip_prefix("test result: ")?.split_once(". ")?.1;
        let mut tally = Self::default();
        for part in counts.split("; ") {
            let (number, what) = part.split_once(' ')?;
            match what {
                "passed" => tally.passed = number.parse().ok()?,
                "failed" => tally.failed = number.parse().ok()?,
                "ignored" => tally.skipped = number.parse().ok()?,
                _ => {}
            }
        }
        Some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn closing_lines_are_counted_and_others_are_not() {
        let line = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 9 filtered out; finished in 0.00s";
        assert_eq!(Tally::of_line(line), Some(Tally { passed: 3, failed: 1, skipped: 2 }));
        assert_eq!(Tally::of_line("test tally::tests ... ok"), None);
        assert_eq!(Tally::of_line("test result: ok"), None);
    }
}
