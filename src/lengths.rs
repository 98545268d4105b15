//! The lengths that a call's slices must have. Checked before anything is asked of the runtime, so that
//! a mistake moves nothing and leaves the communicator usable.
//!
//! A side that a rank does not have (the output of `reduce` away from the root) may be empty, or as
//! long as it would be at the root; any other length is taken for a mistake.

use ringsmith_ir::types::DataType;
use ringsmith_runtime::error::{Error, Result};

/// Whose slices are checked, and for which call.
#[derive(Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) operation: &'static str,
    pub(crate) dtype: DataType,
    pub(crate) rank: u32,
    pub(crate) world: u32,
}

/// Whether a rank has a side of a rooted collective.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// It has.
    Present,
    /// It has not: the slice may be empty.
    Absent,
}

impl Lengths {
    /// Input and output of one length. Returns that length.
    pub(crate) fn same(self, input: usize, output: usize) -> Result<u64> {
        if input == output {
            return Ok(input as u64);
        }
        self.refuse(format!("input and output must have one length, and have {input} and {output} elements"))
    }

    /// As [`Self::same`], where the length is that of `full`, and a rank may lack the other side.
    pub(crate) fn same_or_absent(
        self,
        (full_name, full): (&str, usize),
        (name, len): (&str, usize),
        side: Side,
    ) -> Result<u64> {
        if len == full || (side == Side::Absent && len == 0) {
            return Ok(full as u64);
        }
        let or_empty = if side == Side::Absent { " (or none, away from the root)" } else { "" };
        self.refuse(format!(
            "the {name} has {len} elements; the {full_name} has {full}, so it must have {full}{or_empty}"
        ))
    }

    /// A slice with one block for each rank, and a slice of one block. Returns the length of a block.
    pub(crate) fn blocks(
        self,
        (whole_name, whole): (&str, usize),
        (block_name, block): (&str, usize),
        side: Side,
    ) -> Result<u64> {
        let fits = block.checked_mul(self.world as usize) == Some(whole);
        if fits || (side == Side::Absent && whole == 0) {
            return Ok(block as u64);
        }
        let or_empty = if side == Side::Absent { " (or none, away from the root)" } else { "" };
        let Self { world, .. } = self;
        self.refuse(format!(
            "the {whole_name} has {whole} elements; {world} ranks with {block} each in the {block_name} need {}{or_empty}",
            block as u128 * u128::from(world)
        ))
    }

    /// One slice with one block for each rank. Returns the length of a block.
    pub(crate) fn divided(self, name: &str, len: usize) -> Result<u64> {
        let world = self.world as usize;
        if len.is_multiple_of(world) {
            return Ok((len / world) as u64);
        }
        self.refuse(format!("the {name} has {len} elements, which are not divisible among {world} ranks"))
    }

    /// A length for each rank, which together make up a slice.
    pub(crate) fn shares(self, name: &str, len: usize, counts: &[usize]) -> Result<()> {
        if counts.len() != self.world as usize {
            let (given, world) = (counts.len(), self.world);
            return self
                .refuse(format!("{given} counts are given for the {name}; {world} ranks need {world}"));
        }
        let sum: u128 = counts.iter().map(|c| *c as u128).sum();
        if sum != len as u128 {
            return self.refuse(format!("the {name} has {len} elements, and its counts add up to {sum}"));
        }
        Ok(())
    }

    fn refuse<T>(self, detail: String) -> Result<T> {
        let Self { operation, dtype, rank, world } = self;
        Err(Error::Argument { operation, detail: format!("rank {rank} of {world}: {detail} ({dtype})") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_THREE: Lengths = Lengths { operation: "gather", dtype: DataType::Int32, rank: 1, world: 3 };

    #[track_caller]
    fn refused<T: std::fmt::Debug>(outcome: Result<T>, words: &[&str]) {
        let error = outcome.expect_err("a wrong length");
        assert_eq!(error.exit_status().code(), 2);
        let text = error.to_string();
        for word in words.iter().chain(&["gather: rank 1 of 3", "int32"]) {
            assert!(text.contains(word), "{text}: {word}");
        }
    }

    #[test]
    fn right_lengths_give_the_count() {
        assert_eq!(OF_THREE.same(4, 4).unwrap(), 4);
        assert_eq!(OF_THREE.same_or_absent(("input", 4), ("output", 4), Side::Present).unwrap(), 4);
        assert_eq!(OF_THREE.same_or_absent(("input", 4), ("output", 0), Side::Absent).unwrap(), 4);
        assert_eq!(OF_THREE.blocks(("output", 12), ("input", 4), Side::Present).unwrap(), 4);
        assert_eq!(OF_THREE.blocks(("output", 12), ("input", 4), Side::Absent).unwrap(), 4);
        assert_eq!(OF_THREE.blocks(("output", 0), ("input", 4), Side::Absent).unwrap(), 4);
        assert_eq!(OF_THREE.blocks(("output", 0), ("input", 0), Side::Present).unwrap(), 0);
        assert_eq!(OF_THREE.divided("buffer", 12).unwrap(), 4);
        OF_THREE.shares("input", 5, &[0, 2, 3]).unwrap();
    }

    #[test]
    fn wrong_lengths_are_named() {
        refused(OF_THREE.same(4, 5), &["have 4 and 5"]);
        refused(
            OF_THREE.same_or_absent(("input", 4), ("output", 0), Side::Present),
            &["output has 0", "must have 4 ("],
        );
        refused(OF_THREE.same_or_absent(("input", 4), ("output", 3), Side::Absent), &["has 3", "4 (or none"]);
        refused(OF_THREE.blocks(("output", 4), ("input", 4), Side::Present), &["has 4", "need 12 ("]);
        refused(OF_THREE.blocks(("output", 0), ("input", 4), Side::Present), &["has 0", "need 12 ("]);
        refused(OF_THREE.blocks(("output", 11), ("input", 4), Side::Absent), &["need 12 (or none"]);
        refused(OF_THREE.blocks(("output", 1), ("input", usize::MAX), Side::Present), &["has 1"]);
        refused(OF_THREE.divided("buffer", 10), &["10", "divisible"]);
        refused(OF_THREE.shares("input", 5, &[5]), &["1 counts", "need 3"]);
        refused(OF_THREE.shares("input", 5, &[usize::MAX, usize::MAX, 7]), &["has 5", "add up to"]);
    }
}
