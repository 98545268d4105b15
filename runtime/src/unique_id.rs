//! The unique id: 128 bytes that tell every rank of a job where the root is and how to prove that
//! they belong to it.
//!
//! Made by one rank (or a parent process), passed to the others by whatever the program has, read
//! back here with every doubt: bytes from elsewhere are hostile. Whoever has the id can join; its
//! `Debug` and `Display` show a fingerprint only.
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..4 | `RSID` |
//! | 4..6 | version, 1 |
//! | 6 | number of addresses, 1 to 5 |
//! | 7 | flags: 1 = made from a `host:port`, has no secret of its own |
//! | 8..24 | secret; of a fixed address: digest of the job's name |
//! | 24..26 | port |
//! | 26..106 | addresses, IPv6, those of IPv4 mapped |
//! | 106..114 | key of the root's host, so that ranks on it try loopback first |
//! | 114..120 | zero |
//! | 120..128 | checksum: start of the SHA-256 of bytes 0..120 |
//!
//! Numbers are little endian.

use crate::bootstrap::host;
use crate::bootstrap::interface::{self, Listening};
use crate::bootstrap::root::Root;
use crate::config::Config;
use crate::config::grammar::HostPort;
use crate::error::{Error, Result};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Length of an id in bytes, as in NCCL.
pub const UNIQUE_ID_BYTES: usize = 128;
const MAGIC: [u8; 4] = *b"RSID";
const VERSION: u16 = 1;
/// Most addresses of a root that an id holds; further ones are less likely to be reached.
pub const MAX_ADDRESSES: usize = 5;
const FLAG_OPEN: u8 = 1;

const SECRET: std::ops::Range<usize> = 8..24;
const PORT: std::ops::Range<usize> = 24..26;
const ADDRESSES: usize = 26;
const HOST: std::ops::Range<usize> = 106..114;
const ZERO: std::ops::Range<usize> = 114..120;
const CHECKSUM: usize = 120;

/// Why bytes or text are not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not 128 bytes.
    #[error("a unique id has 128 bytes, this has {0}; it was cut short or is something else")]
    Length(usize),
    /// As text: not hexadecimal digits.
    #[error("a unique id as text is 256 hexadecimal digits; character {at} is {found:?}")]
    Digit {
        /// Place of the character, from 0.
        at: usize,
        /// The character.
        found: char,
    },
    /// All zero: nobody made it.
    #[error("the unique id is all zero: it was never filled in; rank 0 makes it and passes it to the others")]
    Zero,
    /// Does not begin as an id of Ringsmith.
    #[error(
        "these 128 bytes are not a unique id of Ringsmith; an id made by NCCL or another library cannot be used"
    )]
    Magic,
    /// Made by another version.
    #[error("the unique id has format {0}, this program reads format 1; install one version on all hosts")]
    Version(u16),
    /// Damaged on the way.
    #[error("the unique id is damaged: its checksum is wrong")]
    Checksum,
    /// Whole, and yet its content is impossible.
    #[error("the unique id has an impossible {0}")]
    Content(&'static str),
}

/// The address, secret and version of a job's root.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct UniqueId {
    bytes: [u8; UNIQUE_ID_BYTES],
}

impl UniqueId {
    /// Makes an id and starts the root that it leads to.
    ///
    /// With `COMM_ID` set, the root listens there, and the id has no secret beyond `JOB_SECRET`.
    /// Errors: `Interface`, `Listen`, `Resolve`, `Random`, `Thread`.
    pub fn create(config: &Config) -> Result<(Self, Root)> {
        Self::create_on(config, interface::listen_anywhere)
    }

    /// As [`UniqueId::create`], for ranks that are all on this host: the root listens on loopback, or on the
    /// first interface of those that `SOCKET_IFNAME` leaves, and on no other.
    pub fn create_local(config: &Config) -> Result<(Self, Root)> {
        Self::create_on(config, interface::listen_here)
    }

    fn create_on(config: &Config, listen: fn(&Config) -> Result<Listening>) -> Result<(Self, Root)> {
        match &config.comm_id {
            Some(address) => Self::create_at(address, "RINGSMITH_COMM_ID", "", config),
            None => {
                let listener = listen(config)?;
                let mut secret = [0; 16];
                getrandom::fill(&mut secret).map_err(|source| Error::Random { source })?;
                let id = Self::assemble(&listener.addresses, listener.port, secret, 0, host::key(config));
                let root = Root::start(listener, &id, config)?;
                tracing::info!(target: "ringsmith::bootstrap", "root {id} listens on {}", crate::error::Addresses(&id.addresses()));
                Ok((id, root))
            }
        }
    }

    /// Makes the id of a fixed address and starts the root there.
    ///
    /// `setting` is where the address comes from, for messages; ranks with another `job` are kept out.
    /// Errors: `Listen`, `Resolve`, `Thread`.
    pub fn create_at(
        address: &HostPort,
        setting: &'static str,
        job: &str,
        config: &Config,
    ) -> Result<(Self, Root)> {
        let id = Self::from_address(address, setting, job, config)?;
        let listener = interface::listen_at(address, &id.addresses())?;
        let root = Root::start(listener, &id, config)?;
        tracing::info!(target: "ringsmith::bootstrap", "root {id} listens on {}", crate::error::Addresses(&id.addresses()));
        Ok((id, root))
    }

    /// The id of a fixed address, for ranks that know where the root is and have no id from it.
    ///
    /// `setting` and `job` as in [`UniqueId::create_at`]. A job's name is no secret: it keeps jobs
    /// apart that meet by mistake.
    /// Errors: `Resolve`.
    pub fn from_address(
        address: &HostPort,
        setting: &'static str,
        job: &str,
        config: &Config,
    ) -> Result<Self> {
        let resolve_error = |source| Error::Resolve { host: address.host.clone(), setting, source };
        let resolved =
            (address.host.as_str(), address.port.get()).to_socket_addrs().map_err(resolve_error)?;
        let mut addresses: Vec<IpAddr> = Vec::new();
        for ip in resolved.map(|address| address.ip().to_canonical()) {
            if !addresses.contains(&ip) && addresses.len() < MAX_ADDRESSES {
                addresses.push(ip);
            }
        }
        if addresses.is_empty() {
            let none = std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
            return Err(resolve_error(none));
        }
        if config.job_secret.is_none() {
            tracing::warn!(
                target: "ringsmith::bootstrap",
                "the meeting at {address} ({setting}) has no secret: any process that reaches this port can join; RINGSMITH_JOB_SECRET adds one"
            );
        }
        let mut name = [0; 16];
        if !job.is_empty() {
            name.copy_from_slice(&Sha256::digest(job.as_bytes())[..16]);
        }
        Ok(Self::assemble(&addresses, address.port.get(), name, FLAG_OPEN, [0; 16]))
    }

    fn assemble(addresses: &[IpAddr], port: u16, secret: [u8; 16], flags: u8, host_key: [u8; 16]) -> Self {
        assert!(
            (1..=MAX_ADDRESSES).contains(&addresses.len()),
            "an id should be made of one to five addresses"
        );
        let mut bytes = [0; UNIQUE_ID_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6] = addresses.len() as u8;
        bytes[7] = flags;
        bytes[SECRET].copy_from_slice(&secret);
        bytes[PORT].copy_from_slice(&port.to_le_bytes());
        for (index, address) in addresses.iter().enumerate() {
            let v6 = match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => *v6,
            };
            bytes[ADDRESSES + 16 * index..][..16].copy_from_slice(&v6.octets());
        }
        bytes[HOST].copy_from_slice(&host_key[..8]);
        let checksum = checksum(&bytes);
        bytes[CHECKSUM..].copy_from_slice(&checksum);
        Self { bytes }
    }

    /// Reads an id.
    ///
    /// Errors: each way in which bytes can fail to be an id has its own.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, IdError> {
        let bytes: [u8; UNIQUE_ID_BYTES] = bytes.try_into().map_err(|_| IdError::Length(bytes.len()))?;
        if bytes.iter().all(|&b| b == 0) {
            return Err(IdError::Zero);
        }
        if bytes[..4] != MAGIC {
            return Err(IdError::Magic);
        }
        let version = u16::from_le_bytes([bytes[4], bytes[5]]);
        if version != VERSION {
            return Err(IdError::Version(version));
        }
        if bytes[CHECKSUM..] != checksum(&bytes) {
            return Err(IdError::Checksum);
        }
        let id = Self { bytes };
        if !(1..=MAX_ADDRESSES).contains(&(bytes[6] as usize)) {
            return Err(IdError::Content("number of addresses"));
        }
        if bytes[7] & !FLAG_OPEN != 0 || bytes[ZERO].iter().any(|&b| b != 0) {
            return Err(IdError::Content("flag"));
        }
        if id.port() == 0 {
            return Err(IdError::Content("port"));
        }
        if id.addresses().iter().any(|address| address.ip().is_unspecified() || address.ip().is_multicast()) {
            return Err(IdError::Content("address"));
        }
        Ok(id)
    }

    /// The id as bytes, to pass to other ranks.
    pub fn as_bytes(&self) -> &[u8; UNIQUE_ID_BYTES] {
        &self.bytes
    }

    /// The id as 256 hexadecimal digits. It holds the secret: show it to the ranks of the job only.
    pub fn to_hex(&self) -> String {
        self.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The root's addresses, the most likely to be reached first.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let stored = self.bytes[ADDRESSES..].chunks_exact(16).take(self.bytes[6] as usize);
        stored
            .map(|octets| {
                let octets: [u8; 16] = octets.try_into().expect("chunks of 16 are 16 long");
                SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), self.port())
            })
            .collect()
    }

    /// Whether the id was made from a fixed address and has no secret of its own.
    pub fn is_open(&self) -> bool {
        self.bytes[7] & FLAG_OPEN != 0
    }

    fn port(&self) -> u16 {
        u16::from_le_bytes([self.bytes[PORT.start], self.bytes[PORT.start + 1]])
    }

    /// Whether the root seems to be on the host with this key.
    pub(crate) fn is_on_host(&self, host_key: &[u8; 16]) -> bool {
        self.bytes[HOST] == host_key[..8]
    }

    /// The key of the handshake: the id's secret and the job's.
    pub(crate) fn handshake_key(&self, config: &Config) -> [u8; 32] {
        let job_secret = config.job_secret.as_ref().map(|secret| Sha256::digest(secret.as_bytes()));
        let mut hash = Sha256::new();
        hash.update(b"ringsmith handshake key 1");
        hash.update(&self.bytes[SECRET]);
        hash.update(job_secret.unwrap_or_default());
        hash.finalize().into()
    }
}

fn checksum(bytes: &[u8; UNIQUE_ID_BYTES]) -> [u8; 8] {
    let digest = Sha256::digest(&bytes[..CHECKSUM]);
    digest[..8].try_into().expect("a SHA-256 has 32 bytes")
}

impl FromStr for UniqueId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let text = text.trim();
        if let Some((at, found)) = text.chars().enumerate().find(|(_, c)| !c.is_ascii_hexdigit()) {
            return Err(IdError::Digit { at, found });
        }
        if text.len() != 2 * UNIQUE_ID_BYTES {
            return Err(IdError::Length(text.len() / 2));
        }
        let digit = |c: u8| (c as char).to_digit(16).expect("only hexadecimal digits are left") as u8;
        let bytes: Vec<u8> =
            text.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
        Self::from_bytes(&bytes)
    }
}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The digest says which id this is and gives nothing of the secret away.
        let digest = Sha256::new().chain_update(b"ringsmith fingerprint").chain_update(self.bytes).finalize();
        f.write_str("id-")?;
        digest[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({self}, {:?})", self.addresses())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> UniqueId {
        let addresses = ["10.0.0.1", "fd00::1"].map(|a| a.parse().expect("an address of the test"));
        UniqueId::assemble(&addresses, 4000, [0xab; 16], 0, [1; 16])
    }

    /// The sample with bytes changed and the checksum made right again.
    fn forged(change: impl Fn(&mut [u8; UNIQUE_ID_BYTES])) -> Result<UniqueId, IdError> {
        let mut bytes = *sample().as_bytes();
        change(&mut bytes);
        let sum = checksum(&bytes);
        bytes[CHECKSUM..].copy_from_slice(&sum);
        UniqueId::from_bytes(&bytes)
    }

    #[test]
    fn bytes_and_text_give_the_same_id_back() {
        let id = sample();
        assert_eq!(UniqueId::from_bytes(id.as_bytes()), Ok(id));
        assert_eq!(id.to_hex().parse(), Ok(id));
        assert_eq!(format!(" {}\n", id.to_hex().to_uppercase()).parse(), Ok(id));
        let addresses: Vec<String> = id.addresses().iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1:4000", "[fd00::1]:4000"]);
        assert!(!id.is_open() && id.is_on_host(&[1; 16]) && !id.is_on_host(&[2; 16]));
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{} {:?}", sample(), sample());
        assert!(!shown.contains("abab"), "{shown}");
    }

    #[test]
    fn each_kind_of_damage_has_its_error() {
        let bytes = *sample().as_bytes();
        let read = |bytes: &[u8]| UniqueId::from_bytes(bytes);
        assert_eq!(read(&bytes[..127]), Err(IdError::Length(127)));
        assert_eq!(read(&[bytes.as_slice(), &[0]].concat()), Err(IdError::Length(129)));
        assert_eq!(read(&[]), Err(IdError::Length(0)));
        assert_eq!(read(&[0; 128]), Err(IdError::Zero));
        assert_eq!(read(&[7; 128]), Err(IdError::Magic));
        assert_eq!(forged(|b| b[4] = 2), Err(IdError::Version(2)));
        assert_eq!(forged(|b| b[6] = 0), Err(IdError::Content("number of addresses")));
        assert_eq!(forged(|b| b[6] = 6), Err(IdError::Content("number of addresses")));
        assert_eq!(forged(|b| b[7] = 2), Err(IdError::Content("flag")));
        assert_eq!(forged(|b| b[119] = 1), Err(IdError::Content("flag")));
        assert_eq!(forged(|b| b[PORT].fill(0)), Err(IdError::Content("port")));
        assert_eq!(forged(|b| b[ADDRESSES..][..16].fill(0)), Err(IdError::Content("address")));
        assert_eq!(forged(|b| b[ADDRESSES..][..16].fill(0xff)), Err(IdError::Content("address")));
        assert_eq!("xyz".parse::<UniqueId>(), Err(IdError::Digit { at: 0, found: 'x' }));
        assert_eq!("".parse::<UniqueId>(), Err(IdError::Length(0)));
        assert_eq!("abc".parse::<UniqueId>(), Err(IdError::Length(1)));
    }

    #[test]
    fn no_single_changed_bit_goes_unnoticed() {
        let bytes = *sample().as_bytes();
        for bit in 0..8 * UNIQUE_ID_BYTES {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(UniqueId::from_bytes(&changed).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn keys_depend_on_every_secret() {
        let config = |secret: &str| {
            let vars = [("RINGSMITH_JOB_SECRET".to_owned(), secret.to_owned())];
            Config::from_vars(vars).expect("settings of the test").0
        };
        let other = UniqueId::assemble(&[IpAddr::V6(Ipv6Addr::LOCALHOST)], 4000, [0xac; 16], 0, [1; 16]);
        let keys = [
            sample().handshake_key(&Config::default()),
            sample().handshake_key(&config("a")),
            sample().handshake_key(&config("b")),
            other.handshake_key(&Config::default()),
        ];
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[..index].contains(key), "key {index}");
        }
    }
}
