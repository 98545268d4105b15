//! What a caller asks for: a collective, its element type, operation, root and count, and the memory
//! it works on. Checked here, before anything moves.

use crate::error::Error;
use crate::memory::foreign::Foreign;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};

/// A collective call, without its memory. Every rank must make the same one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// What to compute.
    pub collective: Collective,
    /// Element type.
    pub dtype: DataType,
    /// How values are combined; not looked at where nothing is.
    pub op: ReduceOp,
    /// The factor of `premulsum`, in the element type's nearest value; not looked at elsewhere. Ranks
    /// may give different ones.
    pub scalar: f64,
    /// The root of a rooted collective; not looked at elsewhere.
    pub root: u32,
    /// Elements: of the whole, or of one rank's block where the collective has blocks.
    pub count: u64,
}

impl Request {
    /// A sum (or a plain movement) from root 0.
    pub fn new(collective: Collective, dtype: DataType, count: u64) -> Self {
        Self { collective, dtype, op: ReduceOp::Sum, scalar: 1.0, root: 0, count }
    }

    /// The same with another operation.
    #[must_use]
    pub fn op(self, op: ReduceOp) -> Self {
        Self { op, ..self }
    }

    /// The same with another root.
    #[must_use]
    pub fn root(self, root: u32) -> Self {
        Self { root, ..self }
    }

    /// Bytes of one rank's part: the whole buffer, or one block.
    pub(crate) fn part_bytes(&self) -> Option<u64> {
        self.count.checked_mul(self.dtype.size_bytes() as u64)
    }

    /// Bytes of the larger side.
    ///
    /// Errors: `Argument` when a buffer of this size cannot exist.
    pub fn whole_bytes(&self, world: u32) -> Result<u64, Error> {
        let parts = if self.collective.blocked() { u64::from(world) } else { 1 };
        self.part_bytes()
            .and_then(|part| part.checked_mul(parts))
            .filter(|bytes| *bytes <= isize::MAX as u64)
            .ok_or_else(|| Error::Argument {
                operation: self.collective.name(),
                detail: format!(
                    "{} elements of {} from each of {world} ranks are more than memory can hold",
                    self.count, self.dtype
                ),
            })
    }

    /// Bytes that `rank` must send and receive, in separate buffers. Zero where the rank has no such
    /// side, whatever buffer it passes.
    ///
    /// Errors: `Argument` as [`Self::whole_bytes`].
    pub fn buffer_bytes(&self, rank: u32, world: u32) -> Result<(u64, u64), Error> {
        let whole = self.whole_bytes(world)?;
        let part = self.part_bytes().expect("the whole was computed from it");
        let at_root = |bytes| if rank == self.root { bytes } else { 0 };
        Ok(match self.collective {
            Collective::AllReduce | Collective::AllToAll => (whole, whole),
            Collective::AllGather => (part, whole),
            Collective::ReduceScatter => (whole, part),
            Collective::Broadcast => (at_root(whole), whole),
            Collective::Reduce => (whole, at_root(whole)),
            Collective::Gather => (part, at_root(whole)),
            Collective::Scatter => (at_root(whole), part),
            Collective::Barrier | Collective::AllToAllV | Collective::SendRecv => (0, 0),
        })
    }

    pub(crate) fn check(&self, world: u32) -> Result<(), Error> {
        if matches!(self.collective, Collective::AllToAllV | Collective::SendRecv) {
            return Err(Error::Unsupported {
                operation: self.collective.to_string(),
                detail: "it has a size per pair of ranks: give its sends and receives to run_group"
                    .to_owned(),
            });
        }
        if self.collective.rooted() && self.root >= world {
            return Err(Error::Argument {
                operation: self.collective.name(),
                detail: format!("root {} of {world} ranks; ranks are 0 to {}", self.root, world - 1),
            });
        }
        Ok(())
    }
}

/// The memory of a collective call.
#[derive(Debug)]
pub enum Buffers<'a> {
    /// Input and output in one buffer of the larger side's size. Where a collective has blocks, a
    /// rank's own block lies at its place inside.
    InPlace(&'a mut [u8]),
    /// Input and output apart. A side that the rank does not have may be empty.
    Apart {
        /// Input.
        send: &'a [u8],
        /// Output.
        recv: &'a mut [u8],
    },
    /// Memory of a caller who passes addresses without lengths, as C does. Where a collective has blocks, a
    /// rank's own block may lie at its place inside the whole.
    Foreign(Foreign),
}

/// Pointers of one call, checked.
#[derive(Clone, Copy)]
pub(crate) struct Pointers {
    pub(crate) input: *const u8,
    pub(crate) output: *mut u8,
}

impl Buffers<'_> {
    /// Checks the lengths and finds where this rank's input and output start.
    ///
    /// Errors: `Argument` naming the side, its length and the length it must have.
    pub(crate) fn pointers(&mut self, request: &Request, rank: u32, world: u32) -> Result<Pointers, Error> {
        let (send_bytes, recv_bytes) = request.buffer_bytes(rank, world)?;
        let enough = |side: &str, have: usize, need: u64| {
            if have as u64 >= need {
                return Ok(());
            }
            Err(Error::Argument {
                operation: request.collective.name(),
                detail: format!(
                    "rank {rank}'s {side} has {have} bytes; {} elements of {} need {need}",
                    request.count, request.dtype
                ),
            })
        };
        match self {
            Self::Foreign(foreign) => {
                Ok(Pointers { input: foreign.input(send_bytes)?, output: foreign.output(recv_bytes)? })
            }
            Self::Apart { send, recv } => {
                enough("send buffer", send.len(), send_bytes)?;
                enough("receive buffer", recv.len(), recv_bytes)?;
                Ok(Pointers { input: send.as_ptr(), output: recv.as_mut_ptr() })
            }
            Self::InPlace(buffer) => {
                enough("buffer", buffer.len(), request.whole_bytes(world)?)?;
                let part = request.part_bytes().expect("the whole was computed from it") as usize;
                let whole = buffer.as_mut_ptr();
                let own = whole.wrapping_add(rank as usize * part);
                let side = |is_block: bool| if is_block { own } else { whole };
                Ok(Pointers {
                    input: side(request.collective.input_is_block()),
                    output: side(request.collective.output_is_block()),
                })
            }
        }
    }
}

/// One call of a group.
#[derive(Debug)]
pub enum Call<'a> {
    /// A collective.
    Collective(Request, Buffers<'a>),
    /// A message to a rank.
    Send {
        /// Who gets it.
        peer: u32,
        /// What is sent.
        data: &'a [u8],
    },
    /// A message from a rank.
    Recv {
        /// Who sends it.
        peer: u32,
        /// Where it goes.
        data: &'a mut [u8],
    },
}
