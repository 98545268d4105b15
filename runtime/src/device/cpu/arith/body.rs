//! The loops: over slices of byte arrays, which have no alignment, and of accumulators.
//!
//! Safe code, always inlined, so that `level.rs` can compile each loop once per instruction set.
//! Slices tell the compiler that nothing overlaps; exact aliases have loops of their own.

use super::divisor::Divisor;
use super::element::{Combine, Element, Number};
use std::mem::MaybeUninit;

/// `dst = a op b`.
#[inline(always)]
pub(super) fn pair<E: Element, C: Combine<E>>(dst: &mut [E::Bytes], a: &[E::Bytes], b: &[E::Bytes]) {
    for ((dst, a), b) in dst.iter_mut().zip(a).zip(b) {
        *dst = E::store(C::combine(E::load(*a), E::load(*b)));
    }
}

/// `dst = dst op b`.
#[inline(always)]
pub(super) fn pair_onto_left<E: Element, C: Combine<E>>(dst: &mut [E::Bytes], b: &[E::Bytes]) {
    for (dst, b) in dst.iter_mut().zip(b) {
        *dst = E::store(C::combine(E::load(*dst), E::load(*b)));
    }
}

/// `dst = a op dst`.
#[inline(always)]
pub(super) fn pair_onto_right<E: Element, C: Combine<E>>(dst: &mut [E::Bytes], a: &[E::Bytes]) {
    for (dst, a) in dst.iter_mut().zip(a) {
        *dst = E::store(C::combine(E::load(*a), E::load(*dst)));
    }
}

/// `acc = src`.
#[inline(always)]
pub(super) fn load<E: Element>(acc: &mut [MaybeUninit<E::Acc>], src: &[E::Bytes]) {
    for (acc, src) in acc.iter_mut().zip(src) {
        acc.write(E::load(*src));
    }
}

/// `acc = a op b`.
#[inline(always)]
pub(super) fn load_pair<E: Element, C: Combine<E>>(
    acc: &mut [MaybeUninit<E::Acc>],
    a: &[E::Bytes],
    b: &[E::Bytes],
) {
    for ((acc, a), b) in acc.iter_mut().zip(a).zip(b) {
        acc.write(C::combine(E::load(*a), E::load(*b)));
    }
}

/// `acc = src * scalar`.
#[inline(always)]
pub(super) fn load_scaled<E: Number>(acc: &mut [MaybeUninit<E::Acc>], src: &[E::Bytes], scalar_bits: u64) {
    for (acc, src) in acc.iter_mut().zip(src) {
        acc.write(E::scale(E::load(*src), scalar_bits));
    }
}

/// `acc = acc op src`.
#[inline(always)]
pub(super) fn fold<E: Element, C: Combine<E>>(acc: &mut [E::Acc], src: &[E::Bytes]) {
    for (acc, src) in acc.iter_mut().zip(src) {
        *acc = C::combine(*acc, E::load(*src));
    }
}

/// `acc = acc op (src * scalar)`.
#[inline(always)]
pub(super) fn fold_scaled<E: Number, C: Combine<E>>(acc: &mut [E::Acc], src: &[E::Bytes], scalar_bits: u64) {
    for (acc, src) in acc.iter_mut().zip(src) {
        *acc = C::combine(*acc, E::scale(E::load(*src), scalar_bits));
    }
}

/// `dst = round(acc)`.
#[inline(always)]
pub(super) fn store<E: Element>(dst: &mut [E::Bytes], acc: &[E::Acc]) {
    for (dst, acc) in dst.iter_mut().zip(acc) {
        *dst = E::store(*acc);
    }
}

/// `dst = round(acc / ranks)`.
#[inline(always)]
pub(super) fn store_divided<E: Number>(dst: &mut [E::Bytes], acc: &[E::Acc], by: &Divisor) {
    for (dst, acc) in dst.iter_mut().zip(acc) {
        *dst = E::store(E::divide(*acc, by));
    }
}
