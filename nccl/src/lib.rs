//! `libnccl.so.2`: the functions of nccl.h over `ringsmith-runtime`'s communicators.
//!
//! Argument checks and result codes only; what a call does is the runtime's. A call goes from `edge`, the only
//! place with C types, through `group`, which collects the calls between start and end, to the `device` of its
//! communicator. Nothing prints: what there is to say goes to the log and to the last error. No panic leaves the
//! library, and a handle that was destroyed is known as such for ever.
//!
//! Follows the header of NCCL 2.30; include/nccl.h is ours.

pub mod abi;
mod arguments;
mod communicator;
mod device;
pub mod edge;
mod group;
mod operation;
mod outcome;
mod parameters;
mod places;
mod pointers;
mod process;
mod registry;
