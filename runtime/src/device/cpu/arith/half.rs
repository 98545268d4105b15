//! Sums and products of float16 with the conversions that x86 processors have.
//!
//! The same results as the loops of `body.rs` over `Half`, which do the last few elements here and
//! everything at the baseline level; four times as fast with AVX-512. Minima and maxima need no
//! conversion.

use super::level::{Level, Loops};
use ringsmith_ir::types::ReduceOp;

/// `soft`, with the loops that hardware does faster replaced.
pub(super) fn faster(level: Level, op: ReduceOp, soft: Loops) -> Loops {
    match level {
        Level::Baseline => soft,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::replace(op, soft),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::replace(op, soft),
    }
}

/// The NaN that operations give, as a 32-bit float: its upper bits are those of 0x7fff.
#[cfg(target_arch = "x86_64")]
const NAN: f32 = f32::from_bits(0x7fff_ffff);

#[cfg(target_arch = "x86_64")]
macro_rules! hardware {
    (
        $name:ident, $features:literal, $vector:ident, $lanes:literal,
        $load:ident, $store:ident, $splat:ident, $add:ident, $mul:ident, $div:ident,
        |$from:ident| $widen:expr, |$value:ident, $to:ident| $narrow:expr
    ) => {
        mod $name {
            use super::super::body;
            use super::super::element::{Combine, Element, Narrow, Prod, Sum};
            use super::super::level::{Constants, Loops};
            use super::super::narrow::Half;
            use super::NAN;
            use ringsmith_ir::types::ReduceOp;
            use std::arch::x86_64::*;
            use std::slice::{from_raw_parts, from_raw_parts_mut};

            type Soft = Narrow<Half, 2>;
            const LANES: usize = $lanes;

            /// An operation on vectors that equals `C` on elements.
            trait Vectors: Combine<Soft> {
                /// # Safety
                /// The processor has this module's features.
                unsafe fn combine_vectors(left: $vector, right: $vector) -> $vector;
            }

            impl Vectors for Sum {
                #[inline]
                #[target_feature(enable = $features)]
                unsafe fn combine_vectors(left: $vector, right: $vector) -> $vector {
                    $add(left, right)
                }
            }

            impl Vectors for Prod {
                #[inline]
                #[target_feature(enable = $features)]
                unsafe fn combine_vectors(left: $vector, right: $vector) -> $vector {
                    $mul(left, right)
                }
            }

            // SAFETY, for every function below: the caller passes pointers to `n` elements (for
            // `acc` accumulators, written before where they are read) that live through the call
            // and do not overlap, except that a destination of `pair` may be one of its sources, and
            // runs on a processor with this module's features. Vectors are read and written at
            // `at < whole`, a multiple of LANES that is at most `n`; the rest by safe loops.

            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn widen($from: *const u8) -> $vector {
                // SAFETY: as above.
                unsafe { $widen }
            }

            /// Rounds to nearest even whatever the thread's mode, and makes all NaN one.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn narrow($value: $vector, $to: *mut u8) {
                // SAFETY: as above.
                unsafe { $narrow }
            }

            #[target_feature(enable = $features)]
            unsafe fn pair<C: Vectors>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                let whole = n - n % LANES;
                for at in (0..whole).step_by(LANES) {
                    // SAFETY: as above.
                    unsafe {
                        let sum = C::combine_vectors(widen(a.add(2 * at)), widen(b.add(2 * at)));
                        narrow(sum, d.add(2 * at));
                    }
                }
                for at in whole..n {
                    // SAFETY: as above; one element at a time, since `d` may be `a` or `b`.
                    unsafe {
                        let left = Soft::load(a.add(2 * at).cast::<[u8; 2]>().read());
                        let right = Soft::load(b.add(2 * at).cast::<[u8; 2]>().read());
                        d.add(2 * at).cast::<[u8; 2]>().write(Soft::store(C::combine(left, right)));
                    }
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn pair_onto_left<C: Vectors>(d: *mut u8, b: *const u8, n: usize) {
                // SAFETY: as above.
                unsafe { pair::<C>(d, d.cast_const(), b, n) }
            }

            #[target_feature(enable = $features)]
            unsafe fn pair_onto_right<C: Vectors>(d: *mut u8, a: *const u8, n: usize) {
                // SAFETY: as above.
                unsafe { pair::<C>(d, a, d.cast_const(), n) }
            }

            #[target_feature(enable = $features)]
            unsafe fn load(acc: *mut u8, src: *const u8, n: usize, _: &Constants) {
                let whole = n - n % LANES;
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        $store(acc.cast::<f32>().add(at), widen(src.add(2 * at)));
                    }
                    let rest = from_raw_parts_mut(acc.add(4 * whole).cast(), n - whole);
                    body::load::<Soft>(rest, from_raw_parts(src.add(2 * whole).cast(), n - whole));
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn load_pair<C: Vectors>(acc: *mut u8, a: *const u8, b: *const u8, n: usize) {
                let whole = n - n % LANES;
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        let sum = C::combine_vectors(widen(a.add(2 * at)), widen(b.add(2 * at)));
                        $store(acc.cast::<f32>().add(at), sum);
                    }
                    let rest = from_raw_parts_mut(acc.add(4 * whole).cast(), n - whole);
                    let a = from_raw_parts(a.add(2 * whole).cast(), n - whole);
                    body::load_pair::<Soft, C>(rest, a, from_raw_parts(b.add(2 * whole).cast(), n - whole));
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn load_scaled(acc: *mut u8, src: *const u8, n: usize, with: &Constants) {
                let whole = n - n % LANES;
                let scalar = $splat(f32::from_bits(with.scalar_bits as u32));
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        $store(acc.cast::<f32>().add(at), $mul(widen(src.add(2 * at)), scalar));
                    }
                    let rest = from_raw_parts_mut(acc.add(4 * whole).cast(), n - whole);
                    let src = from_raw_parts(src.add(2 * whole).cast(), n - whole);
                    body::load_scaled::<Soft>(rest, src, with.scalar_bits);
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn fold<C: Vectors>(acc: *mut u8, src: *const u8, n: usize, _: &Constants) {
                let whole = n - n % LANES;
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        let acc = acc.cast::<f32>().add(at);
                        $store(acc, C::combine_vectors($load(acc), widen(src.add(2 * at))));
                    }
                    let rest = from_raw_parts_mut(acc.add(4 * whole).cast(), n - whole);
                    body::fold::<Soft, C>(rest, from_raw_parts(src.add(2 * whole).cast(), n - whole));
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn fold_scaled<C: Vectors>(acc: *mut u8, src: *const u8, n: usize, with: &Constants) {
                let whole = n - n % LANES;
                let scalar = $splat(f32::from_bits(with.scalar_bits as u32));
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        let acc = acc.cast::<f32>().add(at);
                        let term = $mul(widen(src.add(2 * at)), scalar);
                        $store(acc, C::combine_vectors($load(acc), term));
                    }
                    let rest = from_raw_parts_mut(acc.add(4 * whole).cast(), n - whole);
                    let src = from_raw_parts(src.add(2 * whole).cast(), n - whole);
                    body::fold_scaled::<Soft, C>(rest, src, with.scalar_bits);
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn store(d: *mut u8, acc: *const u8, n: usize, _: &Constants) {
                let whole = n - n % LANES;
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        narrow($load(acc.cast::<f32>().add(at)), d.add(2 * at));
                    }
                    let rest = from_raw_parts(acc.add(4 * whole).cast(), n - whole);
                    body::store::<Soft>(from_raw_parts_mut(d.add(2 * whole).cast(), n - whole), rest);
                }
            }

            #[target_feature(enable = $features)]
            unsafe fn store_divided(d: *mut u8, acc: *const u8, n: usize, with: &Constants) {
                let whole = n - n % LANES;
                let ranks = $splat(with.divisor.ranks as f32);
                // SAFETY: as above.
                unsafe {
                    for at in (0..whole).step_by(LANES) {
                        narrow($div($load(acc.cast::<f32>().add(at)), ranks), d.add(2 * at));
                    }
                    let rest = from_raw_parts(acc.add(4 * whole).cast(), n - whole);
                    let d = from_raw_parts_mut(d.add(2 * whole).cast(), n - whole);
                    body::store_divided::<Soft>(d, rest, &with.divisor);
                }
            }

            fn simple<C: Vectors>() -> Loops {
                Loops {
                    pair: pair::<C>,
                    pair_onto_left: pair_onto_left::<C>,
                    pair_onto_right: pair_onto_right::<C>,
                    load,
                    load_pre: load,
                    load_pair: load_pair::<C>,
                    fold: fold::<C>,
                    fold_pre: fold::<C>,
                    store,
                    store_post: store,
                }
            }

            pub(super) fn replace(op: ReduceOp, soft: Loops) -> Loops {
                match op {
                    ReduceOp::Sum => simple::<Sum>(),
                    ReduceOp::Prod => simple::<Prod>(),
                    ReduceOp::Max | ReduceOp::Min => soft,
                    ReduceOp::Avg => Loops { store_post: store_divided, ..simple::<Sum>() },
                    ReduceOp::PremulSum => {
                        Loops { load_pre: load_scaled, fold_pre: fold_scaled::<Sum>, ..simple::<Sum>() }
                    }
                }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
hardware!(
    avx2,
    "avx2,f16c",
    __m256,
    8,
    _mm256_loadu_ps,
    _mm256_storeu_ps,
    _mm256_set1_ps,
    _mm256_add_ps,
    _mm256_mul_ps,
    _mm256_div_ps,
    |from| _mm256_cvtph_ps(_mm_loadu_si128(from.cast())),
    |value, to| {
        let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value);
        let value = _mm256_blendv_ps(value, _mm256_set1_ps(NAN), is_nan);
        _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value));
    }
);

#[cfg(target_arch = "x86_64")]
hardware!(
    avx512,
    "avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq",
    __m512,
    16,
    _mm512_loadu_ps,
    _mm512_storeu_ps,
    _mm512_set1_ps,
    _mm512_add_ps,
    _mm512_mul_ps,
    _mm512_div_ps,
    |from| _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())),
    |value, to| {
        let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
        let value = _mm512_mask_blend_ps(is_nan, value, _mm512_set1_ps(NAN));
        _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value));
    }
);
