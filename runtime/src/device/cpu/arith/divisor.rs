//! Division of integers by a number that is known long before: the number of ranks.
//!
//! Multiplication by a scaled reciprocal and shifts, exact for every dividend; the method of
//! Granlund and Montgomery, "Division by invariant integers using multiplication" (1994), figure
//! 4.1. A hardware division takes ten times as long and does not vectorise.

/// A number of ranks, at least 1, prepared for division by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divisor {
    pub(super) ranks: u32,
    /// Reciprocal scaled by 2^16, rounded up; exact for dividends below 2^8.
    by_8: u32,
    by_32: u32,
    by_64: u64,
    first_shift: u32,
    second_shift: u32,
}

impl Divisor {
    pub(super) fn new(ranks: u32) -> Self {
        assert!(ranks > 0, "a communicator has at least one rank");
        let d = u128::from(ranks);
        let log2_up = 128 - (d - 1).leading_zeros();
        let excess = (1u128 << log2_up) - d;
        Self {
            ranks,
            by_8: if ranks > 255 { 0 } else { (1u32 << 16).div_ceil(ranks) },
            by_32: (((excess << 32) / d) + 1) as u32,
            by_64: (((excess << 64) / d) + 1) as u64,
            first_shift: log2_up.min(1),
            second_shift: log2_up.saturating_sub(1),
        }
    }

    #[inline(always)]
    pub(super) fn divide_8(&self, dividend: u8) -> u8 {
        ((u32::from(dividend) * self.by_8) >> 16) as u8
    }

    #[inline(always)]
    pub(super) fn divide_32(&self, dividend: u32) -> u32 {
        let high = ((u64::from(dividend) * u64::from(self.by_32)) >> 32) as u32;
        (high.wrapping_add((dividend - high) >> self.first_shift)) >> self.second_shift
    }

    #[inline(always)]
    pub(super) fn divide_64(&self, dividend: u64) -> u64 {
        let high = ((u128::from(dividend) * u128::from(self.by_64)) >> 64) as u64;
        (high.wrapping_add((dividend - high) >> self.first_shift)) >> self.second_shift
    }
}
