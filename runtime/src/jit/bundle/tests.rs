//! Bundles that are written and read, cut at every byte, changed at every byte, forged and hostile.

use super::manifest::hex;
use super::*;
use crate::config::Config;
use crate::jit::{Jit, JitError, options};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringsmith-test-bundle-{}-{next}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    fn bundle(&self) -> PathBuf {
        self.0.join("b")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const VERSION: Version = Version { major: 13, minor: 0 };

fn architecture(name: &str) -> Architecture {
    name.parse().expect("an architecture")
}

fn contents() -> Contents {
    let mut contents = Contents::new();
    contents.purpose("all_reduce\nfloat32");
    for name in ["sm_90", "sm_80"] {
        let cubin = Cubin::new(name.as_bytes().to_vec(), architecture(name), String::new());
        contents.add("ring", "kernel_plan @ring", "source", &cubin, VERSION);
    }
    contents
}

/// Writes a bundle of two kernels.
fn written(folder: &Folder) -> PathBuf {
    contents().write(&folder.bundle()).expect("a bundle");
    folder.bundle()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.join("manifest")];
    for part in ["plans", "sources", "kernels"] {
        all.extend(fs::read_dir(folder.join(part)).expect("a folder").map(|f| f.expect("a file").path()));
    }
    all
}

fn family(name: &str) -> Family {
    let architecture = architecture(name);
    Family::new("kernel_plan @ring", "source", &options(architecture), architecture)
}

/// Rewrites the manifest and its hash.
fn forge(bundle: &Path, change: impl FnOnce(String) -> String) {
    let text = fs::read_to_string(bundle.join("manifest")).expect("a manifest");
    let body = change(text[..text.rfind("end ").expect("a last line")].to_owned());
    fs::write(bundle.join("manifest"), manifest::sealed(body.as_bytes())).expect("a manifest");
}

fn refusal(bundle: &Path) -> String {
    Bundle::open(bundle).expect_err("it is wrong").to_string()
}

#[test]
fn what_was_written_is_read() {
    let folder = Folder::new();
    let path = written(&folder);
    let bundle = Bundle::open(&path).expect("a whole bundle");
    assert_eq!(bundle.architectures(), [architecture("sm_80"), architecture("sm_90")]);
    assert_eq!(bundle.manifest().purposes, ["all_reduce float32"]);
    for name in ["sm_80", "sm_90"] {
        let (version, cubin) = bundle.load(&family(name)).expect("sound").expect("there");
        assert_eq!((version, cubin.bytes()), (VERSION, name.as_bytes()));
    }
    assert!(bundle.load(&family("sm_100")).expect("sound").is_none());
    // One plan and one source, though there are two kernels.
    assert_eq!(files(&path).len(), 5);
    let checked = Bundle::check(&path).expect("a manifest");
    assert_eq!((checked.kernels.len(), checked.damage.len()), (2, 0));
    let plan = checked.texts.iter().find(|text| text.path == checked.kernels[0].plan).expect("its plan");
    assert_eq!((plan.kind, &*plan.text), (TextKind::Plan, "kernel_plan @ring"));
}

#[test]
fn the_same_contents_are_the_same_bytes_and_replace_the_old() {
    let folder = Folder::new();
    let first = fs::read(written(&folder).join("manifest")).expect("a manifest");
    assert_eq!(fs::read(written(&folder).join("manifest")).expect("a manifest"), first);
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 1, "nothing unfinished stays");
}

#[test]
fn what_is_no_bundle_is_not_replaced() {
    let folder = Folder::new();
    fs::create_dir(folder.bundle()).expect("a folder");
    contents().write(&folder.bundle()).expect("an empty folder is replaced");
    let other = folder.0.join("photos");
    fs::create_dir(&other).expect("a folder");
    fs::write(other.join("one"), "1").expect("a file");
    let error = contents().write(&other).expect_err("another's folder").to_string();
    assert!(error.contains("photos: it is there and is no bundle"), "{error}");
    assert!(contents().write(&other.join("one")).is_err(), "a file");
    assert_eq!(fs::read(other.join("one")).expect("the file"), b"1");
}

#[test]
fn every_cut_of_every_file_is_refused() {
    let folder = Folder::new();
    let path = written(&folder);
    for file in files(&path) {
        let sound = fs::read(&file).expect("a file");
        for len in 0..sound.len() {
            fs::write(&file, &sound[..len]).expect("a file");
            let name = file.strip_prefix(&path).expect("below it").display().to_string();
            let damage = match Bundle::check(&path) {
                Ok(checked) => checked.damage.first().expect("damage").to_string(),
                Err(error) => error.to_string(),
            };
            let expected = format!("bundle {}: {name}, byte {len}: it ends here", path.display());
            assert!(damage.starts_with(&expected) && damage.contains("ringsmith compile"), "{damage}");
            let needed = name == "manifest" || name.starts_with("kernels");
            assert_eq!(Bundle::open(&path).is_err(), needed, "{name} cut at {len}");
        }
        fs::write(&file, [&sound[..], b"x"].concat()).expect("a file");
        assert!(
            Bundle::check(&path).map_or(true, |checked| !checked.damage.is_empty()),
            "{}",
            file.display()
        );
        fs::write(&file, &sound).expect("a file");
    }
    assert!(Bundle::open(&path).is_ok());
}

#[test]
fn every_changed_byte_of_every_file_is_refused() {
    let folder = Folder::new();
    let path = written(&folder);
    for file in files(&path) {
        let sound = fs::read(&file).expect("a file");
        for at in 0..sound.len() {
            for change in [1, 0x20, 0x80] {
                let mut damaged = sound.clone();
                damaged[at] ^= change;
                fs::write(&file, &damaged).expect("a file");
                let is_sound = Bundle::check(&path).is_ok_and(|checked| checked.damage.is_empty());
                assert!(!is_sound, "{}: byte {at} ^ {change}", file.display());
            }
        }
        fs::write(&file, &sound).expect("a file");
    }
}

#[test]
fn newer_foreign_and_absent_bundles_are_told_apart() {
    let folder = Folder::new();
    let path = written(&folder);
    assert!(refusal(&folder.0.join("nowhere")).contains("it cannot be read: No such file"));
    assert!(refusal(&folder.0).contains("manifest: it cannot be read"));
    assert!(refusal(&path.join("manifest")).contains("it is no folder"));
    forge(&path, |text| text.replace("bundle 1\n", "bundle 2\n"));
    let newer = refusal(&path);
    assert!(
        newer.contains("manifest, byte 0: it has format 2, and this version of Ringsmith reads format 1"),
        "{newer}"
    );
    fs::write(path.join("manifest"), "#!/bin/sh\n").expect("a manifest");
    assert!(refusal(&path).contains("this is none of Ringsmith"));
    fs::remove_dir_all(&path).expect("our folder");
    let other = written(&folder);
    forge(&other, |text| text.replace("generator 0.", "generator 77."));
    let made = refusal(&other);
    assert!(made.contains("it was made by Ringsmith 77.") && made.contains("compile it anew"), "{made}");
}

#[test]
fn forged_manifests_are_refused() {
    type Change = (&'static str, fn(String) -> String, &'static str);
    let again = |text: String| {
        let line = text.lines().find(|l| l.starts_with("plan ")).expect("a plan").to_owned();
        text + &line + "\n"
    };
    let changes: [Change; 10] = [
        ("a duplicate", again, "a second plans/ring-"),
        ("a way out", |t| t.replace(" ring-", " ../ring-"), "no name of a file"),
        ("a hidden name", |t| t.replace(" ring-", " .ring-"), "no name of a file"),
        ("a huge size", |t| t.replacen(" 17 ", " 18446744073709551615 ", 1), ""),
        ("beyond 64 bits", |t| t.replacen(" 17 ", " 18446744073709551616 ", 1), "is no number of bytes"),
        ("a sign", |t| t.replacen(" 17 ", " +17 ", 1), "is no number of bytes"),
        ("an unknown line", |t| t + "run /bin/sh\n", "\"run\" begins no line"),
        ("more than a disk", |t| t.replacen(" 17 ", " 2000000000 ", 1), "a bundle has at most 1073741824"),
        ("no generator", |t| t.replace("generator ", "for "), "there is no generator"),
        ("an empty line", |t| t + "\n", "begins no line"),
    ];
    for (what, change, expected) in changes {
        let folder = Folder::new();
        let path = written(&folder);
        forge(&path, change);
        let found = match Bundle::check(&path) {
            Ok(checked) => {
                checked.damage.first().unwrap_or_else(|| panic!("{what}: nothing is wrong")).to_string()
            }
            Err(error) => error.to_string(),
        };
        assert!(found.contains(expected), "{what}: {found}");
    }
    let folder = Folder::new();
    let path = written(&folder);
    forge(&path, |text| {
        let keeps = |line: &&str| !line.starts_with("source ");
        text.lines().filter(keeps).map(|line| format!("{line}\n")).collect()
    });
    assert!(refusal(&path).contains("names sources/ring-"), "{}", refusal(&path));
}

#[test]
fn a_kernel_of_another_source_is_refused() {
    let folder = Folder::new();
    let path = written(&folder);
    // Sound hashes all along, but the source is another.
    let source =
        files(&path).into_iter().find(|f| f.extension().is_some_and(|e| e == "cu")).expect("a source");
    fs::write(&source, "sourcf").expect("a file");
    let hash = |text: &str| hex(&Sha256::digest(text));
    forge(&path, |text| text.replace(&hash("source"), &hash("sourcf")));
    let checked = Bundle::check(&path).expect("a manifest");
    assert_eq!((checked.kernels.len(), checked.damage.len()), (0, 2));
    assert!(
        checked.damage[0].to_string().contains("it was not made from plans/ring-"),
        "{}",
        checked.damage[0]
    );
}

#[test]
fn what_everybody_may_write_is_refused() {
    let folder = Folder::new();
    let path = written(&folder);
    let kernel = files(&path).pop().expect("a kernel");
    fs::set_permissions(&kernel, Permissions::from_mode(0o666)).expect("our file");
    assert!(refusal(&path).contains("everybody may write it (mode 666)"));
    fs::set_permissions(&kernel, Permissions::from_mode(0o644)).expect("our file");
    fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("our folder");
    assert!(refusal(&path).contains("mode 777"));
}

#[test]
fn kernels_come_from_the_bundle_without_nvrtc() {
    let folder = Folder::new();
    let mut config = Config::default();
    config.bundle = Some(written(&folder));
    config.nvrtc = Some(folder.0.join("none"));
    config.cache_dir = Some(folder.0.join("cache"));
    let jit = Jit::new(&config);
    let get = |jit: &Jit, name| jit.kernel("kernel_plan @ring", "ring", "source", architecture(name));
    assert_eq!(get(&jit, "sm_90").expect("it is in the bundle").bytes(), b"sm_90");
    let error = get(&jit, "sm_100").expect_err("it is not there");
    assert!(matches!(error, JitError::NotInBundle { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("sm_80, sm_90") && text.contains("--arch sm_100") && text.contains("RINGSMITH_NVRTC"),
        "{text}"
    );
    config.bundle = Some(folder.0.join("nowhere"));
    let jit = Jit::new(&config);
    assert!(matches!(get(&jit, "sm_90"), Err(JitError::Bundle(_))) && jit.bundle().is_err());
}
