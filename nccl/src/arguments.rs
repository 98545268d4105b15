//! Arguments of calls, checked: what can be known to be wrong before anybody waits for it.

use crate::abi::{self, ConfigFields, FIRST_OWN_OP, UNDEFINED};
use crate::communicator::{Comm, Factor};
use crate::device;
use crate::operation::Operation;
use crate::outcome::Failure;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::communicator::Request;
use ringsmith_runtime::config::{Config, Net};
use std::ffi::c_int;

/// A collective as C calls it.
pub(crate) struct CollectiveCall {
    pub(crate) function: &'static str,
    pub(crate) collective: Collective,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) count: usize,
    pub(crate) dtype: c_int,
    pub(crate) op: c_int,
    pub(crate) root: c_int,
    pub(crate) stream: usize,
}

impl CollectiveCall {
    /// Checks the call for a communicator.
    ///
    /// Errors: type, operation, root, a count beyond memory, a null or partly overlapping buffer.
    pub(crate) fn check(&self, comm: &Comm) -> Result<Operation, Failure> {
        let dtype = data_type(self.dtype)?;
        let (op, factor) = match self.collective.reduces() {
            true => operation(comm, self.op, dtype)?,
            false => (ReduceOp::Sum, Factor::Value(1.0)),
        };
        let (scalar, factor_at) = match factor {
            Factor::Value(value) => (value, 0),
            Factor::At(address) => (1.0, address),
        };
        let root = if self.collective.rooted() { rank("root", self.root, comm)? } else { 0 };
        let count = self.count as u64;
        let request = Request { collective: self.collective, dtype, op, scalar, root, count };
        let (input_bytes, output_bytes) = request.buffer_bytes(comm.rank(), comm.world())?;
        check_buffer(comm, Side::Input, self.input, input_bytes)?;
        check_buffer(comm, Side::Output, self.output, output_bytes)?;
        self.check_overlap(comm, &request, input_bytes, output_bytes)?;
        Ok(Operation::Collective {
            function: self.function,
            request,
            input: self.input,
            output: self.output,
            factor_at,
            stream: self.stream,
        })
    }

    /// Input and output are apart, or lie as the collective's in-place form has them.
    fn check_overlap(
        &self,
        comm: &Comm,
        request: &Request,
        input_bytes: u64,
        output_bytes: u64,
    ) -> Result<(), Failure> {
        let (input, output) = (self.input as u64, self.output as u64);
        let is_apart = input_bytes == 0
            || output_bytes == 0
            || input.saturating_add(input_bytes) <= output
            || output.saturating_add(output_bytes) <= input;
        let block = u64::from(comm.rank()) * request.count * request.dtype.size_bytes() as u64;
        let in_place = match (request.collective.input_is_block(), request.collective.output_is_block()) {
            (true, false) => input == output.saturating_add(block),
            (false, true) => output == input.saturating_add(block),
            _ => input == output,
        };
        if is_apart || in_place {
            return Ok(());
        }
        Err(Failure::argument(format!(
            "{}: the send buffer ({input:#x}, {input_bytes} bytes) and the receive buffer ({output:#x}, {output_bytes} \
             bytes) overlap in part; give separate buffers, or lay them as {} in place has them",
            comm.name(),
            request.collective
        )))
    }
}

/// What a call does with a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// It reads it.
    Input,
    /// It writes it.
    Output,
}

/// A buffer is there, as far as can be known: not null and, with `NCCL_CHECK_POINTERS`, in memory that the
/// process may use so.
fn check_buffer(comm: &Comm, side: Side, address: usize, bytes: u64) -> Result<(), Failure> {
    let name = match side {
        Side::Input => "send",
        Side::Output => "receive",
    };
    if bytes == 0 {
        return Ok(());
    }
    if address == 0 {
        return Err(Failure::argument(format!(
            "{}: the {name} buffer is null, and the call needs {bytes} bytes of it",
            comm.name()
        )));
    }
    if !comm.config.check_pointers {
        return Ok(());
    }
    device::check_memory(&comm.config, side, address, bytes).map_err(|why| {
        Failure::argument(format!(
            "{}: the {name} buffer ({address:#x}, {bytes} bytes) {why}; pass memory that is there until the call is done",
            comm.name()
        ))
    })
}

/// A message's peer and its size in bytes.
///
/// Errors: peer, type, a count beyond memory, a buffer that is not there.
pub(crate) fn message(
    comm: &Comm,
    peer: c_int,
    side: Side,
    (data, count, dtype): (usize, usize, c_int),
) -> Result<(u32, usize), Failure> {
    let peer = rank("peer", peer, comm)?;
    let dtype = data_type(dtype)?;
    let bytes = count.checked_mul(dtype.size_bytes()).filter(|bytes| *bytes <= isize::MAX as usize);
    let bytes = bytes.ok_or_else(|| {
        Failure::argument(format!(
            "{}: {count} elements of {dtype} are more than memory can hold",
            comm.name()
        ))
    })?;
    check_buffer(comm, side, data, bytes as u64)?;
    Ok((peer, bytes))
}

/// An element type.
pub(crate) fn data_type(number: c_int) -> Result<DataType, Failure> {
    abi::data_type(number).ok_or_else(|| {
        Failure::argument(format!(
            "{number} is no ncclDataType_t; types are 0 (ncclInt8) to 11 (ncclFloat8e5m2)"
        ))
    })
}

/// A root or peer.
pub(crate) fn rank(what: &str, number: c_int, comm: &Comm) -> Result<u32, Failure> {
    u32::try_from(number).ok().filter(|rank| *rank < comm.world()).ok_or_else(|| {
        Failure::argument(format!(
            "{}: {what} {number} is no rank; ranks are 0 to {}",
            comm.name(),
            comm.world() - 1
        ))
    })
}

/// An operation, and its factor.
fn operation(comm: &Comm, number: c_int, dtype: DataType) -> Result<(ReduceOp, Factor), Failure> {
    if let Some(op) = abi::reduce_op(number) {
        return Ok((op, Factor::Value(1.0)));
    }
    let own = usize::try_from(number - FIRST_OWN_OP).ok().and_then(|at| comm.factor(at));
    match own {
        Some((made_for, factor)) if made_for == dtype => Ok((ReduceOp::PremulSum, factor)),
        Some((made_for, _)) => Err(Failure::argument(format!(
            "{}: operation {number} was made for {made_for}, and the call is for {dtype}",
            comm.name()
        ))),
        None => Err(Failure::argument(format!(
            "{}: {number} is no ncclRedOp_t of this communicator; operations are 0 (ncclSum) to 4 (ncclAvg) and what \
             ncclRedOpCreatePreMulSum gave for it",
            comm.name()
        ))),
    }
}

/// The number of ranks and a rank of it.
pub(crate) fn place(world: c_int, rank: c_int) -> Result<(u32, u32), Failure> {
    let world = u32::try_from(world).ok().filter(|world| *world > 0).ok_or_else(|| {
        Failure::argument(format!("nranks is {world}; a communicator has at least one rank"))
    })?;
    let rank = u32::try_from(rank)
        .ok()
        .filter(|rank| *rank < world)
        .ok_or_else(|| Failure::argument(format!("rank {rank} of {world}; ranks are 0 to {}", world - 1)))?;
    Ok((world, rank))
}

/// What a configuration says: the settings with its wishes, and whether calls block.
///
/// Errors: a number that NCCL does not have, wishes that contradict each other, a network that is not there.
pub(crate) fn configure(
    base: &Config,
    fields: &ConfigFields,
    net: Option<&str>,
    inherited: bool,
) -> Result<(Config, bool), Failure> {
    let mut config = base.clone();
    let wrong = |name: &str, value: c_int, accepted: &str| -> Result<(Config, bool), Failure> {
        Err(Failure::argument(format!("config: {name} is {value}; {accepted} is accepted")))
    };
    let blocking = match fields.blocking {
        UNDEFINED => inherited,
        0 => false,
        1 => true,
        other => return wrong("blocking", other, "0 or 1"),
    };
    let channels = |name: &str, value: c_int| -> Result<Option<u32>, Failure> {
        match value {
            UNDEFINED => Ok(None),
            1.. => Ok(Some(value.min(64) as u32)),
            other => wrong(name, other, "a number from 1 on").map(|_| None),
        }
    };
    let (least, most) = (channels("minCTAs", fields.min_ctas)?, channels("maxCTAs", fields.max_ctas)?);
    if let (Some(least), Some(most)) = (least, most)
        && least > most
    {
        return wrong("minCTAs", least as c_int, "at most maxCTAs");
    }
    // As in NCCL, whoever starts a program has the last word.
    config.min_ctas = config.min_ctas.or(least);
    config.max_ctas = config.max_ctas.or(most);
    match net.map(str::to_ascii_lowercase).as_deref() {
        None | Some("") => {}
        Some("socket") => config.net = Some(Net::Socket),
        Some(other) => {
            return Err(Failure::usage(format!(
                "config: netName {other:?} is no network of this version; leave it out, or say \"Socket\""
            )));
        }
    }
    Ok((config, blocking))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channels(variables: &[(&str, &str)], min_ctas: c_int, max_ctas: c_int) -> (Option<u32>, Option<u32>) {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let (base, _) = Config::from_vars(variables).expect("the variables are right");
        let fields = ConfigFields { min_ctas, max_ctas, ..ConfigFields::nothing_given() };
        let (config, _) = configure(&base, &fields, None, true).expect("the configuration is right");
        config.channels()
    }

    #[test]
    fn a_programs_ctas_bound_its_communicator_and_variables_win() {
        assert_eq!(channels(&[], UNDEFINED, UNDEFINED), (None, None));
        assert_eq!(channels(&[], 2, 16), (Some(2), Some(16)));
        assert_eq!(channels(&[("NCCL_MAX_CTAS", "4")], UNDEFINED, 16), (None, Some(4)));
        assert_eq!(channels(&[("NCCL_MAX_CTAS", "32")], UNDEFINED, 16), (None, Some(32)));
        // Limits of channels hold beside both.
        assert_eq!(channels(&[("NCCL_MAX_NCHANNELS", "8")], 2, 16), (Some(2), Some(8)));
        // A program that wants more than it may have gets what it may have.
        assert_eq!(channels(&[("NCCL_MAX_CTAS", "4")], 8, 16), (Some(4), Some(4)));
        assert_eq!(channels(&[], 1, 1000), (Some(1), Some(64)));
    }
}
