//! The unique id of a job, and the root that it leads to.

use crate::communicator::settings;
use ringsmith_runtime::bootstrap::root::Root;
use ringsmith_runtime::config::Config;
use ringsmith_runtime::error::Result;
use ringsmith_runtime::unique_id::{IdError, UNIQUE_ID_BYTES, UniqueId as Id};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// 128 bytes that let a rank join a job: where its root listens, and the job's secret.
///
/// One process makes it and passes the bytes to the others by whatever it has: a file that only the
/// user can read, an environment variable, a message. Whoever holds them can join. `Debug` and
/// `Display` show a fingerprint only.
///
/// In the process that made it the id also keeps the root running, as do the communicators that
/// connect with it there. Dropping the last of them waits up to five seconds for the other ranks to
/// leave.
///
/// ```
/// use ringsmith::UniqueId;
///
/// let id = UniqueId::create()?;
/// let passed_on: UniqueId = id.to_hex().parse()?;
/// assert_eq!(passed_on, id);
/// assert_eq!(UniqueId::from_bytes(id.as_bytes())?, id);
/// # Ok::<(), ringsmith::Error>(())
/// ```
#[derive(Clone)]
pub struct UniqueId {
    pub(crate) id: Id,
    /// The root, in the process that made the id.
    pub(crate) root: Option<Arc<Root>>,
}

impl UniqueId {
    /// Makes an id and starts the root that it leads to, with the settings of the environment.
    ///
    /// Errors: settings that cannot be used; no interface or port to listen on.
    pub fn create() -> Result<Self> {
        Self::create_with(&settings()?)
    }

    /// The same with settings of the caller's.
    ///
    /// Errors: no interface or port to listen on.
    pub fn create_with(config: &Config) -> Result<Self> {
        let (id, root) = Id::create(config)?;
        Ok(Self { id, root: Some(Arc::new(root)) })
    }

    /// Reads an id that another process made.
    ///
    /// Errors: bytes that are no id, or a damaged one; each in its own words.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, IdError> {
        Ok(Self { id: Id::from_bytes(bytes)?, root: None })
    }

    /// The id as bytes, to pass to the other ranks.
    pub fn as_bytes(&self) -> &[u8; UNIQUE_ID_BYTES] {
        self.id.as_bytes()
    }

    /// The id as 256 hexadecimal digits, as `RINGSMITH_ID` takes it. It holds the secret.
    pub fn to_hex(&self) -> String {
        self.id.to_hex()
    }
}

impl FromStr for UniqueId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Ok(Self { id: text.parse()?, root: None })
    }
}

impl PartialEq for UniqueId {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for UniqueId {}

impl fmt::Display for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}
