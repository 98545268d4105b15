//! include/nccl.h beside the library: numbers and layouts, languages, and the functions that are exported.

use crate::Outcome;
use crate::programs::{self, Programs, SONAME, ran, root};
use libtest_mimic::Failed;
use nccl::abi::{self, Code, ConfigFields, SimInfo, UniqueIdBytes};
use std::collections::BTreeSet;
use std::mem::offset_of;
use std::process::Command;

/// Host functions of NCCL's device interface, which the header leaves out.
const DEVICE_INTERFACE: [&str; 15] = [
    "CommQueryProperties",
    "DevCommCreate",
    "DevCommDestroy",
    "GetLsaMultimemDevicePointer",
    "GetMultimemDevicePointer",
    "GetLsaDevicePointer",
    "GetPeerDevicePointer",
    "TeamWorld",
    "TeamLsa",
    "TeamRail",
    "TeamRankToWorld",
    "TeamRankToLsa",
    "LLA2ACalcSlots",
    "LLA2ACreateRequirement",
    "LsaBarrierCreateRequirement",
];

/// What callers look for when they are loaded: PyTorch 2.11's undefined symbols, cupy's and vLLM's lists.
const CALLERS: [(&str, &str); 3] = [
    (
        "PyTorch",
        "AllGather AllReduce AlltoAll Bcast Broadcast CommAbort CommCount CommDeregister CommDestroy CommFinalize \
         CommGetAsyncError CommInitAll CommInitRank CommInitRankConfig CommInitRankScalable CommRegister CommShrink \
         CommSplit CommUserRank CommWindowRegister CommWindowDeregister DevCommCreate DevCommDestroy GetErrorString \
         GetLastError GetUniqueId GetVersion GroupStart GroupEnd GroupSimulateEnd MemAlloc MemFree Recv Send \
         RedOpCreatePreMulSum RedOpDestroy Reduce ReduceScatter CommSuspend CommResume CommMemStats PutSignal Signal \
         WaitSignal",
    ),
    (
        "cupy",
        "GetErrorString GetVersion CommGetAsyncError GetUniqueId CommInitRank CommInitAll GroupStart GroupEnd \
         CommDestroy CommAbort CommCuDevice CommUserRank CommCount AllReduce Reduce Broadcast Bcast ReduceScatter \
         AllGather Send Recv CommSplit",
    ),
    (
        "vLLM",
        "GetErrorString GetVersion GetUniqueId CommInitRank AllReduce AllGather ReduceScatter Reduce Broadcast Send \
         Recv GroupStart GroupEnd CommDestroy CommWindowRegister CommWindowDeregister",
    ),
];

/// Expressions of C and what they must be: the library's own numbers.
pub(crate) fn table() -> Vec<(String, i64)> {
    let mut table: Vec<(String, i64)> = Vec::new();
    let mut add = |name: &str, value: i64| table.push((name.to_owned(), value));
    add("NCCL_VERSION_CODE", abi::VERSION.into());
    add("NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH)", abi::VERSION.into());
    add("NCCL_VERSION(2, 8, 3)", 2803);
    add("NCCL_API_MAGIC", abi::CONFIG_MAGIC.into());
    add("NCCL_CONFIG_UNDEF_INT", abi::UNDEFINED.into());
    add("NCCL_SPLIT_NOCOLOR", abi::NO_COLOR.into());
    add("NCCL_SHRINK_ABORT", abi::SHRINK_ABORT.into());
    add("ncclNumOps", abi::FIRST_OWN_OP.into());
    add("ncclMaxRedOp", i32::MAX.into());
    add("sizeof(ncclRedOp_t)", 4);
    add("sizeof(ncclResult_t)", 4);
    add("sizeof(ncclDataType_t)", 4);
    add("sizeof(ncclUniqueId)", size_of::<UniqueIdBytes>() as i64);
    add("NCCL_UNIQUE_ID_BYTES", size_of::<UniqueIdBytes>() as i64);
    add("ncclNumTypes", abi::TYPES.len() as i64);
    add("ncclNumResults", abi::CODE_TEXTS.len() as i64);
    for (name, code) in [
        ("ncclSuccess", Code::Success),
        ("ncclUnhandledCudaError", Code::UnhandledCudaError),
        ("ncclSystemError", Code::SystemError),
        ("ncclInternalError", Code::InternalError),
        ("ncclInvalidArgument", Code::InvalidArgument),
        ("ncclInvalidUsage", Code::InvalidUsage),
        ("ncclRemoteError", Code::RemoteError),
        ("ncclInProgress", Code::InProgress),
    ] {
        add(name, code as i64);
    }
    let types = [
        "Int8",
        "Uint8",
        "Int32",
        "Uint32",
        "Int64",
        "Uint64",
        "Float16",
        "Float32",
        "Float64",
        "Bfloat16",
        "Float8e4m3",
        "Float8e5m2",
    ];
    for (name, dtype) in types.iter().zip(abi::TYPES) {
        assert_eq!(name.to_lowercase(), dtype.name().to_lowercase(), "types are listed by their numbers");
        add(&format!("nccl{name}"), abi::TYPES.iter().position(|t| *t == dtype).map_or(-1, |at| at as i64));
    }
    for (number, (name, op)) in (0..).zip(["Sum", "Prod", "Max", "Min", "Avg"].iter().zip(abi::OPS)) {
        assert_eq!(name.to_lowercase(), op.name(), "operations are listed by their numbers");
        add(&format!("nccl{name}"), number);
    }
    add("sizeof(ncclSimInfo_t)", size_of::<SimInfo>() as i64);
    add("offsetof(ncclSimInfo_t, estimatedTime)", offset_of!(SimInfo, estimated_time) as i64);
    add("((ncclSimInfo_t)NCCL_SIM_INFO_INITIALIZER).magic", abi::SIM_MAGIC.into());
    // The library knows the members that later versions have added behind these.
    let config = offset_of!(ConfigFields, launch_order_implicit) as i64;
    add("sizeof(ncclConfig_t)", config);
    add("((ncclConfig_t)NCCL_CONFIG_INITIALIZER).size", config);
    add("((ncclConfig_t)NCCL_CONFIG_INITIALIZER).magic", abi::CONFIG_MAGIC.into());
    add("((ncclConfig_t)NCCL_CONFIG_INITIALIZER).graphStreamOrdering", abi::UNDEFINED.into());
    for (name, offset) in [
        ("magic", offset_of!(ConfigFields, magic)),
        ("version", offset_of!(ConfigFields, version)),
        ("blocking", offset_of!(ConfigFields, blocking)),
        ("cgaClusterSize", offset_of!(ConfigFields, cga_cluster_size)),
        ("minCTAs", offset_of!(ConfigFields, min_ctas)),
        ("maxCTAs", offset_of!(ConfigFields, max_ctas)),
        ("netName", offset_of!(ConfigFields, net_name)),
        ("splitShare", offset_of!(ConfigFields, split_share)),
        ("trafficClass", offset_of!(ConfigFields, traffic_class)),
        ("commName", offset_of!(ConfigFields, comm_name)),
        ("collnetEnable", offset_of!(ConfigFields, collnet_enable)),
        ("CTAPolicy", offset_of!(ConfigFields, cta_policy)),
        ("shrinkShare", offset_of!(ConfigFields, shrink_share)),
        ("nvlsCTAs", offset_of!(ConfigFields, nvls_ctas)),
        ("nChannelsPerNetPeer", offset_of!(ConfigFields, channels_per_net_peer)),
        ("nvlinkCentricSched", offset_of!(ConfigFields, nvlink_centric_sched)),
        ("graphUsageMode", offset_of!(ConfigFields, graph_usage_mode)),
        ("numRmaCtx", offset_of!(ConfigFields, num_rma_ctx)),
        ("maxP2pPeers", offset_of!(ConfigFields, max_p2p_peers)),
        ("graphStreamOrdering", offset_of!(ConfigFields, graph_stream_ordering)),
    ] {
        add(&format!("offsetof(ncclConfig_t, {name})"), offset as i64);
    }
    table
}

/// A program that prints the values of a table's expressions, one a line.
pub(crate) fn printing(table: &[(String, i64)]) -> String {
    let mut text =
        String::from("#include <nccl.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n");
    for (expression, _) in table {
        text += &format!("    printf(\"%lld\\n\", (long long)({expression}));\n");
    }
    text + "    return 0;\n}\n"
}

/// What was printed is what a table says.
pub(crate) fn compare(table: &[(String, i64)], printed: &str) -> Outcome {
    let lines: Vec<&str> = printed.lines().collect();
    if lines.len() != table.len() {
        return Err(format!("{} lines instead of {}", lines.len(), table.len()).into());
    }
    let wrong: Vec<String> = table
        .iter()
        .zip(lines)
        .filter(|((_, expected), line)| *line != expected.to_string())
        .map(|((expression, expected), line)| {
            format!("{expression} is {line} in the header and {expected} in nccl/src/abi.rs")
        })
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

/// Numbers, sizes and offsets of the header are the library's.
pub(crate) fn numbers(programs: &Programs) -> Outcome {
    let table = table();
    let source = programs.folder("numbers")?.join("numbers.c");
    std::fs::write(&source, printing(&table))?;
    let program = programs.link("numbers/program", &[source])?;
    compare(&table, &ran(&mut programs.command(program))?)
}

/// The header is understood as C of 1999 and of today, and as C++ where there is a compiler, without a warning.
pub(crate) fn languages(programs: &Programs) -> Outcome {
    let folder = programs.folder("languages")?;
    let text = "#include <nccl.h>\n#include <nccl.h>\nint main(void) {\n    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;\n    \
                int version = (int)config.version;\n    cudaStream_t stream = NULL;\n    return \
                ncclGetVersion(&version) != ncclSuccess || stream != NULL;\n}\n";
    let source = folder.join("small.c");
    std::fs::write(&source, text)?;
    let include = root().join("include");
    let has_cpp = Command::new("g++").arg("--version").output().is_ok_and(|output| output.status.success());
    for (compiler, language, standard) in [
        ("gcc", "c", "-std=c99"),
        ("gcc", "c", "-std=c17"),
        ("g++", "c++", "-std=c++11"),
        ("g++", "c++", "-std=c++20"),
    ] {
        if compiler == "gcc" || has_cpp {
            let mut command = Command::new(compiler);
            command.args([standard, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", "-I"]);
            ran(command.arg(&include).args(["-x", language]).arg(&source))?;
        }
    }
    Ok(())
}

/// The functions that the header declares, without what stands before their names.
fn declared() -> Result<BTreeSet<String>, Failed> {
    let header = std::fs::read_to_string(root().join("include/nccl.h"))?;
    let mut names = BTreeSet::new();
    // The declarations, and not the two macros that make them.
    let declarations = header.split("---- The library ----").nth(1).expect("the header has sections");
    for (macro_name, place) in [("RINGSMITH_CALL(", 0), ("RINGSMITH_BOTH(", 1)] {
        for call in declarations.split(macro_name).skip(1) {
            let name = call.split(',').nth(place).expect("a declaration has a name");
            names.insert(name.trim().to_owned());
        }
    }
    Ok(names)
}

/// The test program calls every function that the header declares, and its twin.
pub(crate) fn driven(_: &Programs) -> Outcome {
    let mut text = String::new();
    for source in programs::sources()? {
        text += &std::fs::read_to_string(source)?;
    }
    // By their names, or by one of the two macros that call a function or its twin.
    let is_given =
        |call: &str, name: &str| [",", ")"].iter().any(|end| text.contains(&format!("{call}({name}{end}")));
    let both = |name: &str| is_given("EITHER", name) || is_given("SAME", name);
    let is_called = |name: &str| {
        let twins = text.matches(&format!("pnccl{name}(")).count();
        both(name) || (twins > 0 && text.matches(&format!("nccl{name}(")).count() > twins)
    };
    let missing: Vec<String> = declared()?.into_iter().filter(|name| !is_called(name)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("not called: {missing:?}").into()) }
}

/// Every function of the header and of the device interface is there with its twin, and nothing else.
pub(crate) fn exports(programs: &Programs) -> Outcome {
    let mut names = declared()?;
    names.extend(DEVICE_INTERFACE.iter().map(|name| (*name).to_owned()));
    let library = programs.folder("lib")?.join(SONAME);
    let listed = ran(Command::new("nm").args(["-D", "--defined-only"]).arg(&library))?;
    let exported: BTreeSet<String> =
        listed.lines().filter_map(|line| Some(line.split_whitespace().nth(2)?.to_owned())).collect();
    let wanted: BTreeSet<String> =
        names.iter().flat_map(|name| [format!("nccl{name}"), format!("pnccl{name}")]).collect();
    if exported != wanted {
        let missing: Vec<_> = wanted.difference(&exported).collect();
        let extra: Vec<_> = exported.difference(&wanted).collect();
        return Err(format!("not exported: {missing:?}; not in the header: {extra:?}").into());
    }
    for (caller, list) in CALLERS {
        let missing: Vec<&str> =
            list.split_whitespace().filter(|name| !exported.contains(&format!("nccl{name}"))).collect();
        if !missing.is_empty() {
            return Err(format!("{caller} does not find {missing:?}").into());
        }
    }
    Ok(())
}
