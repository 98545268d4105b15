//! The search: which folder and which file is taken, and what is said of the others.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};

/// A folder that is removed again.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ringsmith-test-search-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// Makes files below it.
    fn with(self, files: &[&str]) -> Self {
        for file in files {
            let path = self.0.join(file);
            std::fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("our folder");
            std::fs::write(path, "no library").expect("our folder");
        }
        self
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Takes everything.
fn take(_: &[PathBuf], nvrtc: &Path) -> Result<PathBuf, String> {
    Ok(nvrtc.to_owned())
}

#[test]
fn the_newest_library_of_a_folder_is_taken() {
    let folder = Folder::new("newest").with(&[
        "libnvrtc.so.12",
        "libnvrtc.so.9.2",
        "libnvrtc.so.13.0.88",
        "libnvrtc.so",
        "libnvrtc.so.13",
        "libnvrtc.so.bak",
        "libnvrtc.alt.so.14",
        "libnvrtc_static.a",
        "libnvrtc-builtins.so.13.0",
        "libnvrtc-builtins.so.12.9",
        "libnvrtc-builtins.alt.so.13.0",
    ]);
    let (builtins, nvrtc) = libraries(&folder.0).expect("both");
    assert_eq!(nvrtc, folder.0.join("libnvrtc.so.13.0.88"));
    let expected = ["libnvrtc-builtins.so.12.9", "libnvrtc-builtins.so.13.0"].map(|name| folder.0.join(name));
    assert_eq!(builtins, expected);
    let lacks = |folder: &Folder| libraries(&folder.0).expect_err("something lacks");
    assert!(lacks(&Folder::new("lone").with(&["libnvrtc.so.13"])).contains("libnvrtc-builtins.so"));
    assert_eq!(lacks(&Folder::new("none").with(&["libcuda.so.1"])), "holds no libnvrtc.so");
    assert_eq!(libraries(Path::new("/proc/nonexistent")).expect_err("no folder"), "no such folder");
}

#[test]
fn places_are_taken_in_order_and_the_others_are_told() {
    let good = Folder::new("good").with(&["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]);
    let broken = Folder::new("broken").with(&["libnvrtc.so.13", "libnvrtc-builtins.so.13.0"]);
    let alias = broken.0.join("alias");
    symlink(&broken.0, &alias).expect("a link");
    let open = |builtins: &[PathBuf], nvrtc: &Path| {
        assert_eq!(builtins.len(), 1);
        if nvrtc.starts_with(&broken.0) { Err("it is broken".to_owned()) } else { Ok(nvrtc.to_owned()) }
    };
    let before = || {
        vec![
            (Origin::Loaded, Err("none is".to_owned())),
            (Origin::Toolkit, Ok(vec!["/proc/nonexistent".into(), broken.0.clone(), alias.clone()])),
        ]
    };
    let stages = before().into_iter().chain([(Origin::Python, Ok(vec![good.0.clone()]))]);
    let unasked = std::iter::once_with(|| panic!("this place need not be asked"));
    let (path, found) = first(stages.chain(unasked), open).expect("the good one");
    assert_eq!(path, good.0.join("libnvrtc.so.13"));
    assert_eq!(found, Found { origin: Origin::Python, path });
    let text = first(before().into_iter(), open).expect_err("nothing is left").to_string();
    let expected = format!(
        "NVRTC, CUDA's run-time compiler, was not found; looked at\n  loaded by this process: none is\n  \
         the CUDA toolkit: /proc/nonexistent: no such folder\n  the CUDA toolkit: {}: it is broken\n\
         install it (pip install nvidia-cuda-nvrtc), or set RINGSMITH_NVRTC to the folder of libnvrtc.so",
        broken.0.display()
    );
    assert_eq!(text, expected, "one folder under two names is told once");
}

#[test]
fn the_setting_alone_counts() {
    let toolkit = Folder::new("toolkit").with(&["lib64/libnvrtc.so.12", "lib64/libnvrtc-builtins.so.12.9"]);
    let set = |folder: &Path| {
        let mut config = Config::default();
        config.nvrtc = Some(folder.to_owned());
        config.cuda_toolkits = vec![toolkit.0.clone()];
        config
    };
    let empty = Folder::new("empty");
    let error = Places::new(&set(&empty.0)).find(take).expect_err("it holds nothing");
    assert_eq!(error.tried.len(), 1);
    let text = error.to_string();
    assert!(
        text.contains(empty.0.to_str().expect("a plain path"))
            && text.contains("the setting RINGSMITH_NVRTC")
            && text.contains("unset it"),
        "{text}"
    );
    // A toolkit's own folder does too.
    let (path, found) = Places::new(&set(&toolkit.0)).find(take).expect("its lib64");
    assert_eq!((path, found.origin), (toolkit.0.join("lib64/libnvrtc.so.12"), Origin::Setting));
}

#[test]
fn toolkits_are_named_by_variables() {
    let toolkit = Folder::new("named").with(&["targets/x86_64-linux/lib/x", "lib64/x"]);
    let text = toolkit.0.to_str().expect("a plain path");
    let vars = [("CUDA_PATH", text), ("CUDA_HOME", "/proc/nonexistent"), ("PATH", "/bin")];
    let vars = vars.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let (config, warnings) = Config::from_vars(vars).expect("settings");
    assert!(warnings.is_empty());
    let folders = Places::new(&config).toolkit_folders();
    let expected = ["lib64", "targets/x86_64-linux/lib"].map(|inside| toolkit.0.join(inside));
    assert_eq!(folders[0], Path::new("/proc/nonexistent"), "told as a whole, since it is not there");
    assert_eq!(folders[1..3], expected);
    assert!(folders[3..].iter().all(|folder| folder.starts_with(USUAL_TOOLKIT)));
}

#[test]
fn what_is_loaded_is_read_off_the_mappings() {
    let maps = "7f00-7f01 r--p 00000000 fe:00 12 /usr/lib/libc.so.6\n\
                7f01-7f02 rw-p 00000000 00:00 0 \n\
                7f02-7f03 r--p 00000000 fe:00 13 /opt/my python/nvidia/cu13/lib/libnvrtc-builtins.so.13.0\n\
                7f03-7f04 r-xp 00000000 fe:00 14 /opt/my python/nvidia/cu13/lib/libnvrtc.so.13\n\
                7f04-7f05 r--p 00000000 00:00 0 [vdso]\n";
    assert_eq!(loaded_in(maps), Some("/opt/my python/nvidia/cu13/lib".into()));
    assert_eq!(loaded_in("7f00-7f01 r--p 0 fe:00 12 /lib/libnvrtc.so.13 (deleted)\n"), None);
    assert_eq!(loaded_in(""), None);
}

/// A program that stands for python3.
fn program(folder: &Folder, script: &str) -> PathBuf {
    let path = folder.0.join("python");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("our folder");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("our file");
    path
}

#[test]
fn python_is_asked_for_its_packages() {
    let folder =
        Folder::new("python").with(&["b/nvidia/cuda_nvrtc/lib/x", "a/nvidia/cu13/lib/x", "c/nvidia/x"]);
    let root = folder.0.display();
    let script = format!("echo; echo relative; for name in c a b; do echo {root}/$name; done");
    let found = python(program(&folder, &script).as_os_str(), PYTHON_PATIENCE).expect("two wheels");
    assert_eq!(found, ["a/nvidia/cu13/lib", "b/nvidia/cuda_nvrtc/lib"].map(|inside| folder.0.join(inside)));
    let none = python(program(&folder, "exit 1").as_os_str(), PYTHON_PATIENCE).expect_err("it says nothing");
    assert_eq!(none, "the package nvidia-cuda-nvrtc is not installed");
    let hangs = program(&folder, "exec sleep 600");
    let hangs = python(hangs.as_os_str(), Duration::from_millis(10)).expect_err("it never answers");
    assert!(hangs.contains("does not answer"), "{hangs}");
    let missing = python("ringsmith-no-such-python".as_ref(), PYTHON_PATIENCE).expect_err("it is not there");
    assert_eq!(missing, "ringsmith-no-such-python is not on the search path");
}

#[test]
fn installed_tools_are_found_beside_what_cargo_builds() {
    let target = Folder::new("target").with(&["CACHEDIR.TAG", "debug/deps/test", "other/program"]);
    let expected = Some(WHEEL_FOLDERS.map(|wheel| target.0.join("tools/python").join(wheel)).to_vec());
    assert_eq!(setup_beside(&target.0.join("debug/deps/test")), expected);
    assert_eq!(setup_beside(&target.0.join("debug/ringsmith")), expected);
    let installed = Folder::new("installed").with(&["bin/ringsmith", "tools/python/nvidia/cu13/lib/x"]);
    assert_eq!(setup_beside(&installed.0.join("bin/ringsmith")), None);
}
