//! include/nccl.h beside NVIDIA's: where `RINGSMITH_TEST_NCCL_INCLUDE` names a folder with the nccl.h of NCCL 2.30,
//! such as that of the Python package nvidia-nccl-cu13 2.30.7. Nothing of it is part of this tree.
//!
//! Numbers are compared by printing them, prototypes by declaring ours after theirs, and calls by running the test
//! program as built with their header. CUDA's own headers are replaced by the few types that nccl.h needs.

use crate::Outcome;
use crate::header;
use crate::job::Ranks;
use crate::programs::{Programs, ran, root, sources};
use std::path::PathBuf;
use std::process::Command;

/// The folder, if there is one.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("RINGSMITH_TEST_NCCL_INCLUDE").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// What nccl.h needs of CUDA.
const CUDA: [(&str, &str); 4] = [
    (
        "cuda_runtime.h",
        "#include <stddef.h>\n#define CUDART_VERSION 13000\ntypedef struct CUstream_st *cudaStream_t;\n\
         typedef struct CUevent_st *cudaEvent_t;\n",
    ),
    ("cuda_fp16.h", ""),
    ("cuda_bf16.h", ""),
    ("cuda_fp8.h", ""),
];

/// Trials that ask for the version, which is not NVIDIA's.
const OF_THE_VERSION: [&str; 1] = ["asking"];

/// Everything at once: it is skipped as a whole.
pub(crate) fn compare(programs: &Programs, theirs: &PathBuf) -> Outcome {
    let here = programs.folder("nvidia")?;
    for (name, text) in CUDA {
        std::fs::write(here.join(name), text)?;
    }
    let compile = |source: &PathBuf| {
        let mut gcc = Command::new("gcc");
        gcc.args(["-std=gnu11", "-DNCCL_OS_LINUX", "-Wno-deprecated-declarations", "-I"]).arg(&here);
        gcc.arg("-I").arg(theirs).arg(source);
        gcc
    };

    // Numbers: the same program, but for what says which version it is.
    let table: Vec<(String, i64)> =
        header::table().into_iter().filter(|(expression, _)| !expression.contains("NCCL_VERSION")).collect();
    let source = here.join("numbers.c");
    std::fs::write(&source, header::printing(&table))?;
    let program = here.join("numbers");
    ran(compile(&source).arg("-o").arg(&program))?;
    header::compare(&table, &ran(&mut programs.command(program))?)?;

    // Prototypes: a declaration that differs from an earlier one is an error.
    let ours = here.join("ours.c");
    std::fs::write(&ours, "#include <nccl.h>\n")?;
    let expanded = ran(Command::new("gcc").args(["-E", "-P", "-I"]).arg(root().join("include")).arg(&ours))?;
    let flat = expanded.replace('\n', " ");
    let is_prototype = |text: &&str| text.contains('(') && text.contains("nccl") && !text.contains("typedef");
    let prototypes: Vec<&str> = flat.split(';').filter(is_prototype).collect();
    if prototypes.len() < 2 * 60 {
        return Err(format!("only {} prototypes are found in our header", prototypes.len()).into());
    }
    let both = here.join("both.c");
    std::fs::write(&both, format!("#include <nccl.h>\n{};\n", prototypes.join(";\n")))?;
    ran(compile(&both).arg("-fsyntax-only"))?;

    // Calls: the test program, as it is when NVIDIA's header made it.
    let program = here.join("conformance");
    let mut link = compile(&sources()?[0]);
    link.args(&sources()?[1..]).arg("-o").arg(&program).arg("-L").arg(programs.library_folder());
    ran(link.args(["-l:libnccl.so.2", "-lm", "-lpthread"]))?;
    for trial in crate::TRIALS.iter().filter(|trial| !OF_THE_VERSION.contains(trial)) {
        let meeting = programs.folder(&format!("nvidia/{trial}"))?;
        let ranks = Ranks::start(2, |rank| {
            let mut command = programs.command(program.clone());
            command.args([trial, rank.to_string().as_str(), "2"]).arg(&meeting);
            command
        })?;
        ranks.all_succeed()?;
    }
    Ok(())
}
