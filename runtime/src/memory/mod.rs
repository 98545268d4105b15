//! Memory that links live in: mapped ranges of addresses and the files behind shared ones.
//!
//! The transports lay FIFOs and zones out in it; the executor only sees those. Everything here is
//! sparse: a range costs address space until a page of it is touched. Nothing here knows ranks.
#![allow(unsafe_code)] // Mapping memory and handing out pointers into it is what this module is for.

pub mod foreign;
pub(crate) mod fork;
pub mod mapping;
pub(crate) mod scratch;
pub mod segment;
