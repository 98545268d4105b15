//! Communicators: ids, initialisation, division, farewell.

use super::{Handle, get, grouped, on, put, text};
use crate::abi::{
    CONFIG_MAGIC, ConfigFields, NO_COLOR, SHRINK_ABORT, SMALLEST_CONFIG_BYTES, SimInfo, UniqueIdBytes,
};
use crate::arguments;
use crate::communicator::{self, Comm, Done};
use crate::device;
use crate::group::{self, Job};
use crate::outcome::Failure;
use crate::{abi, places, process, registry};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::unique_id::UniqueId;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// Most ranks that one call makes of a process. Ours: each joins in a thread of its own, and no host has more
/// devices.
const MOST_RANKS_OF_A_PROCESS: c_int = 1024;

/// Settings and whether calls block, from a program's configuration or none.
///
/// # Safety
/// `config` is null, or as long as it says and made with its initialiser.
unsafe fn configured(
    config: *const ConfigFields,
    base: &Config,
    inherited: bool,
) -> Result<(Config, bool), Failure> {
    let mut fields = ConfigFields::nothing_given();
    if config.is_null() {
        return arguments::configure(base, &fields, None, inherited);
    }
    // SAFETY: the smallest configuration has these.
    let (size, magic) = unsafe {
        ((&raw const (*config).size).read_unaligned(), (&raw const (*config).magic).read_unaligned())
    };
    if magic != CONFIG_MAGIC || size < SMALLEST_CONFIG_BYTES {
        return Err(Failure::argument(
            "config was not initialised; begin with ncclConfig_t config = NCCL_CONFIG_INITIALIZER",
        ));
    }
    let bytes = size.min(size_of::<ConfigFields>());
    // SAFETY: the program's structure has `size` bytes, ours has at least as many as are copied.
    unsafe { std::ptr::copy_nonoverlapping(config.cast::<u8>(), (&raw mut fields).cast::<u8>(), bytes) };
    let net = match fields.net_name.is_null() {
        true => None,
        // SAFETY: it is not null, so a text of the program's.
        false => Some(unsafe { text("netName", fields.net_name) }?),
    };
    arguments::configure(base, &fields, net.as_deref(), inherited)
}

/// Begins a rank of an id, and gives its handle.
///
/// # Safety
/// `place` is null or writable; `config` as [`configured`] has it.
unsafe fn begin_rank(
    function: &'static str,
    place: *mut Handle,
    id: &UniqueIdBytes,
    (world, rank): (c_int, c_int),
    config: *const ConfigFields,
) -> Result<Done, Failure> {
    grouped(|| {
        // SAFETY: the caller's promise.
        unsafe { put("comm", place, std::ptr::null_mut()) }?;
        // SAFETY: the caller's promise.
        let (config, blocking) = unsafe { configured(config, process::settings()?, true) }?;
        let (world, rank) = arguments::place(world, rank)?;
        device::check(&config)?;
        let id = UniqueId::from_bytes(&id.0).map_err(|error| Failure::argument(error.to_string()))?;
        let number = device::current(&config)?;
        let comm = registry::add(Comm::starting(rank, world, number, blocking, config));
        let joining = comm.clone();
        let done = group::job(&comm, move || joining.join(function, &id)).inspect_err(|_| forget(&comm))?;
        // SAFETY: the caller's promise.
        unsafe { put("comm", place, comm.handle as Handle) }?;
        Ok(done)
    })
}

/// Begins a communicator of some ranks of `parent`, and gives its handle.
///
/// # Safety
/// `place` is null or writable.
unsafe fn begin_part(
    parent: &Arc<Comm>,
    place: *mut Handle,
    (config, blocking): (Config, bool),
    make: impl FnOnce(&Arc<Comm>) -> Result<(), Failure> + Send + 'static,
) -> Result<Done, Failure> {
    // Its own rank and number of ranks are known when it has joined.
    let child = registry::add(Comm::starting(parent.rank(), parent.world(), parent.device, blocking, config));
    let joining = child.clone();
    let done = group::job(parent, move || make(&joining)).inspect_err(|_| forget(&child))?;
    // SAFETY: the caller's promise.
    unsafe { put("newcomm", place, child.handle as Handle) }?;
    Ok(done)
}

/// Makes a part of a communicator, or takes part in it.
fn part(comm: Handle, call: impl FnOnce(&Arc<Comm>) -> Result<Done, Failure>) -> Result<Done, Failure> {
    grouped(|| on(comm, call))
}

/// Refuses flags but the one that there is.
fn only(name: &str, flags: c_int, accepted: c_int, spelling: &str) -> Result<(), Failure> {
    if flags == accepted {
        return Ok(());
    }
    Err(Failure::argument(format!(
        "{name} is {flags}; in this version only {accepted} ({spelling}) is there"
    )))
}

/// The devices of a list, or 0 to `count` - 1 without one.
///
/// # Safety
/// `devices` is null or has `count` readable numbers.
unsafe fn device_numbers(count: c_int, devices: *const c_int) -> Result<Vec<c_int>, Failure> {
    if devices.is_null() {
        return Ok((0..count).collect());
    }
    let mut numbers = Vec::new();
    for at in 0..count as usize {
        // SAFETY: the caller's promise.
        let number = unsafe { get("devlist", devices.add(at)) }?;
        if number < 0 || numbers.contains(&number) {
            return Err(Failure::argument(format!(
                "devlist[{at}] is {number}: device numbers start at 0, and each may be there once"
            )));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

/// Takes back the handle of a communicator that never was.
fn forget(comm: &Arc<Comm>) {
    // It was added by this call: it is there.
    let _ = communicator::destroy(comm.handle);
}

exports! {
    fn ncclGetUniqueId, pncclGetUniqueId(id: *mut UniqueIdBytes) {
        if id.is_null() {
            return Err(Failure::argument("uniqueId is null; pass the address of an ncclUniqueId"));
        }
        device::check(process::settings()?)?;
        put("uniqueId", id, UniqueIdBytes(*process::make_id()?.as_bytes()))
    }

    fn ncclCommInitRank, pncclCommInitRank(comm: *mut Handle, world: c_int, id: UniqueIdBytes, rank: c_int) {
        begin_rank("ncclCommInitRank", comm, &id, (world, rank), std::ptr::null())
    }

    fn ncclCommInitRankConfig, pncclCommInitRankConfig(
        comm: *mut Handle,
        world: c_int,
        id: UniqueIdBytes,
        rank: c_int,
        config: *const ConfigFields,
    ) {
        begin_rank("ncclCommInitRankConfig", comm, &id, (world, rank), config)
    }

    fn ncclCommInitRankScalable, pncclCommInitRankScalable(
        comm: *mut Handle,
        world: c_int,
        rank: c_int,
        ids: c_int,
        first_id: *const UniqueIdBytes,
        config: *const ConfigFields,
    ) {
        put("newcomm", comm, std::ptr::null_mut())?;
        if ids < 1 || ids > world {
            return Err(Failure::argument(format!("nId is {ids}; give one id to as many as there are ranks")));
        }
        // One root serves every rank: the first id is enough, and the same everywhere.
        let id = get("commIds", first_id)?;
        begin_rank("ncclCommInitRankScalable", comm, &id, (world, rank), config)
    }

    fn ncclCommInitAll, pncclCommInitAll(comms: *mut Handle, count: c_int, devices: *const c_int) {
        grouped(|| {
            if comms.is_null() || !(1..=MOST_RANKS_OF_A_PROCESS).contains(&count) {
                return Err(Failure::argument(format!(
                    "ncclCommInitAll for {count} ranks; give an array of 1 to {MOST_RANKS_OF_A_PROCESS}"
                )));
            }
            let settings = process::settings()?;
            device::check(settings)?;
            let numbers = device_numbers(count, devices)?;
            let id = process::make_id()?;
            let starting = |(rank, number)| {
                registry::add(Comm::starting(rank, count as u32, number, true, settings.clone()))
            };
            let made: Vec<Arc<Comm>> = (0..).zip(numbers).map(starting).collect();
            let join = |comm: &Arc<Comm>| {
                let joining = comm.clone();
                (comm.clone(), Box::new(move || joining.join("ncclCommInitAll", &id)) as Job)
            };
            let done = group::jobs(made.iter().map(join).collect()).inspect_err(|_| made.iter().for_each(forget))?;
            for (at, comm) in made.iter().enumerate() {
                put("comm", comms.add(at), comm.handle as Handle)?;
            }
            Ok(done)
        })
    }

    fn ncclCommFinalize, pncclCommFinalize(comm: Handle) {
        grouped(|| on(comm, |comm| {
            comm.ready()?;
            let leaving = comm.clone();
            group::job(comm, move || leaving.finalize())
        }))
    }

    fn ncclCommDestroy, pncclCommDestroy(comm: Handle) {
        communicator::destroy(comm as usize)?;
        Ok(Done::Now)
    }

    fn ncclCommAbort, pncclCommAbort(comm: Handle) {
        communicator::abort(comm as usize)?;
        Ok(Done::Now)
    }

    fn ncclCommRevoke, pncclCommRevoke(comm: Handle, flags: c_int) {
        on(comm, |comm| {
            only("revokeFlags", flags, 0, "NCCL_REVOKE_DEFAULT")?;
            comm.revoke()?;
            Ok(Done::Now)
        })
    }

    fn ncclCommSplit, pncclCommSplit(
        comm: Handle,
        color: c_int,
        key: c_int,
        new_comm: *mut Handle,
        config: *const ConfigFields,
    ) {
        put("newcomm", new_comm, std::ptr::null_mut())?;
        part(comm, |parent| {
            parent.ready()?;
            if color < NO_COLOR {
                return Err(Failure::argument(format!(
                    "{}: color is {color}; give a number from 0 on, or NCCL_SPLIT_NOCOLOR",
                    parent.name()
                )));
            }
            let dividing = parent.clone();
            if color == NO_COLOR {
                return group::job(parent, move || communicator::split_off(&dividing));
            }
            let configured = configured(config, &parent.config, parent.blocking)?;
            begin_part(parent, new_comm, configured, move |child| {
                communicator::split(&dividing, (Some(color as u32), key), child)
            })
        })
    }

    fn ncclCommShrink, pncclCommShrink(
        comm: Handle,
        excluded: *const c_int,
        excluded_count: c_int,
        new_comm: *mut Handle,
        config: *const ConfigFields,
        flags: c_int,
    ) {
        put("newcomm", new_comm, std::ptr::null_mut())?;
        part(comm, |parent| {
            if flags == SHRINK_ABORT {
                return Err(Failure::usage(format!(
                    "{}: NCCL_SHRINK_ABORT is not there in this version; abort the communicator, and make another one of \
                     the ranks that are left, with a new id",
                    parent.name()
                )));
            }
            only("shrinkFlags", flags, 0, "NCCL_SHRINK_DEFAULT")?;
            parent.ready()?;
            let mut without = Vec::new();
            for at in 0..excluded_count {
                // The list has as many entries as it says.
                let number = get("excludeRanksList", excluded.add(at as usize))?;
                without.push(arguments::rank("excludeRanksList: rank", number, parent)?);
            }
            if without.is_empty() || without.contains(&parent.rank()) {
                return Err(Failure::argument(format!(
                    "{}: excludeRanksList has {excluded_count} ranks: give at least one, and not the one that calls: only \
                     ranks that stay make this call",
                    parent.name()
                )));
            }
            let configured = configured(config, &parent.config, parent.blocking)?;
            let shrinking = parent.clone();
            begin_part(parent, new_comm, configured, move |child| {
                communicator::shrink(&shrinking, &without, child)
            })
        })
    }

    fn ncclCommSuspend, pncclCommSuspend(comm: Handle, flags: c_int) {
        on(comm, |comm| {
            only("flags", flags, 1, "NCCL_SUSPEND_MEM")?;
            comm.suspend()?;
            Ok(Done::Now)
        })
    }

    fn ncclCommResume, pncclCommResume(comm: Handle) {
        on(comm, |comm| {
            comm.resume()?;
            Ok(Done::Now)
        })
    }

    fn ncclGroupStart, pncclGroupStart() {
        group::start();
        Ok(Done::Now)
    }

    fn ncclGroupEnd, pncclGroupEnd() {
        group::end()
    }

    fn ncclGroupSimulateEnd, pncclGroupSimulateEnd(info: *mut SimInfo) {
        if !info.is_null() {
            let given = get("simInfo", info)?;
            if given.magic != abi::SIM_MAGIC {
                return Err(Failure::argument(
                    "simInfo was not initialised; begin with ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER",
                ));
            }
        }
        let total_us = group::simulate()?;
        if !info.is_null() {
            put("simInfo", &raw mut (*info).estimated_time, total_us as f32)?;
        }
        Ok(Done::Now)
    }

    fn ncclMemAlloc, pncclMemAlloc(place: *mut *mut c_void, bytes: usize) {
        put("ptr", place, std::ptr::null_mut())?;
        put("ptr", place, device::allocate(process::settings()?, bytes)? as *mut c_void)
    }

    fn ncclMemFree, pncclMemFree(address: *mut c_void) {
        if !address.is_null() {
            drop(places::take(address as usize)?);
        }
        Ok(Done::Now)
    }
}
