//! Names of GPU architectures: `sm_90`. Only the name and what is too old; which ones a compiler knows
//! is the compiler's to say.

use std::fmt;
use std::str::FromStr;

/// The oldest architecture that kernels are made for. Ours: older ones lack independent thread
/// scheduling, on which waiting warps rely.
const OLDEST: u32 = 70;

/// A GPU architecture. Written `sm_90`; `90` is read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Architecture(u32);

/// Why a name is no architecture that kernels are made for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArchitectureError {
    /// Not a name of an architecture.
    #[error("{0:?} is no GPU architecture; one is written like sm_90 or 90")]
    Unreadable(String),
    /// One with features that later architectures lack, which no kernel here uses.
    #[error("{text}: kernels use no features of one architecture only; write sm_{number}")]
    Specific {
        /// What was written.
        text: String,
        /// Its number.
        number: u32,
    },
    /// Older than what kernels need.
    #[error("sm_{0} is not supported: kernels need sm_70 (Volta) or later")]
    TooOld(u32),
}

impl Architecture {
    /// The architecture of a device, from its compute capability.
    ///
    /// Errors: `TooOld` below 7.0.
    pub fn of_capability(major: u32, minor: u32) -> Result<Self, ArchitectureError> {
        Self::of_number(major.saturating_mul(10).saturating_add(minor))
    }

    fn of_number(number: u32) -> Result<Self, ArchitectureError> {
        if number < OLDEST { Err(ArchitectureError::TooOld(number)) } else { Ok(Self(number)) }
    }

    /// The number in its name: 90 for `sm_90`.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}", self.0)
    }
}

impl FromStr for Architecture {
    type Err = ArchitectureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unreadable = || ArchitectureError::Unreadable(text.chars().take(40).collect());
        let name = text.trim();
        let name = name.strip_prefix("sm_").unwrap_or(name);
        let digits = name.trim_end_matches(['a', 'f']);
        // Three digits are more than any architecture has had.
        let plain = (2..=3).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
        if !plain || digits.starts_with('0') || name.len() > digits.len() + 1 {
            return Err(unreadable());
        }
        let number: u32 = digits.parse().map_err(|_| unreadable())?;
        if name.len() > digits.len() {
            return Err(ArchitectureError::Specific { text: name.to_owned(), number });
        }
        Self::of_number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for (text, number) in [("sm_90", 90), ("90", 90), (" sm_100 ", 100), ("75", 75), ("sm_70", 70)] {
            let read: Architecture = text.parse().expect("an architecture");
            assert_eq!((read.number(), read.to_string()), (number, format!("sm_{number}")));
            assert_eq!(read.to_string().parse(), Ok(read));
        }
        assert_eq!(Architecture::of_capability(9, 0).expect("Hopper").to_string(), "sm_90");
        assert_eq!(Architecture::of_capability(12, 1).expect("Blackwell").to_string(), "sm_121");
    }

    #[test]
    fn everything_else_is_refused_with_a_reason() {
        for text in
            ["", "sm_", "hopper", "compute_90", "9", "sm_9000", "-90", "090", "9.0", "90aa", "sm_sm_90"]
        {
            assert!(
                matches!(text.parse::<Architecture>(), Err(ArchitectureError::Unreadable(_))),
                "{text:?}"
            );
        }
        let too_old = "sm_61".parse::<Architecture>().expect_err("Pascal").to_string();
        assert!(too_old.contains("sm_61 is not supported") && too_old.contains("sm_70"), "{too_old}");
        assert!(Architecture::of_capability(6, 0).is_err());
        assert!(Architecture::of_capability(u32::MAX, 9).is_ok());
        let specific = "sm_90a".parse::<Architecture>().expect_err("one architecture only").to_string();
        assert!(specific.contains("write sm_90"), "{specific}");
    }
}
