//! Calls on memory and streams of GPUs that the program has: addresses and handles are taken as nccl.h promises
//! them, and given to the runtime for a call.

use crate::operation::{self, Operation};
use ringsmith_ir::types::ReduceOp;
use ringsmith_runtime::communicator::{GpuCommunicator, Request};
use ringsmith_runtime::device::cpu::arith::Scalar;
use ringsmith_runtime::device::cuda::{
    CudaError, Device, DeviceMemory, DeviceMessage, DeviceSlice, Event, GpuRequest, Stream,
};
use ringsmith_runtime::error::Error;
use std::sync::Arc;

/// Puts calls on their streams: collectives in their order, then all messages at once. Where calls of a group
/// name several streams, each waits for what was on all of them, and what follows on any waits for the group.
pub(crate) fn run(communicator: &mut GpuCommunicator, operations: &[Operation]) -> Result<(), Error> {
    let device = Arc::clone(communicator.collectives().gpu().device());
    let streams = Streams::of(&device, operations);
    let (rank, world) = (communicator.rank(), communicator.world());
    let failed = |source: CudaError| Error::Device {
        rank,
        operation: "ordering the streams of a group".to_owned(),
        source: source.into(),
    };
    streams.fork(&device).map_err(failed)?;
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for operation in operations {
        match *operation {
            Operation::Collective { mut request, input, output, factor_at, .. } => {
                if factor_at != 0 {
                    request.scalar = factor(&device, rank, &request, factor_at, &streams.first)?;
                }
                let (input_bytes, output_bytes) = request.buffer_bytes(rank, world)?;
                let (input, output) =
                    (side(&device, input, input_bytes), side(&device, output, output_bytes));
                collective(communicator, &request, &input, &output, &streams.first)?;
            }
            Operation::Send { peer, data, bytes, .. } => {
                sends.push((peer, side(&device, data, bytes as u64)));
            }
            Operation::Recv { peer, data, bytes, .. } => {
                receives.push((peer, side(&device, data, bytes as u64)));
            }
        }
    }
    if !(sends.is_empty() && receives.is_empty()) {
        communicator.send_receive(messages(&sends), messages(&receives), &streams.first)?;
    }
    streams.join(&device).map_err(failed)
}

/// A buffer; nowhere, where the rank has none.
fn side(device: &Arc<Device>, address: usize, bytes: u64) -> DeviceMemory {
    let address = if bytes == 0 { 0 } else { address as u64 };
    // SAFETY: nccl.h asks the caller for buffers of the size that follows from the call, which live until their
    // stream has passed it.
    unsafe { DeviceMemory::borrowed(device, address, bytes) }
}

fn messages(sides: &[(u32, DeviceMemory)]) -> Vec<DeviceMessage<'_>> {
    let at = |memory| DeviceSlice { memory, offset: 0 };
    sides
        .iter()
        .map(|(peer, memory)| DeviceMessage { peer: *peer, at: at(memory), bytes: memory.bytes() })
        .collect()
}

fn collective(
    communicator: &mut GpuCommunicator,
    request: &Request,
    input: &DeviceMemory,
    output: &DeviceMemory,
    stream: &Stream,
) -> Result<(), Error> {
    // A count of zero moves nothing, on every rank.
    if request.count == 0 {
        return Ok(());
    }
    let asked = GpuRequest {
        collective: request.collective,
        dtype: request.dtype,
        op: request.collective.reduces().then_some(request.op),
        scalar_bits: scalar_bits(request)?,
        root: request.collective.rooted().then_some(request.root),
        count: request.count,
        is_apart: false,
    };
    let prepared = communicator.prepare(&asked, input.address() | output.address())?;
    let slice = |memory| DeviceSlice { memory, offset: 0 };
    communicator.run(&prepared, slice(input), slice(output), stream)
}

/// The factor of a pre-multiplied sum that lies in GPU memory, once the stream has come so far that it is there.
fn factor(
    device: &Arc<Device>,
    rank: u32,
    request: &Request,
    address: usize,
    stream: &Stream,
) -> Result<f64, Error> {
    let refuse = |detail: &str| {
        Err(Error::Unsupported { operation: request.collective.to_string(), detail: detail.to_owned() })
    };
    let failed = |source: CudaError| Error::Device {
        rank,
        operation: "reading the factor of an operation".to_owned(),
        source: source.into(),
    };
    if stream.is_capturing().map_err(failed)? {
        return refuse(
            "a factor in GPU memory is read when the call is made, which a stream that is being captured does not \
             allow; make the operation with ncclScalarHostImmediate",
        );
    }
    stream.synchronize().map_err(failed)?;
    let mut bytes = [0; 8];
    let size = request.dtype.size_bytes();
    // SAFETY: nccl.h asks the caller for one element there until the operation is destroyed.
    let memory = unsafe { DeviceMemory::borrowed(device, address as u64, size as u64) };
    memory.read(0, &mut bytes[..size]).map_err(failed)?;
    match operation::factor(request.dtype, u64::from_le_bytes(bytes)) {
        Some(value) => Ok(value),
        None => refuse("a factor beyond 2^53 is not there in this version; use a smaller one"),
    }
}

/// The factor of a pre-multiplied sum.
fn scalar_bits(request: &Request) -> Result<u64, Error> {
    if request.op != ReduceOp::PremulSum || !request.collective.reduces() {
        return Ok(Scalar::one(request.dtype).acc_bits());
    }
    let scalar = Scalar::from_f64(request.dtype, request.scalar);
    scalar.map(Scalar::acc_bits).map_err(|error| Error::Argument {
        operation: request.collective.name(),
        detail: format!("the factor of the operation: {error}"),
    })
}

/// The streams of a group: the one that its calls go on, and the others.
struct Streams {
    first: Stream,
    others: Vec<Stream>,
}

impl Streams {
    fn of(device: &Arc<Device>, operations: &[Operation]) -> Self {
        let mut handles: Vec<usize> = Vec::new();
        for stream in operations.iter().map(Operation::stream) {
            if !handles.contains(&stream) {
                handles.push(stream);
            }
        }
        // SAFETY: nccl.h asks for streams of the communicator's device that live until the calls are enqueued.
        let stream = |handle: usize| unsafe { Stream::borrowed(device, handle) };
        let mut handles = handles.into_iter();
        let first = stream(handles.next().unwrap_or(0));
        Self { first, others: handles.map(stream).collect() }
    }

    /// Lets the first wait for what is on the others.
    fn fork(&self, device: &Arc<Device>) -> Result<(), CudaError> {
        self.others.iter().try_for_each(|stream| self.first.wait_for(&mark(device, stream)?))
    }

    /// Lets the others wait for what is on the first.
    fn join(&self, device: &Arc<Device>) -> Result<(), CudaError> {
        if self.others.is_empty() {
            return Ok(());
        }
        let end = mark(device, &self.first)?;
        self.others.iter().try_for_each(|stream| stream.wait_for(&end))
    }
}

/// An event at a stream's present end.
fn mark(device: &Arc<Device>, stream: &Stream) -> Result<Event, CudaError> {
    let event = Event::new(device)?;
    event.record(stream)?;
    Ok(event)
}
