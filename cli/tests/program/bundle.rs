//! `compile`, `show DIR` and `run --bundle`: what is written, what is shown of it, what damage earns.

use crate::program::{Done, Folder, command};
use libtest_mimic::{Completion, Failed, Trial};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::jit::{JitError, Nvrtc};
use std::fs;
use std::path::{Path, PathBuf};

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("bundle::plans_and_sources_need_no_nvrtc", plans_and_sources_need_no_nvrtc),
        Trial::test("bundle::without_nvrtc_compile_says_so", without_nvrtc_compile_says_so),
        Trial::test("bundle::what_is_no_bundle_is_not_replaced", what_is_no_bundle_is_not_replaced),
        Trial::ignorable_test("bundle::kernels_are_compiled_shown_and_used", kernels_are_compiled),
    ]
}

/// Runs the program with a cache of its own, and with NVRTC from there.
fn run(folder: &Folder, nvrtc: &Path, arguments: &[&str]) -> Done {
    let mut command = command(arguments);
    command.env("RINGSMITH_CACHE_DIR", folder.0.join("cache")).env("RINGSMITH_NVRTC", nvrtc);
    command.output().expect("the program starts").into()
}

fn files(bundle: &Path) -> Vec<PathBuf> {
    let of = |part: &str| fs::read_dir(bundle.join(part)).expect("a folder of the bundle");
    let below = ["plans", "sources", "kernels"].into_iter().flat_map(of);
    below.map(|file| file.expect("a file").path()).chain([bundle.join("manifest")]).collect()
}

/// Every file, changed in the middle, is named with status 2.
fn check_damage(folder: &Folder, bundle: &Path) {
    let shown = bundle.display().to_string();
    for file in files(bundle) {
        let sound = fs::read(&file).expect("our file");
        let mut damaged = sound.clone();
        damaged[sound.len() / 2] ^= 1;
        fs::write(&file, &damaged).expect("our file");
        let done = run(folder, &folder.0, &["show", &shown]);
        let name = file.strip_prefix(bundle).expect("it is below").display().to_string();
        assert!(done.status == 2 && done.stderr.contains(&name), "{name}: {} {}", done.status, done.stderr);
        assert!(done.stderr.contains("ringsmith compile"), "{}", done.stderr);
        assert!(!done.stdout.contains("every file is as"), "{}", done.stdout);
        fs::write(&file, &sound).expect("our file");
    }
    assert_eq!(run(folder, &folder.0, &["show", &shown]).status, 0);
}

fn plans_and_sources_need_no_nvrtc() -> Result<(), Failed> {
    let folder = Folder::new("sources");
    let bundle = folder.0.join("b");
    let shown = bundle.display().to_string();
    let compile =
        ["compile", "all_reduce", "send_recv", "--ranks", "2", "--max", "1K", "--sources", "-o", &shown];
    let done = run(&folder, &folder.0, &compile);
    assert_eq!(done.status, 0, "{}", done.stderr);
    assert!(done.stdout.contains("0 kernels") && done.stderr.contains("--sources"), "{}", done.stdout);
    let manifest = fs::read(bundle.join("manifest"))?;
    let done = run(&folder, &folder.0, &["show", &shown]);
    assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    for part in [
        "for:        all_reduce float32 sum, 2 ranks, a GPU each, 8 to 1K bytes",
        "for:        send_recv float32, 2 ranks",
        "no kernel",
        "computes:   all_reduce (sum), every rank adds in the same order",
        "computes:   all_to_all_v",
        "proof:      whole",
        "every file is as its hash says",
    ] {
        assert!(done.stdout.contains(part), "{part:?} is not in\n{}", done.stdout);
    }
    check_damage(&folder, &bundle);
    // The same again are the same bytes.
    assert_eq!(run(&folder, &folder.0, &compile).status, 0);
    assert_eq!(fs::read(bundle.join("manifest"))?, manifest);
    Ok(())
}

fn without_nvrtc_compile_says_so() -> Result<(), Failed> {
    let folder = Folder::new("no_nvrtc");
    let bundle = folder.0.join("b");
    let done = run(&folder, &folder.0, &["compile", "all_reduce", "-o", &bundle.display().to_string()]);
    assert_eq!((done.status, done.stdout.as_str()), (3, ""));
    for part in ["NVRTC", "RINGSMITH_NVRTC", "--sources"] {
        assert!(done.stderr.contains(part), "{}", done.stderr);
    }
    assert!(!bundle.exists());
    Ok(())
}

fn what_is_no_bundle_is_not_replaced() -> Result<(), Failed> {
    let folder = Folder::new("occupied");
    folder.file("mine.txt", "mine");
    let shown = folder.0.display().to_string();
    let done = run(&folder, &folder.0, &["compile", "barrier", "--sources", "-o", &shown]);
    assert!(done.status == 2 && done.stderr.contains("is no bundle"), "{}", done.stderr);
    assert_eq!(fs::read_to_string(folder.0.join("mine.txt"))?, "mine");
    Ok(())
}

fn kernels_are_compiled() -> Result<Completion, Failed> {
    let (config, _) = Config::from_env().map_err(|e| e.to_string())?;
    let nvrtc = match Nvrtc::find(&config) {
        Ok(nvrtc) => nvrtc.path().parent().ok_or("a library lies in a folder")?.to_owned(),
        Err(JitError::Missing(_)) => return Ok(Completion::ignored_with("no NVRTC here; cargo xtask setup")),
        Err(error) => return Err(error.to_string().into()),
    };
    let folder = Folder::new("compiled");
    let bundle = folder.0.join("b");
    let shown = bundle.display().to_string();
    let compile = ["compile", "all_reduce", "--ranks", "2", "--max", "1K", "--arch", "sm_80,sm_90"];
    let made = |more: &[&str]| run(&folder, &nvrtc, &[&compile[..], &["-o", &*shown], more].concat());
    let done = made(&[]);
    assert_eq!(done.status, 0, "{}", done.stderr);
    assert!(done.stdout.contains("2 kernels for sm_80, sm_90"), "{}", done.stdout);
    // Buffers that are aligned to elements alone have kernels of their own.
    let done = made(&["--alignment", "4"]);
    assert!(done.stdout.contains("4 kernels"), "{} {}", done.stdout, done.stderr);
    let done = run(&folder, &folder.0, &["show", &shown]);
    assert_eq!((done.status, done.stderr.as_str()), (0, ""), "{}", done.stdout);
    let kernels = done.stdout.lines().filter(|line| line.contains("kernel:") && line.contains("registers"));
    assert_eq!(kernels.count(), 4, "{}", done.stdout);
    check_damage(&folder, &bundle);
    // It is read before a GPU is looked for: what is missing then is told of that.
    let run_with = |bundle: &str| {
        run(&folder, &folder.0, &["run", "all_reduce", "--device", "cuda", "--max", "8", "--bundle", bundle])
    };
    let done = run_with(&shown);
    assert!(!done.stderr.contains("bundle"), "{}", done.stderr);
    let kernel = files(&bundle).into_iter().find(|f| f.extension().is_some_and(|e| e == "kernel"));
    fs::write(kernel.ok_or("there is none")?, "")?;
    let done = run_with(&shown);
    assert!(
        done.status == 2 && done.stderr.contains("--bundle: ") && done.stderr.contains("kernels/"),
        "{}",
        done.stderr
    );
    Ok(Completion::Completed)
}
