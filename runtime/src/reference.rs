//! What every collective must compute, slowly and plainly, and data to compute it from.
//!
//! The tests and `ringsmith run` compare executors with this. It shares no code with
//! `device/cpu/arith`: conversions are written out from the formats' definitions, reductions go
//! element by element in rank order. docs/arithmetic.md states the rules and derives the error bound.
//! It refuses to be fast except where 64 MiB must be filled or compared: inputs repeat with a prime
//! period, so that a short pattern says everything.
//!
//! ```
//! use ringsmith_ir::{entity::Rank, types::{Collective, DataType, ReduceOp}};
//! use ringsmith_runtime::reference::{Data, Request, check, expected, input};
//!
//! let request = Request::new(Collective::AllReduce, DataType::Bfloat16, ReduceOp::Sum, 3, 1000)?;
//! let data = Data::exact(7);
//! let inputs: Vec<Vec<u8>> = (0..3).map(|r| input(&request, &data, Rank::from_u32(r))).collect();
//! let got = expected(&request, Rank::from_u32(1), &inputs); // what a device would have to return
//! assert_eq!(check(&request, &data, Rank::from_u32(1), &got).wrong, 0);
//! # Ok::<(), ringsmith_runtime::reference::RequestError>(())
//! ```

mod check;
mod data;
mod number;
mod request;
#[cfg(test)]
mod tests;

pub use check::{Exactness, MAX_REPORTED, Mismatch, Report, check, compare, error_bound, expected};
pub use data::{Data, Kind, PERIOD_ELEMENTS, fill_input, input};
pub use number::{FloatFormat, format_of, reduce, show};
pub use request::{Request, RequestError, Segment, Sizes, Source};
