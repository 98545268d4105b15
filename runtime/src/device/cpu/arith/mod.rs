//! Arithmetic of the CPU device: the body of a kernel plan's `move`.
//!
//! `dst… = round(post(pre(src0) op pre(src1) op …))`, folded from left to right in the accumulation
//! type and rounded once, at the end. docs/arithmetic.md states every rule; `reference.rs` computes
//! the same slowly, and the tests compare the two.
//!
//! It refuses to know about ranks, chunks and slots: it gets pointers and a count.

#![allow(unsafe_code, reason = "elements are read and written in callers' memory, by pointer")]

mod body;
mod copy;
mod divisor;
mod element;
mod half;
mod level;
mod mode;
mod narrow;
mod scalar;
#[cfg(test)]
mod tests;

pub(crate) use copy::copy;
pub use level::Level;
pub use scalar::{Scalar, ScalarError};

use divisor::Divisor;
use level::{BLOCK_ELEMENTS, Constants, Loops};
use ringsmith_ir::types::{DataType, ReduceOp};
use std::mem::MaybeUninit;

/// How many bytes are handled before the next destination gets them, when there are several: small
/// enough to stay in a first-level cache, large enough for a fast copy.
const BLOCK_BYTES: usize = 8 * 1024;

/// A source of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Where its elements are. No alignment is needed.
    pub ptr: *const u8,
    /// Whether the operation's first step (multiplication by the scalar) applies.
    pub pre: bool,
}

/// The arithmetic of one element type and operation, resolved once and used for any number of moves.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    loops: Loops,
    constants: Constants,
    size_bytes: usize,
    pre_acts: bool,
    post_acts: bool,
    /// Whether results depend on the thread's floating-point mode.
    rounds: bool,
}

fn is_integer(dtype: DataType) -> bool {
    match dtype {
        DataType::Int8
        | DataType::Uint8
        | DataType::Int32
        | DataType::Uint32
        | DataType::Int64
        | DataType::Uint64 => true,
        DataType::Float16
        | DataType::Float32
        | DataType::Float64
        | DataType::Bfloat16
        | DataType::Float8E4M3
        | DataType::Float8E5M2 => false,
    }
}

/// Room for one block of accumulators of any type.
#[repr(align(64))]
struct Accumulators(MaybeUninit<[u64; BLOCK_ELEMENTS]>);

impl Kernel {
    /// The kernel for `ranks` participants, at the best level this processor has. Only
    /// [`ReduceOp::PremulSum`] looks at `scalar`, which belongs to the same type; only
    /// [`ReduceOp::Avg`] at `ranks`.
    ///
    /// Panics: if `ranks` is zero.
    pub fn new(dtype: DataType, op: ReduceOp, ranks: u32, scalar: Scalar) -> Self {
        Self::at_level(Level::best(), dtype, op, ranks, scalar)
    }

    /// The same at a stated level, for comparing levels.
    ///
    /// Panics: if the processor lacks the level, or `ranks` is zero.
    pub fn at_level(level: Level, dtype: DataType, op: ReduceOp, ranks: u32, scalar: Scalar) -> Self {
        assert!(level.is_available(), "the processor must have {level:?}");
        Self {
            loops: level::loops(level, dtype, op),
            constants: Constants { scalar_bits: scalar.acc_bits(), divisor: Divisor::new(ranks) },
            size_bytes: dtype.size_bytes(),
            pre_acts: op == ReduceOp::PremulSum,
            post_acts: op == ReduceOp::Avg,
            rounds: !is_integer(dtype) && !matches!(op, ReduceOp::Min | ReduceOp::Max),
        }
    }

    /// Combines `src` in order and writes the result to every destination. One source that neither
    /// `pre` nor `post` acts on is copied, bit for bit.
    ///
    /// # Safety
    /// Every pointer is valid for `elements` elements, for reads or writes, and nobody else writes
    /// them (or reads a destination) during the call. Two ranges are either the same or disjoint.
    pub unsafe fn run(&self, dst: &[*mut u8], src: &[Operand], post: bool, elements: usize) {
        let post = post && self.post_acts;
        let Some((&first, others)) = dst.split_first() else { return };
        if elements == 0 {
            return;
        }
        let work = || {
            // SAFETY: passed on from the caller; the arms check how many sources there are.
            unsafe {
                match src {
                    [] => {}
                    [only] if !(post || self.pre(only)) => self.copy(dst, only.ptr, elements),
                    [a, b] if !(post || self.pre(a) || self.pre(b)) => {
                        if others.is_empty() {
                            self.pair(first, a.ptr, b.ptr, elements);
                        } else {
                            self.pair_to_many(first, others, [a.ptr, b.ptr], elements);
                        }
                    }
                    _ => self.fold(first, others, src, post, elements),
                }
            }
        };
        let copies = src.len() == 1 && !(post || self.pre(&src[0]));
        if self.rounds && !copies { mode::in_standard_mode(work) } else { work() }
    }

    /// [`Kernel::run`] with one destination, on slices, for those who have them. All sources are raw
    /// inputs, and the result is complete.
    ///
    /// Panics: if lengths differ, or are not those of whole elements.
    pub fn combine(&self, dst: &mut [u8], src: &[&[u8]]) {
        let elements = dst.len() / self.size_bytes;
        assert_eq!(elements * self.size_bytes, dst.len(), "a slice holds whole elements");
        assert!(src.iter().all(|src| src.len() == dst.len()), "sources are as long as the destination");
        let operands: Vec<Operand> = src.iter().map(|src| Operand { ptr: src.as_ptr(), pre: true }).collect();
        // SAFETY: slices are valid for their length, which is `elements` elements; an exclusive one
        // overlaps no other.
        unsafe { self.run(&[dst.as_mut_ptr()], &operands, true, elements) }
    }

    fn pre(&self, operand: &Operand) -> bool {
        operand.pre && self.pre_acts
    }

    /// # Safety
    /// As [`Kernel::run`], with at least one element.
    unsafe fn copy(&self, dst: &[*mut u8], src: *const u8, elements: usize) {
        let bytes = elements * self.size_bytes;
        if let [only] = dst {
            if only.cast_const() != src {
                // SAFETY: ranges that are not the same are disjoint.
                unsafe { copy(*only, src, bytes) }
            }
            return;
        }
        for start in (0..bytes).step_by(BLOCK_BYTES) {
            let len = BLOCK_BYTES.min(bytes - start);
            for to in dst.iter().filter(|to| to.cast_const() != src) {
                // SAFETY: `start + len <= bytes`, and ranges that are not the same are disjoint.
                unsafe { copy(to.add(start), src.add(start), len) }
            }
        }
    }

    /// # Safety
    /// As [`Kernel::run`], with at least one element.
    unsafe fn pair(&self, dst: *mut u8, a: *const u8, b: *const u8, elements: usize) {
        let (onto_a, onto_b) = (dst.cast_const() == a, dst.cast_const() == b);
        // SAFETY: passed on from the caller; the loops get no two names for one range, except in
        // `fold`, which reads a block before it writes it.
        unsafe {
            match (onto_a, onto_b) {
                (false, false) => (self.loops.pair)(dst, a, b, elements),
                (true, false) => (self.loops.pair_onto_left)(dst, b, elements),
                (false, true) => (self.loops.pair_onto_right)(dst, a, elements),
                (true, true) => {
                    let operand = Operand { ptr: a, pre: false };
                    self.fold(dst, &[], &[operand, operand], false, elements);
                }
            }
        }
    }

    /// # Safety
    /// As [`Kernel::run`], with at least one element.
    unsafe fn pair_to_many(
        &self,
        first: *mut u8,
        others: &[*mut u8],
        [a, b]: [*const u8; 2],
        elements: usize,
    ) {
        let block = BLOCK_BYTES / self.size_bytes;
        for start in (0..elements).step_by(block) {
            let count = block.min(elements - start);
            let offset = start * self.size_bytes;
            // SAFETY: `start + count <= elements`; a block's sources are read before any of its
            // destinations is written, and later blocks overlap nothing of this one.
            unsafe {
                self.pair(first.add(offset), a.add(offset), b.add(offset), count);
                self.repeat(first, others, offset, count);
            }
        }
    }

    /// Any number of sources through a block of accumulators.
    ///
    /// # Safety
    /// As [`Kernel::run`], with at least one element and one source.
    unsafe fn fold(&self, first: *mut u8, others: &[*mut u8], src: &[Operand], post: bool, elements: usize) {
        let mut room = Accumulators(MaybeUninit::uninit());
        let acc = room.0.as_mut_ptr().cast::<u8>();
        let loops = &self.loops;
        let store = if post { loops.store_post } else { loops.store };
        for start in (0..elements).step_by(BLOCK_ELEMENTS) {
            let count = BLOCK_ELEMENTS.min(elements - start);
            let offset = start * self.size_bytes;
            // SAFETY: `start + count <= elements`; `acc` holds BLOCK_ELEMENTS words, is aligned for
            // them, is no part of any operand, and its first `count` elements are written by the
            // load before they are read. All of a block is read before any of it is written.
            unsafe {
                let rest = match src {
                    [a, b, rest @ ..] if !(self.pre(a) || self.pre(b)) => {
                        (loops.load_pair)(acc, a.ptr.add(offset), b.ptr.add(offset), count);
                        rest
                    }
                    [a, rest @ ..] => {
                        let load = if self.pre(a) { loops.load_pre } else { loops.load };
                        load(acc, a.ptr.add(offset), count, &self.constants);
                        rest
                    }
                    [] => unreachable!("fold is called with a source"),
                };
                for operand in rest {
                    let fold = if self.pre(operand) { loops.fold_pre } else { loops.fold };
                    fold(acc, operand.ptr.add(offset), count, &self.constants);
                }
                store(first.add(offset), acc, count, &self.constants);
                self.repeat(first, others, offset, count);
            }
        }
    }

    /// Copies a block of the first destination to the others.
    ///
    /// # Safety
    /// As [`Kernel::run`], for `count` elements from `offset` bytes on.
    unsafe fn repeat(&self, first: *mut u8, others: &[*mut u8], offset: usize, count: usize) {
        for to in others.iter().filter(|to| **to != first) {
            // SAFETY: within the destinations, which are disjoint if they are not the same.
            unsafe { copy(to.add(offset), first.add(offset), count * self.size_bytes) }
        }
    }
}
