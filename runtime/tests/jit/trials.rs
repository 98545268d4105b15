//! The trials, and what the processes do that they start.

use super::{Outcome, ensure, usual};
use libtest_mimic::Failed;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::jit::{Architecture, Cache, Cubin, Jit, JitError, Nvrtc, Origin};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

/// Tells a process what it is to do.
pub(super) const CHILD: &str = "RINGSMITH_TEST_JIT_CHILD";

const RACERS: usize = 8;

/// A small kernel with shared memory.
const SMALL: &str = r#"
struct Args { const float* a; float* b; int n; };
extern "C" __global__ void add_one(Args args) {
  __shared__ float first[64];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  first[threadIdx.x & 63] = i;
  __syncthreads();
  if (i < args.n) args.b[i] = args.a[i] + 1.0f + first[0];
}
"#;

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringsmith-test-jit-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    fn config(&self) -> Config {
        cached_in(self.0.join("cache"))
    }

    /// The same cache, and a setting that leads to no NVRTC.
    fn without_nvrtc(&self) -> Config {
        set_to(&self.0, self.config())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn cached_in(folder: PathBuf) -> Config {
    let mut config = usual();
    config.cache_dir = Some(folder);
    config
}

fn set_to(nvrtc: &Path, mut config: Config) -> Config {
    config.nvrtc = Some(nvrtc.to_owned());
    config
}

fn architecture(name: &str) -> Architecture {
    name.parse().expect("an architecture")
}

fn compile(nvrtc: &Nvrtc, name: &str, source: &str) -> Result<Cubin, Failed> {
    nvrtc.compile(name, source, architecture("sm_90")).map_err(|error| error.to_string().into())
}

/// A small kernel compiles for every architecture that is promised, and says what it uses.
pub(super) fn architectures(nvrtc: &Nvrtc) -> Outcome {
    for name in ["sm_80", "sm_90", "sm_100"] {
        let cubin = nvrtc.compile("small", SMALL, architecture(name)).map_err(|e| e.to_string())?;
        ensure(cubin.bytes().starts_with(b"\x7fELF"), || format!("{name}: no machine code"))?;
        let entry = cubin.entry("add_one").ok_or_else(|| format!("{name}: no entry in\n{}", cubin.log()))?;
        ensure(entry.shared_bytes >= 256 && (1..=255).contains(&entry.registers), || format!("{entry:?}"))?;
        ensure(entry.barriers == 1 && cubin.spill_bytes() == 0, || format!("{entry:?}"))?;
        ensure(cubin.log().contains(&format!("for '{name}'")), || cubin.log().to_owned())?;
    }
    let unknown = nvrtc.compile("small", SMALL, architecture("sm_71"));
    let Err(error @ JitError::Architecture { .. }) = unknown else {
        return Err(format!("sm_71 was made by nobody: {unknown:?}").into());
    };
    let text = error.to_string();
    ensure(text.contains("sm_71") && text.contains("sm_90") && text.contains("RINGSMITH_NVRTC"), || text)
}

/// What does not compile is shown by its lines; what only the assembler refuses, by the log.
pub(super) fn mistakes(nvrtc: &Nvrtc) -> Outcome {
    let source = "extern \"C\" __global__ void k(float* p) {\n  int unused;\n  p[0] = q;\n  nobody();\n}\n";
    let Err(error) = nvrtc.compile("ring @8 (two)", source, architecture("sm_90")) else {
        return Err("it compiled".into());
    };
    let text = error.to_string();
    for part in [
        "kernel ring @8 (two) for sm_90 does not compile",
        "line 3: identifier \"q\" is undefined\n       3 |   p[0] = q;",
        "line 4: identifier \"nobody\" is undefined\n       4 |   nobody();",
    ] {
        ensure(text.contains(part), || format!("{part:?} is not in:\n{text}"))?;
    }
    let JitError::Source { mistakes, log, .. } = error else { return Err(text.into()) };
    ensure(mistakes.len() == 2 && log.contains("unused"), || format!("{mistakes:?}\n{log}"))?;
    let bogus = "extern \"C\" __global__ void k() { asm volatile(\"bogus.u32 %0;\" :: \"r\"(1)); }";
    let text =
        nvrtc.compile("asm", bogus, architecture("sm_90")).expect_err("no such instruction").to_string();
    ensure(text.contains("'bogus'"), || text)?;
    let zero = nvrtc.compile("zero", "int a;\nint \0b;\n", architecture("sm_90"));
    let text = zero.expect_err("a zero byte").to_string();
    ensure(text.contains("line 2: a zero byte"), || text)?;
    let header = nvrtc.compile("header", "#include <cuda_fp16.h>\n", architecture("sm_90"));
    let text = header.expect_err("kernels include nothing").to_string();
    ensure(text.contains("line 1:") && text.contains("#include <cuda_fp16.h>"), || text)
}

/// A kernel with more values than registers says how much it spills.
pub(super) fn spills(nvrtc: &Nvrtc) -> Outcome {
    let source = r#"
extern "C" __global__ void __launch_bounds__(1024) crowded(float* p) {
  float v[200];
#pragma unroll
  for (int i = 0; i < 200; i++) v[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 200; i++) p[i * 1024 + threadIdx.x + 7] = v[i] * v[(i + 1) % 200];
}
extern "C" __global__ void roomy(float* p) { *p += 1.0f; }
"#;
    let cubin = compile(nvrtc, "spills", source)?;
    let (Some(crowded), Some(roomy)) = (cubin.entry("crowded"), cubin.entry("roomy")) else {
        return Err(format!("entries are missing: {:?}", cubin.entries()).into());
    };
    ensure(crowded.registers == 64, || format!("{crowded:?}"))?;
    ensure(crowded.spill_store_bytes > 0 && crowded.spill_load_bytes > 0, || format!("{crowded:?}"))?;
    ensure(crowded.stack_bytes >= crowded.spill_store_bytes / 2, || format!("{crowded:?}"))?;
    ensure(roomy.spill_store_bytes == 0 && roomy.stack_bytes == 0, || format!("{roomy:?}"))?;
    let all = crowded.spill_store_bytes + crowded.spill_load_bytes;
    ensure(cubin.spill_bytes() == all, || format!("{} bytes of {all}", cubin.spill_bytes()))
}

/// A product and a sum stay two operations. Where they were contracted the code would be shorter, and
/// the same as that of a written `fmaf`.
pub(super) fn no_contraction(nvrtc: &Nvrtc) -> Outcome {
    let kernel = |body: &str| {
        format!("extern \"C\" __global__ void k(float* p, float a, float b) {{ p[0] = {body}; }}\n")
    };
    let apart = compile(nvrtc, "k", &kernel("p[0] * a + b"))?;
    let forced_apart = compile(nvrtc, "k", &kernel("__fadd_rn(__fmul_rn(p[0], a), b)"))?;
    let together = compile(nvrtc, "k", &kernel("fmaf(p[0], a, b)"))?;
    ensure(apart.bytes() == forced_apart.bytes(), || "they were contracted".to_owned())?;
    ensure(apart.bytes() != together.bytes(), || "this trial cannot tell the two apart".to_owned())
}

/// The setting leads to the library that is used, and to no other.
pub(super) fn setting(nvrtc: &Nvrtc) -> Outcome {
    let folder = nvrtc.path().parent().ok_or("a library lies in a folder")?;
    let found = Nvrtc::find(&set_to(folder, usual())).map_err(|e| e.to_string())?;
    ensure(*found.origin() == Origin::Setting && found.path() == nvrtc.path(), || format!("{found:?}"))?;
    // A file that is no library is refused with the loader's reason, and nothing else is tried.
    let wrong = Folder::new("wrong");
    for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
        std::fs::write(wrong.0.join(name), "no library").map_err(|e| e.to_string())?;
    }
    let Err(JitError::Missing(missing)) = Nvrtc::find(&wrong.without_nvrtc()) else {
        return Err("a text was opened as a library".into());
    };
    ensure(missing.tried.len() == 1 && !missing.tried[0].reason.is_empty(), || missing.to_string())?;
    // A library that is another's: NVRTC's own built-ins under NVRTC's name.
    let builtins =
        std::fs::read_dir(folder).map_err(|e| e.to_string())?.filter_map(|entry| Some(entry.ok()?.path()));
    let builtins = builtins.filter(|path| path.to_string_lossy().contains("libnvrtc-builtins.so")).last();
    let other = Folder::new("other");
    let builtins = builtins.ok_or("NVRTC has its built-ins beside it")?;
    for name in ["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"] {
        std::os::unix::fs::symlink(&builtins, other.0.join(name)).map_err(|e| e.to_string())?;
    }
    let text = Nvrtc::find(&other.without_nvrtc()).expect_err("it has no compiler").to_string();
    ensure(text.contains("it has no nvrtcVersion"), || text)
}

/// A kernel that was compiled once is had again without NVRTC, from memory and from disk; others are
/// not, and the error says where NVRTC was looked for.
pub(super) fn kept(_: &Nvrtc) -> Outcome {
    let folder = Folder::new("kept");
    let get = |jit: &Jit, plan: &str, source: &str| jit.kernel(plan, "small", source, architecture("sm_90"));
    let without = |plan: &str, source: &str| get(&Jit::new(&folder.without_nvrtc()), plan, source);
    let Err(JitError::Missing(missing)) = without("plan", SMALL) else {
        return Err("there was nothing to have".into());
    };
    ensure(missing.to_string().contains("RINGSMITH_NVRTC"), || missing.to_string())?;
    let jit = Jit::new(&folder.config());
    let made = get(&jit, "plan", SMALL).map_err(|e| e.to_string())?;
    let again = get(&jit, "plan", SMALL).map_err(|e| e.to_string())?;
    ensure(std::ptr::eq(&*made, &*again), || "it was made twice".to_owned())?;
    let kept = without("plan", SMALL).map_err(|e| e.to_string())?;
    ensure(*kept == *made && kept.entry("add_one").is_some(), || "another came back".to_owned())?;
    ensure(without("another plan", SMALL).is_err(), || "plans share kernels".to_owned())?;
    ensure(without("plan", &SMALL.replace("1.0f", "2.0f")).is_err(), || "sources share kernels".to_owned())?;
    // A damaged file is made anew with NVRTC, and no kernel without.
    let file = only_file(&folder.0.join("cache"))?;
    let mut bytes = std::fs::read(&file).map_err(|e| e.to_string())?;
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    std::fs::write(&file, &bytes).map_err(|e| e.to_string())?;
    ensure(without("plan", SMALL).is_err(), || "a damaged kernel was used".to_owned())?;
    let anew = get(&Jit::new(&folder.config()), "plan", SMALL).map_err(|e| e.to_string())?;
    ensure(anew.bytes() == made.bytes(), || "the same source gave other code".to_owned())?;
    ensure(without("plan", SMALL).is_ok(), || "the sound one was not kept".to_owned())?;
    // Where nothing can be kept, kernels are still made.
    let jit = Jit::new(&cached_in(file.join("below")));
    ensure(jit.cache().is_none(), || "a file is no folder".to_owned())?;
    get(&jit, "plan", SMALL).map(drop).map_err(|e| e.to_string().into())
}

fn only_file(folder: &Path) -> Result<PathBuf, Failed> {
    let entries = std::fs::read_dir(folder).map_err(|e| e.to_string())?;
    let files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    match &files[..] {
        [file] => Ok(file.clone()),
        _ => Err(format!("{} files: {files:?}", files.len()).into()),
    }
}

/// Threads that want one kernel at once get the same one.
pub(super) fn threads(_: &Nvrtc) -> Outcome {
    let folder = Folder::new("threads");
    let jit = Jit::new(&folder.config());
    let start = Barrier::new(RACERS);
    let kernels = std::thread::scope(|scope| {
        let racer = || {
            start.wait();
            jit.kernel("plan", "small", SMALL, architecture("sm_80"))
        };
        let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(racer)).collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
    });
    let kernels = kernels.map_err(|error| error.to_string())?;
    ensure(kernels.iter().all(|kernel| std::ptr::eq(&**kernel, &*kernels[0])), || {
        "it was made twice".to_owned()
    })?;
    only_file(&folder.0.join("cache")).map(drop)
}

/// Kills what is left when a trial fails.
struct Racers(Vec<Child>);

impl Drop for Racers {
    fn drop(&mut self) {
        for racer in &mut self.0 {
            let _ = racer.kill();
            let _ = racer.wait();
        }
    }
}

/// Processes that want one kernel at once all get it, and leave one file that is sound, with a reader
/// among them that never sees half of one.
pub(super) fn processes(_: &Nvrtc) -> Outcome {
    let folder = Folder::new("processes");
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut racers = Racers(Vec::new());
    for _ in 0..RACERS {
        let racer = Command::new(&program)
            .env(CHILD, folder.0.join("cache"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        racers.0.push(racer.map_err(|error| error.to_string())?);
    }
    let mut listed = 0;
    let cache = Cache::open(&folder.config()).map_err(|error| error.to_string())?;
    let mut running = true;
    while running {
        running = false;
        for racer in &mut racers.0 {
            match racer.try_wait().map_err(|error| error.to_string())? {
                None => running = true,
                Some(status) => ensure(status.success(), || format!("a process ended with {status}"))?,
            }
        }
        for entry in cache.entries().map_err(|error| error.to_string())? {
            listed += 1;
            entry.kernel.map_err(|damage| format!("half a file was seen: {damage}"))?;
        }
        std::thread::yield_now();
    }
    ensure(listed > 0, || "no kernel was kept".to_owned())?;
    only_file(&folder.0.join("cache")).map(drop)
}

/// One of those processes: has the kernel made in the given cache, and checks it.
pub(super) fn child(cache: &str) {
    let config = cached_in(cache.into());
    for _ in 0..3 {
        let jit = Jit::new(&config);
        let kernel = jit.kernel("plan", "small", SMALL, architecture("sm_90")).expect("a kernel");
        assert!(kernel.entry("add_one").is_some());
    }
}

/// Generated kernels compile for every architecture that is served, without spills.
pub(super) fn generated(nvrtc: &Nvrtc) -> Outcome {
    use ringsmith_compiler::emit::{Access, Options, emit};
    use ringsmith_compiler::lower;
    use ringsmith_compiler::plan::gpu;
    use ringsmith_ir::schedule::Protocol;
    use ringsmith_ir::types::{Collective, DataType, ReduceOp};
    use ringsmith_ir::{expand, verify};
    let golden = [
        ("one_shot", Protocol::Ll, DataType::Float32),
        ("one_shot", Protocol::Ll128, DataType::Bfloat16),
        ("two_shot", Protocol::Ll128, DataType::Float16),
        ("split_two_shot", Protocol::Simple, DataType::Float32),
        ("ring", Protocol::Simple, DataType::Int32),
    ];
    for (name, protocol, dtype) in golden {
        let (collective, op) = (Collective::AllReduce, Some(ReduceOp::Sum));
        let request =
            gpu::Request { collective, op, root: None, ranks: 2, bytes: 1 << 20, maps_buffers: true };
        let plan = gpu::make(&request, name, protocol).ok_or("no such plan")?;
        let first = |found: Vec<ringsmith_ir::diagnostic::Diagnostic>| found[0].message.clone();
        let schedule = expand::expand(&plan.program, &plan.arguments).map_err(first)?;
        let schedule = verify::schedule(schedule).map_err(first)?;
        let slot_bytes = u64::from(plan.threads * plan.unroll * 16);
        let lowered = lower::lower_direct(&schedule, lower::Options { protocol, slots: 4, slot_bytes });
        let lowered = lowered.map_err(first)?;
        let options = Options {
            dtype,
            op,
            access: Access::Vector,
            threads: plan.threads,
            unroll: plan.unroll,
            resident: 1,
            local_ranks: 2,
            max_blocks: 256,
            parity_bytes: 1 << 20,
            slot_bytes: 32 << 10,
        };
        let kernel = emit(&lowered, &options).map_err(|e| e.to_string())?;
        fits(nvrtc, &kernel.name, &kernel.source, plan.threads)?;
    }
    Ok(())
}

/// So does the exchange kernel, for its longest lists and every way to access memory.
pub(super) fn exchange(nvrtc: &Nvrtc) -> Outcome {
    use ringsmith_compiler::emit::{self, Access, Capacity, Options};
    use ringsmith_ir::types::DataType;
    let plan = ringsmith_compiler::exchange::exchange(2, 4, 32 << 10);
    let plan = ringsmith_ir::verify::kernel_plan(plan).map_err(|found| found[0].message.clone())?;
    for access in [Access::Vector, Access::Element, Access::Byte] {
        for local_ranks in [1, 8] {
            let options = Options {
                dtype: DataType::Uint32,
                op: None,
                access,
                threads: 512,
                unroll: 4,
                resident: 1,
                local_ranks,
                max_blocks: 256,
                parity_bytes: 0,
                slot_bytes: 32 << 10,
            };
            let kernel = emit::exchange(&plan, &options, Capacity { fifos: 66, messages: 384 });
            let kernel = kernel.map_err(|e| e.to_string())?;
            fits(nvrtc, &kernel.name, &kernel.source, kernel.threads)?;
        }
    }
    Ok(())
}

/// Compiles for every architecture that is served: nothing may be spilled.
fn fits(nvrtc: &Nvrtc, name: &str, source: &str, threads: u32) -> Outcome {
    for architecture in ["sm_80", "sm_90", "sm_100"] {
        let architecture = architecture.parse().map_err(|e| format!("{e}"))?;
        let cubin = nvrtc.compile(name, source, architecture).map_err(|e| e.to_string())?;
        let entry = cubin.entry(name).ok_or_else(|| format!("no entry {name}"))?;
        let spilled = entry.spill_store_bytes + entry.spill_load_bytes + entry.stack_bytes;
        ensure(spilled == 0, || format!("{name} for {architecture} spills {spilled} bytes"))?;
        // What a launch of `threads` threads has: 65,536 registers a multiprocessor.
        let most = 65_536 / threads;
        ensure(entry.registers <= most, || format!("{name}: {} registers of {most}", entry.registers))?;
    }
    Ok(())
}
