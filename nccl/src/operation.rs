//! A call that moves data, as it waits for its group to end: checked, but for what its memory holds.

use crate::abi;
use crate::communicator::Comm;
use ringsmith_ir::types::DataType;
use ringsmith_runtime::communicator::Request;

/// What a call does. Addresses are numbers here: only the edge makes pointers of them.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// A collective.
    Collective {
        /// The function that was called.
        function: &'static str,
        request: Request,
        input: usize,
        output: usize,
        /// Where the factor of a pre-multiplied sum is in GPU memory; 0 where the request has it.
        factor_at: usize,
        /// The caller's stream. Host memory has none, and only tells the log of it.
        stream: usize,
    },
    /// A message to a rank.
    Send { peer: u32, data: usize, bytes: usize, stream: usize },
    /// A message from a rank.
    Recv { peer: u32, data: usize, bytes: usize, stream: usize },
}

impl Operation {
    /// The caller's stream.
    pub(crate) fn stream(&self) -> usize {
        match self {
            Self::Collective { stream, .. } | Self::Send { stream, .. } | Self::Recv { stream, .. } => {
                *stream
            }
        }
    }

    /// Tells the log of a call, in NCCL's words and with its numbers; messages are counted in bytes.
    pub(crate) fn tell(&self, comm: &Comm) {
        let int8 = abi::type_number(DataType::Int8);
        let (function, input, output, count, dtype, op, root, stream) = match *self {
            Self::Collective { function, request, input, output, stream, .. } => {
                let (dtype, op) = (abi::type_number(request.dtype), abi::op_number(request.op));
                (function, input, output, request.count, dtype, op, request.root, stream)
            }
            Self::Send { peer, data, bytes, stream } => {
                ("ncclSend", data, 0, bytes as u64, int8, 0, peer, stream)
            }
            Self::Recv { peer, data, bytes, stream } => {
                ("ncclRecv", 0, data, bytes as u64, int8, 0, peer, stream)
            }
        };
        tracing::info!(
            target: "ringsmith::coll",
            "{}: opCount {:x} sendbuff {input:#x} recvbuff {output:#x} count {count} datatype {dtype} op {op} root {root} \
             comm {:#x} [nranks={}] stream {stream:#x}",
            function.trim_start_matches("nccl"),
            comm.next_call(),
            comm.handle,
            comm.world()
        );
    }
}

/// The factor that a program gave as an element, if a call can carry it exactly.
pub(crate) fn factor(dtype: DataType, bits: u64) -> Option<f64> {
    let exact = |value: f64, is_same: bool| is_same.then_some(value);
    match dtype {
        DataType::Int8 => Some(f64::from(bits as i8)),
        DataType::Uint8 => Some(f64::from(bits as u8)),
        DataType::Int32 => Some(f64::from(bits as i32)),
        DataType::Uint32 => Some(f64::from(bits as u32)),
        DataType::Int64 => exact(bits as i64 as f64, (bits as i64).unsigned_abs() <= 1 << 53),
        DataType::Uint64 => exact(bits as f64, bits <= 1 << 53),
        DataType::Float64 => Some(f64::from_bits(bits)),
        DataType::Float32 => Some(f64::from(f32::from_bits(bits as u32))),
        DataType::Float16 | DataType::Bfloat16 | DataType::Float8E4M3 | DataType::Float8E5M2 => {
            let width = 8 * dtype.size_bytes() as u32;
            let format = ringsmith_runtime::reference::format_of(dtype)?;
            Some(format.decode(bits as u32 & (u32::MAX >> (32 - width))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_the_elements_that_were_given() {
        assert_eq!(factor(DataType::Int8, 0xfe), Some(-2.0));
        assert_eq!(factor(DataType::Int64, u64::MAX), Some(-1.0));
        assert_eq!(factor(DataType::Int64, (1 << 53) + 1), None);
        assert_eq!(factor(DataType::Float16, 0x3800), Some(0.5));
        assert_eq!(factor(DataType::Bfloat16, 0xffff_3f00), Some(0.5));
        assert_eq!(factor(DataType::Float8E5M2, 0x38), Some(0.5));
        assert_eq!(factor(DataType::Float64, 2.5f64.to_bits()), Some(2.5));
    }
}
