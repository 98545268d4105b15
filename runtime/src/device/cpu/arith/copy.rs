//! Copies of payload.
//!
//! glibc copies more than two KiB with `rep movsb` where the processor says that it is fast. On AMD's Zen it
//! is not for many pairs of addresses: 4 to 5 GB/s were measured where vectors move 20 (docs/performance.md).

/// From here on vectors are used; below, glibc uses them as well.
const LONG: usize = 2048;

/// Copies `bytes` bytes.
///
/// # Safety
/// Both ranges are valid for `bytes` bytes and disjoint, and nobody else writes them meanwhile.
#[inline]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    if bytes >= LONG && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's promise; the processor has the instructions.
        return unsafe { vectors(to, from, bytes) };
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) }
}

/// Whole vectors to aligned places; the first and the last, which may overlap their neighbours, to where
/// they fall.
///
/// # Safety
/// As [`copy`], for at least [`LONG`] bytes, on a processor with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn vectors(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_storeu_si256};
    const VECTOR: usize = size_of::<__m256i>();
    const STEP: usize = 4 * VECTOR;
    // SAFETY: every access lies within the ranges: `at + VECTOR <= bytes`, and `at + STEP <= bytes` in the
    // loop. Nothing needs alignment.
    unsafe {
        let load = |at: usize| _mm256_loadu_si256(from.add(at).cast());
        let store = |at: usize, v: __m256i| _mm256_storeu_si256(to.add(at).cast(), v);
        store(0, load(0));
        let mut at = VECTOR - to.addr() % VECTOR;
        while at + STEP <= bytes {
            let four = [load(at), load(at + VECTOR), load(at + 2 * VECTOR), load(at + 3 * VECTOR)];
            store(at, four[0]);
            store(at + VECTOR, four[1]);
            store(at + 2 * VECTOR, four[2]);
            store(at + 3 * VECTOR, four[3]);
            at += STEP;
        }
        while at + VECTOR <= bytes {
            store(at, load(at));
            at += VECTOR;
        }
        store(bytes - VECTOR, load(bytes - VECTOR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_else() {
        let source: Vec<u8> = (0..3 * LONG).map(|i| (i * 7 + i / 256) as u8).collect();
        let lengths = (0..200).chain(LONG - 70..LONG + 200);
        for bytes in lengths {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (31, 5), (16, 32), (63, 63)] {
                let mut target = vec![0xee_u8; 2 * LONG];
                // SAFETY: both vectors are longer than offset and length together.
                unsafe { copy(target.as_mut_ptr().add(to), source.as_ptr().add(from), bytes) };
                assert_eq!(target[to..to + bytes], source[from..from + bytes], "{bytes} from {from} to {to}");
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|b| *b == 0xee));
            }
        }
    }
}
