//! Conversions between 32-bit floats and the types of 16 and 8 bits.
//!
//! Branchless integer code, so that loops over it vectorise at every instruction set and give the
//! same bits at each. Rounding is to nearest, ties to even. What happens at the edges follows the
//! PTX instruction `cvt.rn` (`cvt.rn.satfinite` for 8 bits) and is listed in docs/arithmetic.md.
//! The independent, slow conversions that these are tested against are in `reference.rs`.

/// Bits of the 32-bit infinity; magnitudes above it are NaN.
const INFINITY_32: u32 = 0x7f80_0000;
/// Exponent bias of a 32-bit float.
const BIAS_32: u32 = 127;
/// Mantissa bits of a 32-bit float.
const MANTISSA_32: u32 = 23;

/// A float format of at most 16 bits, handled in the low bits of a `u32`.
pub(super) trait Format: 'static {
    /// The value of `bits`, exactly. A NaN stays a NaN.
    fn decode(bits: u32) -> f32;
    /// The nearest value of the format.
    fn encode(value: f32) -> u32;
}

/// A format whose exponent has fewer bits than that of a 32-bit float: a sign bit, then the
/// exponent, then `MANTISSA` bits of mantissa, `BITS` in all.
///
/// `SPECIAL` is the smallest magnitude that is an infinity or NaN. `CAP` is a 32-bit float: what
/// larger values, infinity included, are rounded as. It is the largest finite value in a format
/// that saturates, and a power of two that encodes as infinity in one that does not.
pub(super) struct Small<const BITS: u32, const MANTISSA: u32, const SPECIAL: u32, const CAP: u32>;

/// IEEE 754 binary16. Overflow gives an infinity: 65536 encodes as 0x7c00.
pub(super) type Half = Small<16, 10, 0x7c00, 0x4780_0000>;
/// OCP E4M3 without infinities. Overflow and infinities saturate at 448.
pub(super) type E4M3 = Small<8, 3, 0x7f, 0x43e0_0000>;
/// OCP E5M2. Overflow and infinities saturate at 57344.
pub(super) type E5M2 = Small<8, 2, 0x7c, 0x4760_0000>;

impl<const BITS: u32, const MANTISSA: u32, const SPECIAL: u32, const CAP: u32>
    Small<BITS, MANTISSA, SPECIAL, CAP>
{
    /// All bits but the sign.
    const MAGNITUDE: u32 = (1 << (BITS - 1)) - 1;
    /// How far the mantissa lies below that of a 32-bit float.
    const SHIFT: u32 = MANTISSA_32 - MANTISSA;
    const BIAS: u32 = (1 << (BITS - MANTISSA - 2)) - 1;
    /// What the exponent fields of the two formats differ by, in place.
    const REBIAS: u32 = (BIAS_32 - Self::BIAS) << MANTISSA_32;
    /// The smallest normal value, as a 32-bit float.
    const MIN_NORMAL: u32 = Self::REBIAS + (1 << MANTISSA_32);
    /// A power of two whose unit in the last place is the format's smallest subnormal: adding it
    /// rounds a tiny value to a multiple of that, with the hardware's ties to even.
    const MAGIC: u32 = (BIAS_32 - Self::BIAS + Self::SHIFT + 1) << MANTISSA_32;
}

impl<const BITS: u32, const MANTISSA: u32, const SPECIAL: u32, const CAP: u32> Format
    for Small<BITS, MANTISSA, SPECIAL, CAP>
{
    #[inline(always)]
    fn decode(bits: u32) -> f32 {
        let magnitude = bits & Self::MAGNITUDE;
        let sign = (bits & !Self::MAGNITUDE) << (32 - BITS);
        let shifted = magnitude << Self::SHIFT;
        let normal = shifted + Self::REBIAS;
        // A subnormal is read as a normal number with a leading one, which is then taken away.
        let min_normal = f32::from_bits(Self::MIN_NORMAL);
        let tiny = (f32::from_bits(shifted + Self::MIN_NORMAL) - min_normal).to_bits();
        let special = INFINITY_32 | (shifted & (INFINITY_32 ^ 0x7fff_ffff));
        let finite = if magnitude < 1 << MANTISSA { tiny } else { normal };
        f32::from_bits(sign | if magnitude >= SPECIAL { special } else { finite })
    }

    #[inline(always)]
    fn encode(value: f32) -> u32 {
        let bits = value.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let sign = (bits ^ magnitude) >> (32 - BITS);
        let capped = magnitude.min(CAP);
        let odd = (capped >> Self::SHIFT) & 1;
        let below_half = (1 << (Self::SHIFT - 1)) - 1;
        let normal = capped.wrapping_sub(Self::REBIAS).wrapping_add(below_half + odd) >> Self::SHIFT;
        let magic = f32::from_bits(Self::MAGIC);
        let tiny = (f32::from_bits(capped) + magic).to_bits().wrapping_sub(Self::MAGIC);
        let finite = if capped < Self::MIN_NORMAL { tiny } else { normal };
        if magnitude > INFINITY_32 { Self::MAGNITUDE } else { sign | finite }
    }
}

/// The upper half of a 32-bit float. Overflow gives an infinity.
pub(super) struct Brain;

impl Format for Brain {
    #[inline(always)]
    fn decode(bits: u32) -> f32 {
        f32::from_bits(bits << 16)
    }

    #[inline(always)]
    fn encode(value: f32) -> u32 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        if bits & 0x7fff_ffff > INFINITY_32 { 0x7fff } else { rounded }
    }
}
