//! Small files of the kernel: read whole if they are short, absent if they are not there.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// The most bytes that are read of a file. Ours: the first processor of /proc/cpuinfo has 2 KB.
const MAX_BYTES: u64 = 1 << 14;

/// The most names that are read of a folder. Ours: a host with eight GPUs has some 500 PCIe devices.
const MAX_NAMES: usize = 1 << 14;

/// A folder that holds `sys` and `proc`.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    pub(super) fn of(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// What a file holds, without the space around it; none if that is nothing.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let path = self.root.join(path);
        // A pipe or a device in its place would make reading wait.
        if !fs::metadata(&path).is_ok_and(|facts| facts.is_file()) {
            return None;
        }
        let mut bytes = Vec::new();
        File::open(&path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// A number in a file, hexadecimal behind `0x`.
    pub(super) fn number(&self, path: &str) -> Option<i64> {
        let text = self.text(path)?;
        match text.strip_prefix("0x") {
            Some(digits) => i64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Names in a folder, in order.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.take(MAX_NAMES).filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The names that a link leads through, from the one that begins with `first`.
    pub(super) fn link(&self, path: &str, first: &str) -> Option<Vec<String>> {
        let target = fs::read_link(self.root.join(path)).ok()?;
        let names = target.components().filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
        });
        let names: Vec<String> = names.skip_while(|name| !name.starts_with(first)).collect();
        (!names.is_empty()).then_some(names)
    }
}
