//! The numbers and structures of nccl.h. include/nccl.h says the same to C; a test compares the two.

use ringsmith_ir::types::{DataType, ReduceOp};
use std::ffi::{c_char, c_int, c_uint};

/// The version that the library says it is: the last whose features are all here.
pub const VERSION: c_int = 22_809;
/// The same for the log, with what it really is.
pub const VERSION_TEXT: &str = concat!("NCCL version 2.28.9+ringsmith", env!("CARGO_PKG_VERSION"));
/// What a configuration begins with, once its initialiser has filled it in.
pub const CONFIG_MAGIC: c_uint = 0xcafe_beef;
/// The same for what a simulated group is answered with.
pub const SIM_MAGIC: c_uint = 0x7468_5283;
/// A number of a configuration that was not given.
pub const UNDEFINED: c_int = c_int::MIN;
/// The colour of a rank that gets no communicator.
pub const NO_COLOR: c_int = -1;
/// The flag of a shrink that first ends what is under way.
pub const SHRINK_ABORT: c_int = 1;
/// Every flag of a window, up to those of NCCL 2.32.
pub const ALL_WINDOW_FLAGS: c_int = 0xf;
/// The first value of an operation that a program made.
pub const FIRST_OWN_OP: c_int = 5;

/// Result codes, as nccl.h numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// All went well.
    Success = 0,
    /// The CUDA driver failed.
    UnhandledCudaError = 1,
    /// The operating system, or a connection.
    SystemError = 2,
    /// A bug of ours.
    InternalError = 3,
    /// An argument is wrong by itself.
    InvalidArgument = 4,
    /// The call is wrong here and now.
    InvalidUsage = 5,
    /// Another rank failed, left or is late.
    RemoteError = 6,
    /// Not done yet.
    InProgress = 7,
}

/// What `ncclGetErrorString` says of each code, by its number.
pub const CODE_TEXTS: [&std::ffi::CStr; 9] = [
    c"no error",
    c"unhandled cuda error: ncclGetLastError says which call failed",
    c"unhandled system error: ncclGetLastError says which call failed",
    c"internal error: please report this bug of Ringsmith",
    c"invalid argument: ncclGetLastError says which",
    c"invalid usage: ncclGetLastError says what to do",
    c"remote process exited, failed or is late: ncclGetLastError names it",
    c"operation in progress",
    c"timed out: ncclGetLastError says what for",
];

/// A configuration as nccl.h 2.31 has it; earlier ones are beginnings of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are NCCL's, whose documentation describes them")]
pub struct ConfigFields {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: c_int,
    pub cga_cluster_size: c_int,
    pub min_ctas: c_int,
    pub max_ctas: c_int,
    pub net_name: *const c_char,
    pub split_share: c_int,
    pub traffic_class: c_int,
    pub comm_name: *const c_char,
    pub collnet_enable: c_int,
    pub cta_policy: c_int,
    pub shrink_share: c_int,
    pub nvls_ctas: c_int,
    pub channels_per_net_peer: c_int,
    pub nvlink_centric_sched: c_int,
    pub graph_usage_mode: c_int,
    pub num_rma_ctx: c_int,
    pub max_p2p_peers: c_int,
    pub graph_stream_ordering: c_int,
    pub launch_order_implicit: c_int,
    pub num_rma_sig: c_int,
    pub rma_eager_init: c_int,
    pub host_cft_mode: c_int,
    pub nvls_host_mode: c_int,
}

impl ConfigFields {
    /// A configuration in which nothing is given.
    pub fn nothing_given() -> Self {
        Self {
            size: size_of::<ConfigFields>(),
            magic: CONFIG_MAGIC,
            version: VERSION as u32,
            blocking: UNDEFINED,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            comm_name: std::ptr::null(),
            collnet_enable: UNDEFINED,
            cta_policy: UNDEFINED,
            shrink_share: UNDEFINED,
            nvls_ctas: UNDEFINED,
            channels_per_net_peer: UNDEFINED,
            nvlink_centric_sched: UNDEFINED,
            graph_usage_mode: UNDEFINED,
            num_rma_ctx: UNDEFINED,
            max_p2p_peers: UNDEFINED,
            graph_stream_ordering: UNDEFINED,
            launch_order_implicit: UNDEFINED,
            num_rma_sig: UNDEFINED,
            rma_eager_init: UNDEFINED,
            host_cft_mode: UNDEFINED,
            nvls_host_mode: UNDEFINED,
        }
    }
}

/// The bytes of the smallest configuration: size, magic, version and `blocking`.
pub const SMALLEST_CONFIG_BYTES: usize = 20;

/// What a simulated group is answered with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are NCCL's, whose documentation describes them")]
pub struct SimInfo {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub estimated_time: f32,
}

/// The 128 bytes of an id.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UniqueIdBytes(pub [u8; 128]);

/// A team of ranks of NCCL's device interface.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs, reason = "the names are NCCL's, whose documentation describes them")]
pub struct Team {
    pub ranks: c_int,
    pub rank: c_int,
    pub stride: c_int,
}

/// Element types, at their numbers.
pub const TYPES: [DataType; 12] = [
    DataType::Int8,
    DataType::Uint8,
    DataType::Int32,
    DataType::Uint32,
    DataType::Int64,
    DataType::Uint64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::Bfloat16,
    DataType::Float8E4M3,
    DataType::Float8E5M2,
];

/// Operations that NCCL brings, at their numbers.
pub const OPS: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

/// The element type of a number, if it is one.
pub(crate) fn data_type(number: c_int) -> Option<DataType> {
    TYPES.get(usize::try_from(number).ok()?).copied()
}

/// The number of an element type.
pub(crate) fn type_number(dtype: DataType) -> usize {
    TYPES.iter().position(|listed| *listed == dtype).expect("every element type has a number")
}

/// The number of an operation. Those that a program made are one to the log.
pub(crate) fn op_number(op: ReduceOp) -> usize {
    OPS.iter().position(|listed| *listed == op).unwrap_or(OPS.len())
}

/// The operation of a number, if it is one that NCCL brings.
pub(crate) fn reduce_op(number: c_int) -> Option<ReduceOp> {
    OPS.get(usize::try_from(number).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_told_as_it_is_numbered() {
        let text = format!("NCCL version {}.{}.{}+", VERSION / 10_000, VERSION / 100 % 100, VERSION % 100);
        assert!(VERSION_TEXT.starts_with(&text), "{VERSION_TEXT}");
    }
}
