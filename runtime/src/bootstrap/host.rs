//! Which host this is: its name for people, and a key that is equal on ranks that share it.

use crate::config::Config;
use sha2::{Digest, Sha256};

/// The host's name, for messages.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A key that is equal on processes of one host and, in practice, on no others.
///
/// Made of the host's name, its boot and its network namespace, so that containers and namespaces
/// that cannot reach each other's loopback count as hosts of their own. `HOST_ID` replaces it all.
pub fn key(config: &Config) -> [u8; 16] {
    let mut hash = Sha256::new();
    match &config.host_id {
        Some(id) => {
            hash.update(b"ringsmith pretended host ");
            hash.update(id.as_bytes());
        }
        None => {
            hash.update(b"ringsmith host ");
            hash.update(name().as_bytes());
            // Either may be hidden in a container; the other parts still tell hosts apart.
            let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
            hash.update(boot);
            if let Ok(namespace) = std::fs::read_link("/proc/self/ns/net") {
                hash.update(namespace.as_os_str().as_encoded_bytes());
            }
        }
    }
    hash.finalize()[..16].try_into().expect("a SHA-256 has 32 bytes")
}
