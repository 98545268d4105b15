//! The table of settings: one row each. Parsing, the list in docs/settings.md, and what ranks must
//! agree on are all read off it.
//!
//! A row is data and one small function. It looks at nothing but its text; where that names a folder,
//! also at whether a file is there instead, and where it names a tuning, at that.

use super::grammar::{self, HostPort, InterfaceFilter, NameFilter, PortRange, Secret};
use super::selection::EXCHANGED;
use super::{Config, DeviceKind, Net, tuning};
use crate::log::{Level, Subsystems};
use crate::unique_id::UniqueId;
use ringsmith_compiler::plan::MAX_RANKS;
use ringsmith_ir::types::Collective;
use std::path::PathBuf;
use std::sync::Arc;

/// Every collective, as settings name them.
pub const COLLECTIVES: &[&str] = &[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "all_to_all_v",
    "send_recv",
    "barrier",
];

/// Algorithms of NCCL that a filter may name, and that are never chosen here.
const NCCL_ALGORITHMS: [&str; 5] = ["collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"];

/// Every algorithm that a filter may name: the planner's, and NCCL's.
pub fn algorithms() -> &'static [&'static str] {
    static NAMES: std::sync::OnceLock<Vec<&'static str>> = std::sync::OnceLock::new();
    NAMES.get_or_init(|| ringsmith_compiler::plan::names().into_iter().chain(NCCL_ALGORITHMS).collect())
}

/// Every protocol that a filter may name.
pub const PROTOCOLS: &[&str] = &["simple", "ll", "ll128"];

/// Reads a list of algorithms.
///
/// Errors: what cannot be read; a list for what has no algorithm.
pub fn algorithm_list(text: &str) -> Result<NameFilter, String> {
    let list = NameFilter::parse(text, algorithms(), COLLECTIVES)?;
    match EXCHANGED.map(Collective::name).into_iter().find(|name| list.is_about(name)) {
        Some(name) => {
            Err(format!("{name} is exchanged message by message, without an algorithm; leave it out"))
        }
        None => Ok(list),
    }
}

/// Reads a list of protocols.
///
/// Errors: what cannot be read; a list for what goes over simple alone, without it.
pub fn protocol_list(text: &str) -> Result<NameFilter, String> {
    let list = NameFilter::parse(text, PROTOCOLS, COLLECTIVES)?;
    let is_wrong = |name: &&str| list.is_about(name) && !list.permits(name, "simple");
    match EXCHANGED.map(Collective::name).into_iter().find(is_wrong) {
        Some(name) => Err(format!("messages of {name} go over simple alone; say simple, or leave it out")),
        None => Ok(list),
    }
}

/// One setting.
pub struct Setting {
    /// Its name without `RINGSMITH_`.
    pub name: &'static str,
    /// NCCL's name for it, if NCCL has it.
    pub nccl: Option<&'static str>,
    /// What is accepted, for people.
    pub accepts: &'static str,
    /// What holds when it is not set, for people.
    pub default: &'static str,
    /// Whether every rank must have the same value.
    pub agree: bool,
    /// What it does, in one sentence.
    pub does: &'static str,
    /// How its value is used.
    pub read: Read,
}

/// How the value of a setting is used.
pub enum Read {
    /// Put into the configuration. The error says what is accepted.
    Apply(fn(&mut Config, &str) -> Result<(), String>),
    /// Put into the configuration; NCCL's value means something else and has its own reader.
    ApplyWithNccl(fn(&mut Config, &str) -> Result<(), String>, fn(&mut Config, &str) -> Result<(), String>),
    /// Used elsewhere, before or without the configuration: where.
    Elsewhere,
    /// Understood and checked, and without effect on a device of the CPU kind.
    NoEffect(fn(&str) -> Result<(), String>),
}

use Read::{Apply, ApplyWithNccl, Elsewhere, NoEffect};

const fn row(
    name: &'static str,
    accepts: &'static str,
    default: &'static str,
    does: &'static str,
    read: Read,
) -> Setting {
    Setting { name, nccl: None, accepts, default, agree: false, does, read }
}

impl Setting {
    const fn nccl(mut self, name: &'static str) -> Self {
        self.nccl = Some(name);
        self
    }

    const fn agree(mut self) -> Self {
        self.agree = true;
        self
    }
}

/// Every setting, in the order of the documentation.
pub const SETTINGS: &[Setting] = &[
    // Coming together.
    row(
        "INIT_TIMEOUT_S",
        "seconds",
        "120",
        "How long initialisation waits for the other ranks before it names the missing ones.",
        Apply(|c, v| grammar::seconds(v).map(|t| c.init_timeout = t)),
    ),
    row(
        "COMM_ID",
        "`HOST:PORT`",
        "none",
        "Where the root listens, for ranks that cannot pass each other an id; has no secret \
         unless `RINGSMITH_JOB_SECRET` adds one.",
        Apply(|c, v| HostPort::parse(v).map(|a| c.comm_id = Some(a))),
    )
    .nccl("NCCL_COMM_ID"),
    row(
        "JOB_SECRET",
        "any text",
        "none",
        "A secret shared by the ranks of a job, mixed into the handshake.",
        Apply(|c, v| {
            c.job_secret = Some(Secret::new(v));
            Ok(())
        }),
    ),
    row(
        "SOCKET_IFNAME",
        "`eth`, `=eth0,ib0`, `^docker`",
        "all, virtual ones and loopback last",
        "Interfaces to use: beginnings of names; `=` whole names; `^` all but these, with \
         virtual ones and loopback still last.",
        Apply(|c, v| InterfaceFilter::parse(v).map(|f| c.interfaces = f)),
    )
    .nccl("NCCL_SOCKET_IFNAME"),
    row(
        "PORT_RANGE",
        "`50000-50100`",
        "any free port",
        "Ports that listeners may take.",
        Apply(|c, v| PortRange::parse(v).map(|r| c.port_range = Some(r))),
    ),
    row(
        "RUN_DIR",
        "a folder",
        "/tmp/ringsmith-UID",
        "Where ranks of one host that a launcher started find each other; owned by the user, \
         closed to others.",
        Apply(|c, v| folder(v).map(|p| c.run_dir = Some(p))),
    ),
    row("RANK", "0 to 16383", "the launcher's", "This process's rank.", Apply(a_rank)),
    row(
        "WORLD",
        "1 to 16384",
        "the launcher's",
        "The number of ranks.",
        Apply(|_, v| grammar::number(v, 1, MAX_RANKS.into()).map(drop)),
    ),
    row(
        "LOCAL_RANK",
        "0 to 16383",
        "the launcher's",
        "This process's number among the ranks of its host.",
        Apply(a_rank),
    ),
    row(
        "ID",
        "256 hexadecimal digits",
        "none",
        "The unique id of the job, as text.",
        Apply(|c, v| v.parse::<UniqueId>().map(|id| c.id = Some(id)).map_err(|e| e.to_string())),
    ),
    row(
        "HOST_ID",
        "any text",
        "the host's name and boot",
        "Pretends to be another host: ranks with the same text share one.",
        Apply(|c, v| {
            c.host_id = Some(v.to_owned());
            Ok(())
        }),
    ),
    // Waiting.
    row(
        "TIMEOUT_S",
        "seconds",
        "none",
        "How long a collective waits for a peer before it fails.",
        Apply(|c, v| grammar::seconds(v).map(|t| c.timeout = Some(t))),
    ),
    row(
        "STALL_S",
        "seconds",
        "30",
        "After how long a waiting collective says once whom it waits for.",
        Apply(|c, v| grammar::seconds(v).map(|t| c.stall = t)),
    ),
    // Transports.
    row(
        "SHM_DISABLE",
        "0 or 1",
        "0",
        "Keeps ranks of one host from sharing memory; they use sockets.",
        Apply(|c, v| grammar::switch(v).map(|off| c.shm = !off)),
    )
    .nccl("NCCL_SHM_DISABLE"),
    row(
        "NET",
        "`socket`, `ib`",
        "the best that all ranks have",
        "The network between hosts.",
        Apply(|c, v| {
            grammar::find_name(v, &["socket", "ib"])
                .map(|n| c.net = Some(if n == "ib" { Net::Ib } else { Net::Socket }))
        }),
    )
    .nccl("NCCL_NET")
    .agree(),
    row(
        "SOCKET_NCONNS",
        "1 to 16",
        "2",
        "Connections between two ranks that use sockets.",
        Apply(|c, v| grammar::number(v, 1, 16).map(|n| c.socket_connections = n as u32)),
    )
    .agree(),
    row(
        "SLOTS",
        "2 to 64",
        "8",
        "Slots of a FIFO between two ranks.",
        Apply(|c, v| grammar::number(v, 2, 64).map(|n| c.slots = n as u32)),
    )
    .agree(),
    row(
        "SLOT_BYTES",
        "1K to 64M, a multiple of 128",
        "64K",
        "Size of a slot. NCCL's name gives the size of all slots together.",
        ApplyWithNccl(slot_bytes, |c, v| buffer_bytes(v).map(|n| c.fifo_bytes = Some(n))),
    )
    .nccl("NCCL_BUFFSIZE")
    .agree(),
    // Choosing plans.
    row(
        "ALGO",
        "`ring;allreduce:tree,^ring`",
        "all",
        "Algorithms to choose among, for all collectives or one; `^` excludes.",
        Apply(|c, v| algorithm_list(v).map(|f| c.algorithms = Some(f))),
    )
    .nccl("NCCL_ALGO")
    .agree(),
    row(
        "PROTO",
        "`ll,ll128`, `^simple`",
        "all",
        "Protocols to choose among, in the same grammar.",
        Apply(|c, v| protocol_list(v).map(|f| c.protocols = Some(f))),
    )
    .nccl("NCCL_PROTO")
    .agree(),
    row(
        "MIN_CHANNELS",
        "1 to 64",
        "1",
        "Fewest channels of a plan; on GPUs thread blocks of a launch.",
        Apply(|c, v| grammar::number(v, 1, 64).map(|n| c.min_channels = Some(n as u32))),
    )
    .nccl("NCCL_MIN_NCHANNELS")
    .agree(),
    row(
        "MAX_CHANNELS",
        "1 to 64",
        "no limit",
        "Most channels of a plan; on GPUs thread blocks of a launch.",
        Apply(|c, v| grammar::number(v, 1, 64).map(|n| c.max_channels = Some(n as u32))),
    )
    .nccl("NCCL_MAX_NCHANNELS")
    .agree(),
    row(
        "MIN_CTAS",
        "1 to 64",
        "1",
        "The same as `RINGSMITH_MIN_CHANNELS` under another name; of the two the larger counts.",
        Apply(|c, v| grammar::number(v, 1, 64).map(|n| c.min_ctas = Some(n as u32))),
    )
    .nccl("NCCL_MIN_CTAS")
    .agree(),
    row(
        "MAX_CTAS",
        "1 to 64",
        "no limit",
        "The same as `RINGSMITH_MAX_CHANNELS` under another name; of the two the smaller counts.",
        Apply(|c, v| grammar::number(v, 1, 64).map(|n| c.max_ctas = Some(n as u32))),
    )
    .nccl("NCCL_MAX_CTAS")
    .agree(),
    row(
        "TOPO_FILE",
        "a file",
        "what the machine says",
        "The topology to plan for, as NCCL's XML.",
        NoEffect(any_path),
    )
    .nccl("NCCL_TOPO_FILE"),
    row(
        "TOPO_DUMP_FILE",
        "a file",
        "none",
        "Where to write the topology that was found.",
        NoEffect(any_path),
    )
    .nccl("NCCL_TOPO_DUMP_FILE"),
    row(
        "DEVICE",
        "`cpu`, `cuda`",
        "cuda",
        "What `libnccl.so.2` works on: host memory or GPUs.",
        Apply(|c, v| {
            grammar::find_name(v, &["cpu", "cuda"])
                .map(|n| c.device = if n == "cpu" { DeviceKind::Cpu } else { DeviceKind::Cuda })
        }),
    ),
    row(
        "CHECK_POINTERS",
        "0 or 1",
        "0",
        "Refuses buffers that the process cannot use, in calls of `libnccl.so.2` on host memory.",
        Apply(|c, v| grammar::switch(v).map(|on| c.check_pointers = on)),
    )
    .nccl("NCCL_CHECK_POINTERS"),
    row(
        "MULTI_RANK_GPU_ENABLE",
        "0 or 1",
        "0",
        "Allows several ranks on one GPU.",
        Apply(|c, v| grammar::switch(v).map(|on| c.multi_rank_gpu = on)),
    )
    .nccl("NCCL_MULTI_RANK_GPU_ENABLE"),
    // Telling.
    row(
        "DEBUG",
        "`none`, `version`, `warn`, `info`, `trace` (`debug` is the same)",
        "warn",
        "How much is logged.",
        Apply(|c, v| Level::parse(v).map(|l| c.debug = l)),
    )
    .nccl("NCCL_DEBUG"),
    row(
        "DEBUG_SUBSYS",
        "`init,net`, `all`, `^env`",
        "`init,bootstrap,env,jit`",
        "What is logged at `info` and `trace`.",
        Apply(|c, v| Subsystems::parse(v).map(|s| c.debug_subsystems = s)),
    )
    .nccl("NCCL_DEBUG_SUBSYS"),
    row(
        "DEBUG_FILE",
        "a file, `%h` host, `%p` process",
        "standard error",
        "Where the log goes; a pipe needs a reader.",
        Apply(|c, v| path(v).map(|_| c.debug_file = Some(v.to_owned()))),
    )
    .nccl("NCCL_DEBUG_FILE"),
    row("CONF_FILE", "a file", "none", "A file of `NAME=value` lines; variables win over it.", Elsewhere)
        .nccl("NCCL_CONF_FILE"),
    row(
        "NVRTC",
        "a folder",
        "searched for",
        "Where CUDA's run-time compiler lies; no other place is searched then.",
        Apply(|c, v| path(v).map(|p| c.nvrtc = Some(p))),
    ),
    row(
        "BUNDLE",
        "a folder",
        "none",
        "Kernels that `ringsmith compile` has made, used before the cache and NVRTC; damaged ones are refused at initialisation.",
        Apply(|c, v| path(v).map(|p| c.bundle = Some(p))),
    ),
    row(
        "CACHE_DIR",
        "a folder",
        "`ringsmith` in `XDG_CACHE_HOME` or ~/.cache",
        "Where compiled kernels are kept; owned by the user, not writable by others.",
        Apply(|c, v| folder(v).map(|p| c.cache_dir = Some(p))),
    ),
    row(
        "TUNING",
        "a file that `ringsmith tune` wrote",
        "none",
        "What this machine was measured to cost, for the planner.",
        Apply(|c, v| tuning::read(v).map(|found| c.tuning = Some(Arc::new(found)))),
    )
    .agree(),
    row("IB_DISABLE", "0 or 1", "0", "Keeps InfiniBand and RoCE unused.", NoEffect(switch))
        .nccl("NCCL_IB_DISABLE"),
    row("IB_HCA", "a list", "all", "InfiniBand devices to use.", NoEffect(|_| Ok(()))).nccl("NCCL_IB_HCA"),
    row(
        "IB_GID_INDEX",
        "-1 to 255",
        "found, as -1 says",
        "GID of RoCE connections.",
        NoEffect(|v| within(v, -1, 255)),
    )
    .nccl("NCCL_IB_GID_INDEX"),
    row(
        "IB_TC",
        "0 to 255",
        "0",
        "Traffic class of InfiniBand connections.",
        NoEffect(|v| within(v, 0, 255)),
    )
    .nccl("NCCL_IB_TC"),
    row("IB_SL", "0 to 15", "0", "Service level of InfiniBand connections.", NoEffect(|v| within(v, 0, 15)))
        .nccl("NCCL_IB_SL"),
    row(
        "IB_TIMEOUT",
        "0 to 31",
        "20",
        "Timeout exponent of InfiniBand connections.",
        NoEffect(|v| within(v, 0, 31)),
    )
    .nccl("NCCL_IB_TIMEOUT"),
    row("IB_RETRY_CNT", "0 to 7", "7", "Retries of InfiniBand connections.", NoEffect(|v| within(v, 0, 7)))
        .nccl("NCCL_IB_RETRY_CNT"),
    row(
        "CROSS_NIC",
        "0, 1 or 2",
        "2",
        "Whether a ring may change network cards between hosts.",
        NoEffect(|v| within(v, 0, 2)),
    )
    .nccl("NCCL_CROSS_NIC"),
    row("P2P_DISABLE", "0 or 1", "0", "Keeps GPUs from reading each other's memory.", NoEffect(switch))
        .nccl("NCCL_P2P_DISABLE"),
    row(
        "LAUNCH_ORDER_IMPLICIT",
        "0 or 1",
        "0",
        "Orders communicators by the order of calls.",
        NoEffect(switch),
    )
    .nccl("NCCL_LAUNCH_ORDER_IMPLICIT"),
];

/// Names with a known prefix that are not settings of a communications library: other programs and
/// images use them, so they pass in silence.
pub const FOREIGN: &[&str] = &[
    "NCCL_VERSION",
    "NCCL_HOME",
    "NCCL_ROOT",
    "NCCL_ROOT_DIR",
    "NCCL_DIR",
    "NCCL_PATH",
    "NCCL_INCLUDE_DIR",
    "NCCL_LIB_DIR",
    "NCCL_LIBRARY",
    "NCCL_INCLUDE_DIRS",
    "NCCL_LIBRARIES",
];

/// The beginnings of names that belong to nccl-tests and to our own tests.
pub const FOREIGN_PREFIXES: [&str; 2] = ["NCCL_TESTS_", "RINGSMITH_TEST_"];

/// Who the launcher says this process is, which [`crate::launcher`] reads.
/// A rank, which the launcher's part of this crate uses.
fn a_rank(_: &mut Config, text: &str) -> Result<(), String> {
    grammar::number(text, 0, u64::from(MAX_RANKS) - 1).map(drop)
}

fn any_path(text: &str) -> Result<(), String> {
    path(text).map(drop)
}

fn switch(text: &str) -> Result<(), String> {
    grammar::switch(text).map(drop)
}

fn within(text: &str, least: i64, most: i64) -> Result<(), String> {
    match text.parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(()),
        _ => Err(format!("expected a whole number from {least} to {most}")),
    }
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') { Err("expected a path".into()) } else { Ok(text.into()) }
}

/// A folder that is there, or that could be made.
fn folder(text: &str) -> Result<PathBuf, String> {
    let path = path(text)?;
    let is_file = match std::fs::metadata(&path) {
        Ok(found) => !found.is_dir(),
        // A file stands where a folder on the way would.
        Err(error) => error.kind() == std::io::ErrorKind::NotADirectory,
    };
    if is_file {
        return Err("expected a folder, and there is a file; name another place, or remove the file".into());
    }
    Ok(path)
}

fn slot_bytes(config: &mut Config, text: &str) -> Result<(), String> {
    match grammar::bytes(text) {
        Ok(n @ 1024..=0x400_0000) if n % 128 == 0 => config.slot_bytes = n as u32,
        _ => return Err("expected a number of bytes from 1K to 64M, a multiple of 128".into()),
    }
    Ok(())
}

/// All slots of a FIFO together. Divided by the number of slots once all settings are known.
fn buffer_bytes(text: &str) -> Result<u64, String> {
    grammar::bytes(text)
        .and_then(|n| if n == 0 { Err("expected a number of bytes above 0".into()) } else { Ok(n) })
}
