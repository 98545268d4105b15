//! `cache`: what it lists, finds and removes, and which folders it refuses.

use crate::program::{Done, Folder, command};
use libtest_mimic::{Failed, Trial};
use ringsmith_runtime::config::Config;
use ringsmith_runtime::jit::cache::{Cache, Family};
use ringsmith_runtime::jit::{Cubin, Version};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The tests of this file.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("cache::lists_checks_and_clears", lists_checks_and_clears),
        Trial::test("cache::refuses_folders_that_others_may_write", refuses_open_folders),
    ]
}

fn run(folder: &Path, arguments: &[&str]) -> Done {
    let mut command = command([&["cache"], arguments].concat());
    command.env("RINGSMITH_CACHE_DIR", folder).output().expect("the program starts").into()
}

/// Keeps two kernels, and damages the second; gives its file.
fn fill(folder: &Path) -> PathBuf {
    let variable = ("RINGSMITH_CACHE_DIR".to_owned(), folder.display().to_string());
    let (config, _) = Config::from_vars([variable]).expect("a setting");
    let cache = Cache::open(&config).expect("a folder of our own");
    let architecture = "sm_90".parse().expect("an architecture");
    for name in ["ring", "tree"] {
        let key = Family::new("plan", name, &[], architecture).key(Version { major: 13, minor: 0 });
        cache.store(&key, name, &Cubin::new(vec![7; 1000], architecture, String::new()));
    }
    let entries = cache.entries().expect("a listing");
    let is_tree = |name: &str| name == "tree";
    let tree = entries.iter().find(|entry| entry.kernel.as_ref().is_ok_and(|kept| is_tree(&kept.name)));
    let path = tree.expect("it was just kept").path.clone();
    let bytes = fs::read(&path).expect("our file");
    fs::write(&path, &bytes[..bytes.len() - 1]).expect("our file");
    path
}

fn lists_checks_and_clears() -> Result<(), Failed> {
    let folder = Folder::new("cache");
    let damaged = fill(&folder.0);
    folder.file("notes.txt", "mine");
    let listed = run(&folder.0, &["ls"]);
    assert_eq!(listed.status, 0, "{}", listed.stderr);
    let has = |parts: &[&str]| listed.stdout.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(has(&["ring", "sm_90", "13.0"]) && has(&["damaged: ", "cut short"]), "{}", listed.stdout);
    assert!(has(&["2 kernels, "]) && !has(&["notes"]), "{}", listed.stdout);
    let rows = run(&folder.0, &["ls", "--json"]).stdout;
    let rows: Vec<serde_json::Value> =
        rows.lines().map(serde_json::from_str).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let ring = rows.iter().find(|row| row["kernel"] == "ring").ok_or("no row of ring")?;
    assert_eq!((&ring["architecture"], &ring["nvrtc"]), (&"sm_90".into(), &"13.0".into()));
    assert!(ring["damage"].is_null() && rows.iter().any(|row| row["damage"].is_string()), "{rows:?}");
    let checked = run(&folder.0, &["verify"]);
    let said =
        format!("{}: it is cut short or has bytes too many\n1 kernel sound, 1 damaged\n", damaged.display());
    assert_eq!((checked.status, checked.stdout), (1, said));
    fs::remove_file(damaged)?;
    assert_eq!(run(&folder.0, &["verify"]).status, 0);
    let cleared = run(&folder.0, &["clear"]);
    assert!(cleared.status == 0 && cleared.stdout.starts_with("removed 1 kernel, "), "{}", cleared.stdout);
    assert_eq!(fs::read_dir(&folder.0)?.count(), 1, "another's file stays");
    assert!(run(&folder.0, &["ls"]).stdout.starts_with("0 kernels, 0 bytes"));
    Ok(())
}

fn refuses_open_folders() -> Result<(), Failed> {
    let folder = Folder::new("cache-open");
    fs::set_permissions(&folder.0, Permissions::from_mode(0o777))?;
    let refused = run(&folder.0, &["clear"]);
    assert_eq!((refused.status, refused.stdout.as_str()), (2, ""));
    assert!(refused.stderr.contains("mode 777") && refused.stderr.contains("RINGSMITH_CACHE_DIR"));
    Ok(())
}
