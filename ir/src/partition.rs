//! How a count of elements is cut into chunks, and a chunk into tiles.
//!
//! Both ends of every link compute the same cuts from the same count, so sizes never travel.
//! A count is cut into parts of whole 16-byte units; sizes differ by at most one unit, the first
//! parts are the larger ones, and elements that do not fill a unit go to the last part. A part may
//! be empty.

use crate::types::{Collective, DataType};

/// Bytes of the unit that a count is cut by: one vector access.
pub const UNIT_BYTES: u64 = 16;

/// A range of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Range {
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
}

/// Part `index` of `parts` of `count` elements of `size_bytes` bytes each.
///
/// Panics: `parts` is zero or `index` is not below it.
pub fn part(count: u64, size_bytes: u64, parts: u64, index: u64) -> Range {
    assert!(index < parts, "part {index} of {parts}");
    let per_unit = UNIT_BYTES / size_bytes;
    let units = count / per_unit;
    let (each, larger) = (units / parts, units % parts);
    let start = (each * index + larger.min(index)) * per_unit;
    let end =
        if index + 1 == parts { count } else { (each * (index + 1) + larger.min(index + 1)) * per_unit };
    Range { start, len: end - start }
}

/// Where the chunks of one launch lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    count: u64,
    size_bytes: u64,
    block: u64,
    blocked: bool,
}

impl Chunks {
    /// Cuts `count` elements (per rank, where the collective has blocks) for a plan of `chunks`
    /// chunks, `chunks_per_block` of them in one rank's block.
    pub fn new(collective: Collective, dtype: DataType, count: u64, chunks_per_block: u32) -> Self {
        Self {
            count,
            size_bytes: dtype.size_bytes() as u64,
            block: u64::from(chunks_per_block),
            blocked: collective.blocked(),
        }
    }

    /// The elements of a chunk, from the start of the buffer of the whole.
    pub fn whole(&self, chunk: u32) -> Range {
        let inside = self.inside(chunk);
        let first = if self.blocked { u64::from(chunk) / self.block * self.count } else { 0 };
        Range { start: first + inside.start, len: inside.len }
    }

    /// The elements of a chunk, from the start of its own block.
    pub fn inside(&self, chunk: u32) -> Range {
        let index = if self.blocked { u64::from(chunk) % self.block } else { u64::from(chunk) };
        part(self.count, self.size_bytes, self.block, index)
    }

    /// Elements of the largest chunk.
    pub fn largest(&self) -> u64 {
        if self.block == 0 {
            return 0;
        }
        let first = part(self.count, self.size_bytes, self.block, 0).len;
        first.max(part(self.count, self.size_bytes, self.block, self.block - 1).len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_count_and_differ_by_at_most_one_unit() {
        for size in [1, 2, 4, 8] {
            for count in (0..200).chain([1000, 65_537, 1_048_579]) {
                for parts in 1..20 {
                    let all: Vec<Range> = (0..parts).map(|i| part(count, size, parts, i)).collect();
                    let mut next = 0;
                    for range in &all {
                        assert_eq!(range.start, next);
                        next += range.len;
                    }
                    assert_eq!(next, count);
                    let longest = all.iter().map(|r| r.len).max().unwrap();
                    let shortest = all.iter().map(|r| r.len).min().unwrap();
                    assert!(
                        (longest - shortest) * size <= UNIT_BYTES,
                        "{count} x {size} in {parts}: {all:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn blocks_come_first() {
        let chunks = Chunks::new(Collective::AllGather, DataType::Float32, 10, 2);
        assert_eq!(chunks.whole(0), Range { start: 0, len: 4 });
        assert_eq!(chunks.whole(1), Range { start: 4, len: 6 });
        assert_eq!(chunks.whole(2), Range { start: 10, len: 4 });
        assert_eq!(chunks.inside(3), Range { start: 4, len: 6 });
        assert_eq!(chunks.largest(), 6);
    }
}
