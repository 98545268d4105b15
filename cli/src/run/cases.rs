//! What is measured: every combination of type, operation, root and size, in nccl-tests' order.

use super::arguments::RunArguments;
use super::sizes;
use crate::outcome::{Failure, Result};
use crate::values::OneOrAll;
use crate::verify::counted;
use ringsmith_ir::entity::Rank;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::communicator::Request;
use ringsmith_runtime::reference;

/// Names the inputs; the same on every rank and in every run.
pub(crate) const SEED: u64 = 1;
/// The factor of `premulsum`: a power of two, so that exact data stays exact.
const SCALAR: f64 = 2.0;

/// One row of the table, before it is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    /// What is computed.
    pub(crate) collective: Collective,
    /// Element type.
    pub(crate) dtype: DataType,
    /// The operation, where something is reduced.
    pub(crate) op: Option<ReduceOp>,
    /// The root, where there is one.
    pub(crate) root: Option<u32>,
    /// How many ranks take part.
    pub(crate) ranks: u32,
    /// Elements, of the whole or of one rank's share.
    pub(crate) count: u64,
}

/// A message of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// The other end.
    pub(crate) peer: u32,
    /// Bytes from the start of the input or output.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// Messages of a rank, in the order of their place in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Messages {
    pub(crate) sends: Vec<Message>,
    pub(crate) receives: Vec<Message>,
}

impl Case {
    /// Bytes of the larger side.
    pub(crate) fn bytes(&self) -> u64 {
        sizes::bytes(self.collective, self.dtype, self.ranks, self.count)
    }

    /// Whether the type means anything: a barrier moves nothing.
    pub(crate) fn moves_data(&self) -> bool {
        self.collective != Collective::Barrier
    }

    /// What the communicator is asked for.
    pub(crate) fn request(&self) -> Request {
        let op = self.op.unwrap_or(ReduceOp::Sum);
        let root = self.root.unwrap_or(0);
        Request {
            collective: self.collective,
            dtype: self.dtype,
            op,
            scalar: SCALAR,
            root,
            count: self.count,
        }
    }

    /// The same for the reference, which knows the right result.
    pub(crate) fn reference(&self) -> reference::Request {
        let op = self.op.unwrap_or(ReduceOp::Sum);
        let request = reference::Request::new(self.collective, self.dtype, op, self.ranks, self.count)
            .and_then(|request| request.with_root(Rank::from_u32(self.root.unwrap_or(0))))
            .and_then(|request| match self.collective {
                Collective::AllToAllV => {
                    request.with_sizes(reference::Sizes::Table(sizes::uneven(self.count, self.ranks)))
                }
                _ => Ok(request),
            });
        request.expect("sizes and roots were checked when the cases were made")
    }

    /// Where a rank's input and output start in one buffer of the larger side's size, in bytes: what in
    /// place means.
    pub(crate) fn in_place_offsets(&self, rank: u32) -> (u64, u64) {
        let own = u64::from(rank) * self.count * self.dtype.size_bytes() as u64;
        let side = |is_block: bool| if is_block { own } else { 0 };
        (side(self.collective.input_is_block()), side(self.collective.output_is_block()))
    }

    /// What a rank sends and receives, where the collective is messages between pairs.
    pub(crate) fn messages(&self, rank: u32) -> Messages {
        let element_bytes = self.dtype.size_bytes() as u64;
        let ranks = self.ranks;
        if self.collective == Collective::SendRecv {
            let bytes = self.count * element_bytes;
            let (next, previous) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            let message = |peer| vec![Message { peer, offset: 0, bytes }];
            return Messages { sends: message(next), receives: message(previous) };
        }
        let table = sizes::uneven(self.count, ranks);
        let elements = |from: u32, to: u32| table[(from * ranks + to) as usize];
        let packed = |elements: &dyn Fn(u32) -> u64| {
            let mut offset = 0;
            let message = |peer| {
                let bytes = elements(peer) * element_bytes;
                offset += bytes;
                Message { peer, offset: offset - bytes, bytes }
            };
            (0..ranks).map(message).collect()
        };
        Messages {
            sends: packed(&|peer| elements(rank, peer)),
            receives: packed(&|peer| elements(peer, rank)),
        }
    }

    /// Whether input and output may share memory.
    pub(crate) fn has_in_place(&self) -> bool {
        has_in_place(self.collective)
    }
}

/// Whether a collective is messages between pairs, exchanged without a plan of its own.
pub(crate) fn is_exchange(collective: Collective) -> bool {
    matches!(collective, Collective::AllToAllV | Collective::SendRecv)
}

/// Whether input and output of a collective may share memory.
pub(crate) fn has_in_place(collective: Collective) -> bool {
    !is_exchange(collective) && collective != Collective::Barrier
}

/// Every case of a run, in order.
///
/// Errors: sizes, types, operations and roots that cannot be run together.
pub(crate) fn cases(arguments: &RunArguments, roots: OneOrAll<u32>, ranks: u32) -> Result<Vec<Case>> {
    let collective = arguments.collective;
    if arguments.min > arguments.max {
        let (min, max) = (arguments.min, arguments.max);
        return Err(Failure::unusable(format_args!("--min {min} is above --max {max}")));
    }
    if arguments.max > isize::MAX as u64 {
        return Err(Failure::unusable(format_args!("--max {}: no memory has so many bytes", arguments.max)));
    }
    let barrier = collective == Collective::Barrier;
    let dtypes: &[DataType] = match &arguments.dtype {
        _ if barrier => &[DataType::Int8],
        OneOrAll::One(dtype) => std::slice::from_ref(dtype),
        OneOrAll::All => &DataType::ALL,
    };
    let ops: Vec<Option<ReduceOp>> = match arguments.op {
        _ if !collective.reduces() => vec![None],
        OneOrAll::One(op) => vec![Some(op)],
        OneOrAll::All => ReduceOp::ALL.into_iter().map(Some).collect(),
    };
    let roots: Vec<Option<u32>> = match roots {
        OneOrAll::One(root) if root >= ranks => {
            return Err(Failure::unusable(format_args!(
                "--root {root} of {}: ranks are 0 to {}",
                counted(ranks as usize, "rank"),
                ranks - 1
            )));
        }
        _ if !collective.rooted() => vec![None],
        OneOrAll::One(root) => vec![Some(root)],
        OneOrAll::All => (0..ranks).map(Some).collect(),
    };
    let sizes = if barrier { vec![0] } else { sizes::sweep(arguments.min, arguments.max, arguments.factor) };
    let mut all = Vec::new();
    for &dtype in dtypes {
        for &op in &ops {
            for &root in &roots {
                all.extend(sizes.iter().map(|&size| {
                    let count = sizes::elements(collective, dtype, ranks, size);
                    Case { collective, dtype, op, root, ranks, count }
                }));
            }
        }
    }
    Ok(all)
}
