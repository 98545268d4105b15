//! Calls that move data.

use super::{Handle, Stream, get, grouped, on, put};
use crate::abi::FIRST_OWN_OP;
use crate::arguments::{self, CollectiveCall, Side};
use crate::communicator::{Comm, Done, Factor};
use crate::group;
use crate::operation::{self, Operation};
use crate::outcome::Failure;
use ringsmith_ir::types::Collective;
use ringsmith_runtime::config::DeviceKind;
use std::ffi::{c_int, c_void};

/// A call of a communicator that moves data, once it is found right.
fn moving(comm: Handle, check: impl FnOnce(&Comm) -> Result<Operation, Failure>) -> Result<Done, Failure> {
    grouped(|| on(comm, |comm| group::call(comm, check(comm)?)))
}

/// A collective of a communicator.
fn collective(comm: Handle, call: CollectiveCall) -> Result<Done, Failure> {
    moving(comm, |comm| call.check(comm))
}

/// What every collective has.
fn with(
    function: &'static str,
    collective: Collective,
    input: *const c_void,
    output: *mut c_void,
) -> CollectiveCall {
    CollectiveCall {
        function,
        collective,
        input: input as usize,
        output: output as usize,
        count: 0,
        dtype: 0,
        op: 0,
        root: 0,
        stream: 0,
    }
}

exports! {
    fn ncclAllReduce, pncclAllReduce(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclAllReduce", Collective::AllReduce, input, output);
        collective(comm, CollectiveCall { count, dtype, op, stream: stream as usize, ..call })
    }

    fn ncclReduce, pncclReduce(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, op: c_int, root: c_int, comm: Handle,
        stream: Stream,
    ) {
        let call = with("ncclReduce", Collective::Reduce, input, output);
        collective(comm, CollectiveCall { count, dtype, op, root, stream: stream as usize, ..call })
    }

    fn ncclBroadcast, pncclBroadcast(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclBroadcast", Collective::Broadcast, input, output);
        collective(comm, CollectiveCall { count, dtype, root, stream: stream as usize, ..call })
    }

    fn ncclBcast, pncclBcast(
        buffer: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclBcast", Collective::Broadcast, buffer, buffer);
        collective(comm, CollectiveCall { count, dtype, root, stream: stream as usize, ..call })
    }

    fn ncclReduceScatter, pncclReduceScatter(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, op: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclReduceScatter", Collective::ReduceScatter, input, output);
        collective(comm, CollectiveCall { count, dtype, op, stream: stream as usize, ..call })
    }

    fn ncclAllGather, pncclAllGather(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclAllGather", Collective::AllGather, input, output);
        collective(comm, CollectiveCall { count, dtype, stream: stream as usize, ..call })
    }

    fn ncclAlltoAll, pncclAlltoAll(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclAlltoAll", Collective::AllToAll, input, output);
        collective(comm, CollectiveCall { count, dtype, stream: stream as usize, ..call })
    }

    fn ncclGather, pncclGather(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclGather", Collective::Gather, input, output);
        collective(comm, CollectiveCall { count, dtype, root, stream: stream as usize, ..call })
    }

    fn ncclScatter, pncclScatter(
        input: *const c_void, output: *mut c_void, count: usize, dtype: c_int, root: c_int, comm: Handle, stream: Stream,
    ) {
        let call = with("ncclScatter", Collective::Scatter, input, output);
        collective(comm, CollectiveCall { count, dtype, root, stream: stream as usize, ..call })
    }

    fn ncclSend, pncclSend(
        data: *const c_void, count: usize, dtype: c_int, peer: c_int, comm: Handle, stream: Stream,
    ) {
        moving(comm, |comm| {
            let (peer, bytes) = arguments::message(comm, peer, Side::Input, (data as usize, count, dtype))?;
            Ok(Operation::Send { peer, data: data as usize, bytes, stream: stream as usize })
        })
    }

    fn ncclRecv, pncclRecv(
        data: *mut c_void, count: usize, dtype: c_int, peer: c_int, comm: Handle, stream: Stream,
    ) {
        moving(comm, |comm| {
            let (peer, bytes) = arguments::message(comm, peer, Side::Output, (data as usize, count, dtype))?;
            Ok(Operation::Recv { peer, data: data as usize, bytes, stream: stream as usize })
        })
    }

    fn ncclRedOpCreatePreMulSum, pncclRedOpCreatePreMulSum(
        op: *mut c_int, scalar: *const c_void, dtype: c_int, residence: c_int, comm: Handle,
    ) {
        on(comm, |comm| {
            comm.ready()?;
            let dtype = arguments::data_type(dtype)?;
            if op.is_null() || scalar.is_null() {
                return Err(Failure::argument(format!("{}: op or scalar is null", comm.name())));
            }
            if !(0..=1).contains(&residence) {
                return Err(Failure::argument(format!(
                    "{}: residence is {residence}; 0 (ncclScalarDevice) and 1 (ncclScalarHostImmediate) are there",
                    comm.name()
                )));
            }
            // The element is read now, unless it is in GPU memory: then the program may still be writing it.
            if residence == 0 && comm.config.device == DeviceKind::Cuda {
                let at = Factor::At(scalar as usize);
                return put("op", op, FIRST_OWN_OP + comm.add_factor(dtype, at) as c_int);
            }
            let mut bytes = [0; 8];
            for (at, byte) in bytes.iter_mut().enumerate().take(dtype.size_bytes()) {
                *byte = get("scalar", scalar.cast::<u8>().add(at))?;
            }
            let factor = operation::factor(dtype, u64::from_le_bytes(bytes)).ok_or_else(|| {
                Failure::argument(format!(
                    "{}: a factor of {dtype} beyond 2^53 is not there in this version; use a smaller one",
                    comm.name()
                ))
            })?;
            put("op", op, FIRST_OWN_OP + comm.add_factor(dtype, Factor::Value(factor)) as c_int)
        })
    }

    fn ncclRedOpDestroy, pncclRedOpDestroy(op: c_int, comm: Handle) {
        on(comm, |comm| match op >= FIRST_OWN_OP && comm.remove_factor((op - FIRST_OWN_OP) as usize) {
            true => Ok(Done::Now),
            false => Err(Failure::argument(format!(
                "{}: {op} is no operation that ncclRedOpCreatePreMulSum made for this communicator",
                comm.name()
            ))),
        })
    }
}
