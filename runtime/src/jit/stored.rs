//! The file of one kept kernel: a header, the kernel's name, the compiler's log, the machine code.
//!
//! All numbers are little-endian.
//!
//! | offset | bytes | holds |
//! | --- | --- | --- |
//! | 0 | 8 | `RSKERNEL` |
//! | 8 | 4 | the format, [`FORMAT`] |
//! | 12 | 4 | the architecture's number |
//! | 16 | 8 | major and minor version of NVRTC |
//! | 24 | 32 | the key |
//! | 56 | 24 | lengths of name, log and code |
//! | 80 | 32 | SHA-256 of all before it and all after it |
//! | 112 | | name, log, code |
//!
//! Reading believes nothing: a file may be cut short, damaged, or somebody else's.

use super::{Architecture, Cubin, Version};
use sha2::{Digest, Sha256};

const MAGIC: &[u8; 8] = b"RSKERNEL";
/// The format of these files; another number is another format.
pub(super) const FORMAT: u32 = 1;
const HASHED_HEADER: usize = 80;
const HEADER: usize = HASHED_HEADER + 32;
/// A larger file is no kernel. Ours; the largest so far has a tenth of a megabyte.
pub(super) const MAX_FILE_BYTES: u64 = 64 << 20;

/// Why a kept kernel is not used.
#[derive(Debug, thiserror::Error)]
pub enum Damage {
    /// Not a regular file.
    #[error("it is no regular file")]
    NotAFile,
    /// Somebody else's.
    #[error("it belongs to user {uid}")]
    Owner {
        /// Whose it is.
        uid: u32,
    },
    /// Others may write it.
    #[error("others may write it (mode {mode:o})")]
    Writable {
        /// Its permissions.
        mode: u32,
    },
    /// Larger than any kernel.
    #[error("it has {bytes} bytes, more than any kernel")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Not a file of ours.
    #[error("it is no kernel of Ringsmith")]
    Foreign,
    /// Of a format that this version does not read.
    #[error("it has format {format}, and this version reads format {FORMAT}")]
    Format {
        /// The format.
        format: u32,
    },
    /// Shorter or longer than it says.
    #[error("it is cut short or has bytes too many")]
    Length,
    /// Its bytes are not those that were written.
    #[error("its contents do not match their checksum")]
    Checksum,
    /// The file of another kernel under this name.
    #[error("it holds another kernel")]
    OtherKernel,
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) key: [u8; 32],
    pub(super) name: String,
    pub(super) version: Version,
    pub(super) cubin: Cubin,
}

/// The bytes of a file.
pub(super) fn write(key: &[u8; 32], name: &str, version: Version, cubin: &Cubin) -> Vec<u8> {
    let parts = [name.as_bytes(), cubin.log().as_bytes(), cubin.bytes()];
    let mut bytes = Vec::with_capacity(HEADER + parts.iter().map(|part| part.len()).sum::<usize>());
    bytes.extend(MAGIC);
    for number in [FORMAT, cubin.architecture().number(), version.major, version.minor] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(key);
    for part in parts {
        bytes.extend((part.len() as u64).to_le_bytes());
    }
    debug_assert_eq!(bytes.len(), HASHED_HEADER);
    let mut hash = Sha256::new();
    hash.update(&bytes);
    parts.iter().for_each(|part| hash.update(part));
    bytes.extend(hash.finalize());
    parts.iter().for_each(|part| bytes.extend(*part));
    bytes
}

/// Reads the bytes of a file, all of them.
///
/// Errors: whatever is wrong with them.
pub(super) fn read(bytes: &[u8]) -> Result<Stored, Damage> {
    let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let length = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    match bytes.get(..MAGIC.len()) {
        Some(magic) if magic == MAGIC => {}
        Some(_) => return Err(Damage::Foreign),
        None => return Err(Damage::Length),
    }
    let format = number(8).ok_or(Damage::Length)?;
    if format != FORMAT {
        return Err(Damage::Format { format });
    }
    let (header, contents) = bytes.split_at_checked(HEADER).ok_or(Damage::Length)?;
    let mut parts: [&[u8]; 3] = [&[]; 3];
    let mut rest = contents;
    for (part, at) in parts.iter_mut().zip([56, 64, 72]) {
        let len = length(at).and_then(|len| usize::try_from(len).ok()).ok_or(Damage::Length)?;
        (*part, rest) = rest.split_at_checked(len).ok_or(Damage::Length)?;
    }
    if !rest.is_empty() {
        return Err(Damage::Length);
    }
    let mut hash = Sha256::new();
    hash.update(&header[..HASHED_HEADER]);
    hash.update(contents);
    if hash.finalize()[..] != header[HASHED_HEADER..] {
        return Err(Damage::Checksum);
    }
    // What follows was written so by this program, or by one that only pretends to be it.
    let [name, log, code] = parts;
    let text = |part: &[u8]| String::from_utf8(part.to_vec()).map_err(|_| Damage::Foreign);
    let fixed = |at: usize| number(at).ok_or(Damage::Length);
    let architecture = fixed(12)?;
    let architecture = Architecture::of_capability(architecture / 10, architecture % 10);
    let architecture = architecture.map_err(|_| Damage::Foreign)?;
    Ok(Stored {
        key: header[24..56].try_into().map_err(|_| Damage::Length)?,
        name: text(name)?,
        version: Version { major: fixed(16)?, minor: fixed(20)? },
        cubin: Cubin::new(code.to_vec(), architecture, text(log)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "ptxas info    : Compiling entry function 'k' for 'sm_90'\n\
                       ptxas info    : Function properties for k\n\
                       ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
                       ptxas info    : Used 32 registers, used 1 barriers\n";

    fn file() -> Vec<u8> {
        let cubin = Cubin::new(vec![1, 2, 3], "sm_90".parse().expect("an architecture"), LOG.to_owned());
        write(&[7; 32], "ring", Version { major: 13, minor: 0 }, &cubin)
    }

    #[test]
    fn what_was_written_is_read() {
        let stored = read(&file()).expect("a whole file");
        assert_eq!((stored.key, stored.name.as_str()), ([7; 32], "ring"));
        assert_eq!(stored.version, Version { major: 13, minor: 0 });
        assert_eq!(stored.cubin.bytes(), [1, 2, 3]);
        assert_eq!(stored.cubin.architecture().to_string(), "sm_90");
        assert_eq!(stored.cubin.entry("k").map(|entry| entry.registers), Some(32));
        assert_eq!(stored.cubin.spill_bytes(), 12);
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let sound = file();
        for at in 0..sound.len() {
            for change in [1, 0x80, 0xff] {
                let mut damaged = sound.clone();
                damaged[at] ^= change;
                let damage = read(&damaged).expect_err("a changed byte");
                match at {
                    0..8 => assert!(matches!(damage, Damage::Foreign), "{at}: {damage}"),
                    8..12 => assert!(matches!(damage, Damage::Format { .. }), "{at}: {damage}"),
                    _ => assert!(matches!(damage, Damage::Checksum | Damage::Length), "{at}: {damage}"),
                }
            }
        }
    }

    #[test]
    fn every_other_length_is_noticed() {
        let sound = file();
        for len in 0..sound.len() {
            assert!(matches!(read(&sound[..len]), Err(Damage::Length)), "{len}");
        }
        assert!(matches!(read(&[&sound[..], &[0]].concat()), Err(Damage::Length)));
        for at in [56, 64, 72] {
            let mut boundless = sound.clone();
            boundless[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
            assert!(matches!(read(&boundless), Err(Damage::Length)), "{at}");
        }
    }

    #[test]
    fn later_formats_are_named() {
        let mut later = file();
        later[8] = 2;
        let text = read(&later).expect_err("a later format").to_string();
        assert_eq!(text, "it has format 2, and this version reads format 1");
    }
}
