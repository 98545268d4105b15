//! The manifest of a bundle: lines of words, the last of which is the hash of all before it.
//!
//! ```text
//! ringsmith bundle 1
//! generator 0.1.0 HASH
//! for all_reduce float32 sum, 2..8 ranks, 8 to 1G bytes
//! plan HASH BYTES NAME
//! source HASH BYTES NAME
//! kernel HASH BYTES FAMILY ARCHITECTURE VERSION PLAN SOURCE
//! end HASH
//! ```
//! The first line is the same in every format but for its number. `generator` says which Ringsmith wrote the
//! sources, with a hash of its templates; `for` lines are for people. A name has letters, digits, `_`, `-` and
//! `.`, and does not begin with a dot, so it leads nowhere else.
//!
//! Reading believes nothing: a manifest may be cut short, damaged, or somebody else's. All of it is bounded by
//! the file's own size.

use super::super::cache::Family;
use super::super::{Architecture, Version};
use super::Fault;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The file's name.
pub const NAME: &str = "manifest";
/// The format of these files; another number is another format.
pub const FORMAT: u64 = 1;
/// A larger manifest is none. Ours: room for fifty thousand kernels.
pub(super) const MAX_BYTES: u64 = 16 << 20;
/// What a bundle's other files have together at most. Ours: room for fifteen thousand kernels.
const MAX_TOTAL_BYTES: u64 = 1 << 30;
/// Longer names are none. Ours: file systems take 255, and endings come after them.
const MAX_NAME: usize = 200;
const MAGIC: &str = "ringsmith bundle ";

/// What is in a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The version of Ringsmith that wrote the sources, and the hash of its templates.
    pub generator: Generator,
    /// What it was compiled for, for people.
    pub purposes: Vec<String>,
    /// Every other file.
    pub entries: Vec<Entry>,
    digest: String,
}

/// What writes sources from plans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    /// Its version.
    pub version: String,
    /// The hash of its templates.
    pub templates: String,
}

/// A file of a bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The SHA-256 of its bytes.
    pub hash: [u8; 32],
    /// How many there are.
    pub bytes: u64,
    /// Its name, without folder and ending; of a kernel, its family and version.
    pub name: String,
    /// What it holds.
    pub kind: Kind,
}

/// What a file of a bundle holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The text of a kernel plan.
    Plan,
    /// CUDA C++.
    Source,
    /// Machine code.
    Kernel {
        /// What it was made from, as a hash.
        family: Family,
        /// What it is for.
        architecture: Architecture,
        /// The compiler that made it.
        version: Version,
        /// The name of its plan.
        plan: String,
        /// The name of its source.
        source: String,
    },
}

impl Entry {
    /// Where it is, from the bundle's folder on.
    pub fn path(&self) -> String {
        match self.kind {
            Kind::Plan => format!("plans/{}.plan", self.name),
            Kind::Source => format!("sources/{}.cu", self.name),
            Kind::Kernel { .. } => format!("kernels/{}.kernel", self.name),
        }
    }
}

impl Generator {
    /// This Ringsmith's.
    pub fn own() -> Self {
        let mut hash = Sha256::new();
        for (name, text) in ringsmith_compiler::emit::templates() {
            for part in [name, text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), templates: hex(&hash.finalize()) }
    }

    /// For people: the version, and enough of the hash to tell two apart.
    pub fn name(&self) -> String {
        format!("{}, templates {}", self.version, &self.templates[..8])
    }
}

impl Manifest {
    /// Of these files.
    pub(super) fn new(purposes: Vec<String>, entries: Vec<Entry>) -> Self {
        let mut manifest = Self { generator: Generator::own(), purposes, entries, digest: String::new() };
        manifest.digest = hex(&Sha256::digest(manifest.body()));
        manifest
    }

    /// The hash of all that it says.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The entries of kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| matches!(entry.kind, Kind::Kernel { .. }))
    }

    /// Whether this Ringsmith would generate the same sources.
    pub(super) fn check_generator(&self) -> Result<(), Fault> {
        let own = Generator::own();
        if self.generator == own {
            return Ok(());
        }
        Err(Fault::Generator { made_by: self.generator.name(), own: own.name() })
    }

    /// The text.
    pub(super) fn write(&self) -> String {
        self.body() + &last_line_of(&self.digest)
    }

    /// All but the last line.
    pub fn body(&self) -> String {
        let mut text = format!("{MAGIC}{FORMAT}\n");
        let Generator { version, templates } = &self.generator;
        let _ = writeln!(text, "generator {version} {templates}");
        for purpose in &self.purposes {
            let _ = writeln!(text, "for {purpose}");
        }
        for Entry { hash, bytes, name, kind } in &self.entries {
            let hash = hex(hash);
            let _ = match kind {
                Kind::Plan => writeln!(text, "plan {hash} {bytes} {name}"),
                Kind::Source => writeln!(text, "source {hash} {bytes} {name}"),
                Kind::Kernel { family, architecture, version, plan, source } => {
                    let family = family.hex();
                    writeln!(text, "kernel {hash} {bytes} {family} {architecture} {version} {plan} {source}")
                }
            };
        }
        text
    }

    /// Reads the text.
    ///
    /// Errors: the first thing that is wrong, and the byte from which on it is.
    pub fn read(bytes: &[u8]) -> Result<Self, (u64, Fault)> {
        let (format, first) = first_line(bytes)?;
        if format != FORMAT {
            return Err((0, Fault::Format(format)));
        }
        let end = last_line(bytes)?;
        let (body, last) = bytes.split_at(end);
        let digest = hex(&Sha256::digest(body));
        if last != last_line_of(&digest).as_bytes() {
            return Err((end as u64, Fault::Checksum));
        }
        let text = std::str::from_utf8(body).map_err(|e| (e.valid_up_to() as u64, Fault::Foreign))?;
        let (mut generator, mut purposes, mut entries) = (None, Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        let mut total: u64 = 0;
        let mut at = first;
        for (number, line) in (2..).zip(text[first..].lines()) {
            let wrong = |reason: String| (at as u64, Fault::Line { line: number, reason });
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "generator" if generator.is_some() => return Err(wrong("a second generator".to_owned())),
                "generator" => generator = Some(read_generator(rest).map_err(wrong)?),
                "for" => purposes.push(rest.to_owned()),
                "plan" | "source" | "kernel" => {
                    let entry = read_entry(word, rest).map_err(wrong)?;
                    total = total.saturating_add(entry.bytes);
                    if total > MAX_TOTAL_BYTES {
                        return Err(wrong(format!(
                            "files of {total} bytes up to here; a bundle has at most {MAX_TOTAL_BYTES}"
                        )));
                    }
                    if !seen.insert(entry.path()) {
                        return Err(wrong(format!("a second {}", entry.path())));
                    }
                    entries.push(entry);
                }
                other => {
                    let word: String = other.chars().take(40).collect();
                    return Err(wrong(format!("{word:?} begins no line of a manifest")));
                }
            }
            at += line.len() + 1;
        }
        let Some(generator) = generator else {
            let reason = "there is no generator before it".to_owned();
            return Err((end as u64, Fault::Line { line: text.lines().count() + 1, reason }));
        };
        for entry in &entries {
            let Kind::Kernel { plan, source, .. } = &entry.kind else { continue };
            let parts = [(Kind::Plan, plan), (Kind::Source, source)];
            for (kind, name) in parts {
                let path = Entry { hash: [0; 32], bytes: 0, name: name.clone(), kind }.path();
                if !seen.contains(&path) {
                    let reason = format!("{} names {path}, which is not listed", entry.path());
                    let line = 1 + entries.iter().position(|e| e == entry).unwrap_or(0);
                    return Err((0, Fault::Line { line, reason }));
                }
            }
        }
        Ok(Self { generator, purposes, entries, digest })
    }
}

/// A body with the last line that makes it whole, whatever it says.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    [body, last_line_of(&hex(&Sha256::digest(body))).as_bytes()].concat()
}

fn last_line_of(digest: &str) -> String {
    format!("end {digest}\n")
}

/// The number in the first line, and where the next begins.
fn first_line(bytes: &[u8]) -> Result<(u64, usize), (u64, Fault)> {
    let magic = MAGIC.as_bytes();
    let common = bytes.iter().zip(magic).take_while(|(a, b)| a == b).count();
    if common < magic.len() {
        // Cut short, or another's.
        let is_cut = common == bytes.len();
        let fault = if is_cut { Fault::CutShort("a manifest".to_owned()) } else { Fault::Foreign };
        return Err((common as u64, fault));
    }
    let rest = &bytes[magic.len()..];
    let Some(digits) = rest.iter().position(|byte| *byte == b'\n') else {
        let is_digits = rest.len() <= 20 && rest.iter().all(u8::is_ascii_digit);
        let fault = if is_digits { Fault::CutShort("a manifest".to_owned()) } else { Fault::Foreign };
        let at = if is_digits { bytes.len() } else { magic.len() };
        return Err((at as u64, fault));
    };
    let number = std::str::from_utf8(&rest[..digits]).ok().and_then(number::<u64>);
    let format = number.ok_or((magic.len() as u64, Fault::Foreign))?;
    Ok((format, magic.len() + digits + 1))
}

/// Where the last line begins, which says `end`.
fn last_line(bytes: &[u8]) -> Result<usize, (u64, Fault)> {
    let cut = || (bytes.len() as u64, Fault::CutShort("a last line `end HASH`".to_owned()));
    let body = bytes.strip_suffix(b"\n").ok_or_else(cut)?;
    let start = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    if bytes[start..].starts_with(b"end ") { Ok(start) } else { Err(cut()) }
}

fn read_generator(text: &str) -> Result<Generator, String> {
    let words: Vec<&str> = text.split(' ').collect();
    let [version, templates] = words[..] else { return Err("expected a version and a hash".to_owned()) };
    check_name(version)?;
    read_hash(templates)?;
    Ok(Generator { version: version.to_owned(), templates: templates.to_owned() })
}

fn read_entry(word: &str, text: &str) -> Result<Entry, String> {
    let words: Vec<&str> = text.split(' ').collect();
    let expected = if word == "kernel" { 7 } else { 3 };
    if words.len() != expected {
        return Err(format!("{} words after `{word}`; expected {expected}", words.len()));
    }
    let hash = read_hash(words[0])?;
    let bytes = number(words[1]).ok_or_else(|| format!("{} is no number of bytes", words[1]))?;
    if word != "kernel" {
        check_name(words[2])?;
        let kind = if word == "plan" { Kind::Plan } else { Kind::Source };
        return Ok(Entry { hash, bytes, name: words[2].to_owned(), kind });
    }
    let family = Family::of_hash(read_hash(words[2])?);
    let architecture: Architecture = words[3].parse().map_err(|e| format!("{e}"))?;
    let version = words[4]
        .split_once('.')
        .and_then(|(major, minor)| Some(Version { major: number(major)?, minor: number(minor)? }));
    let version = version.ok_or_else(|| format!("{} is no version", words[4]))?;
    check_name(words[5])?;
    check_name(words[6])?;
    let (plan, source) = (words[5].to_owned(), words[6].to_owned());
    let name = kernel_name(&family, version);
    let is_canonical = words[3] == architecture.to_string();
    let kind = Kind::Kernel { family, architecture, version, plan, source };
    if is_canonical {
        Ok(Entry { hash, bytes, name, kind })
    } else {
        Err(format!("{} is no architecture", words[3]))
    }
}

/// The name of a kernel's file.
pub(super) fn kernel_name(family: &Family, version: Version) -> String {
    format!("{}-{version}", family.hex())
}

/// Whether a name is one that a file of a bundle may have.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.') {
        return Ok(());
    }
    let shown: String = name.chars().take(40).collect();
    Err(format!("{shown:?} is no name of a file of a bundle"))
}

/// A number as it is written: digits alone, and no zero in front.
fn number<N: std::str::FromStr + ToString>(text: &str) -> Option<N> {
    text.parse().ok().filter(|number: &N| number.to_string() == text)
}

/// Bytes as digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn read_hash(text: &str) -> Result<[u8; 32], String> {
    let mut hash = [0; 32];
    let is_hash = text.len() == 64 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    if !is_hash {
        return Err("a hash has 64 digits 0 to f".to_owned());
    }
    for (byte, at) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|e| e.to_string())?;
    }
    Ok(hash)
}
