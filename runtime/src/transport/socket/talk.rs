//! The words of a connection's handshake, and the proofs in them.
//!
//! ```text
//! dialer   -> hello    magic, version, from, to, connection, nonce, checksum
//! listener -> reply    magic, nonce, HMAC("reply", hello, nonce)
//! dialer   -> proof    magic, HMAC("proof", hello, reply)
//! listener -> welcome  magic
//! ```
//! The HMACs (SHA-256) are keyed with a secret that every rank's share went into, and those travelled
//! over the bootstrap. Both sides prove that they know it over both sides' fresh nonces, so a stray job,
//! a scanner or a recording gets no connection. This file does no I/O.

use super::super::offer::{LINK_VERSION, Offer};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// Bytes of a hello.
pub(crate) const HELLO_BYTES: usize = 64;
/// Bytes of a reply.
pub(crate) const REPLY_BYTES: usize = 72;
/// Bytes of a proof.
pub(crate) const PROOF_BYTES: usize = 40;
/// The whole of a welcome.
pub(crate) const WELCOME: [u8; 8] = *b"rsmithOK";

const HELLO_MAGIC: [u8; 8] = *b"rsmithlk";
const REPLY_MAGIC: [u8; 8] = *b"rsmithre";
const PROOF_MAGIC: [u8; 8] = *b"rsmithpr";

/// What all ranks of one communicator know and nobody else.
#[derive(Clone)]
pub(crate) struct Secret([u8; 32]);

impl Secret {
    /// Mixes every rank's share.
    pub(crate) fn new(offers: &[Offer]) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"ringsmith links");
        for offer in offers {
            hash.update(offer.share);
        }
        Self(hash.finalize().into())
    }

    fn mac(&self, purpose: &[u8], parts: [&[u8]; 2]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(purpose);
        // Both parts have fixed lengths, so joining them is unambiguous.
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The rank that dials.
    pub(crate) from: u32,
    /// The rank that it means to reach.
    pub(crate) to: u32,
    /// Which of the pair's connections.
    pub(crate) index: u32,
    /// The dialer's nonce.
    pub(crate) nonce: [u8; 32],
}

/// Why a word of the handshake was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("it does not speak this protocol")]
    Magic,
    #[error("it speaks version {0} of this protocol, this side version {LINK_VERSION}")]
    Version(u32),
    #[error("its hello was damaged on the way")]
    Checksum,
    #[error("it does not know the secret of this communicator")]
    Secret,
}

impl Hello {
    /// The bytes to send.
    pub(crate) fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&HELLO_MAGIC);
        bytes[8..12].copy_from_slice(&LINK_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.from.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.to.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.index.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.nonce);
        let sum = checksum(&bytes[..56]);
        bytes[56..].copy_from_slice(&sum);
        bytes
    }

    /// Reads what a dialer sent. It may still be anybody.
    pub(crate) fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Self, Refusal> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        if bytes[..8] != HELLO_MAGIC {
            return Err(Refusal::Magic);
        }
        if bytes[56..] != checksum(&bytes[..56]) {
            return Err(Refusal::Checksum);
        }
        if word(8) != LINK_VERSION {
            return Err(Refusal::Version(word(8)));
        }
        let nonce = bytes[24..56].try_into().expect("32 bytes");
        Ok(Self { from: word(12), to: word(16), index: word(20), nonce })
    }
}

/// The listener's answer to a hello.
pub(crate) fn reply(secret: &Secret, hello: &[u8; HELLO_BYTES], nonce: [u8; 32]) -> [u8; REPLY_BYTES] {
    let mut bytes = [0; REPLY_BYTES];
    bytes[..8].copy_from_slice(&REPLY_MAGIC);
    bytes[8..40].copy_from_slice(&nonce);
    let mac = secret.mac(b"reply", [hello, &nonce]).finalize().into_bytes();
    bytes[40..].copy_from_slice(&mac);
    bytes
}

/// What the dialer makes of it: its proof.
pub(crate) fn prove(
    secret: &Secret,
    hello: &[u8; HELLO_BYTES],
    reply: &[u8; REPLY_BYTES],
) -> Result<[u8; PROOF_BYTES], Refusal> {
    if reply[..8] != REPLY_MAGIC {
        return Err(Refusal::Magic);
    }
    let mac = secret.mac(b"reply", [hello, &reply[8..40]]);
    mac.verify_slice(&reply[40..]).map_err(|_| Refusal::Secret)?;
    let mut bytes = [0; PROOF_BYTES];
    bytes[..8].copy_from_slice(&PROOF_MAGIC);
    let mac = secret.mac(b"proof", [hello, reply]).finalize().into_bytes();
    bytes[8..].copy_from_slice(&mac);
    Ok(bytes)
}

/// The listener's check of it.
pub(crate) fn check_proof(
    secret: &Secret,
    hello: &[u8; HELLO_BYTES],
    reply: &[u8; REPLY_BYTES],
    proof: &[u8; PROOF_BYTES],
) -> Result<(), Refusal> {
    if proof[..8] != PROOF_MAGIC {
        return Err(Refusal::Magic);
    }
    secret.mac(b"proof", [hello, reply]).verify_slice(&proof[8..]).map_err(|_| Refusal::Secret)
}

/// What the checksums of the connection's frames are keyed with.
pub(crate) fn frame_key(secret: &Secret, hello: &[u8; HELLO_BYTES], reply: &[u8; REPLY_BYTES]) -> u64 {
    let mac = secret.mac(b"frames", [hello, reply]).finalize().into_bytes();
    u64::from_le_bytes(mac[..8].try_into().expect("eight bytes"))
}

fn checksum(bytes: &[u8]) -> [u8; 8] {
    Sha256::digest(bytes)[..8].try_into().expect("eight bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret([byte; 32])
    }

    const HELLO: Hello = Hello { from: 3, to: 1, index: 2, nonce: [7; 32] };

    #[test]
    fn both_sides_come_to_the_same_key() {
        let hello = HELLO.encode();
        assert_eq!(Hello::decode(&hello), Ok(HELLO));
        let reply = reply(&secret(1), &hello, [9; 32]);
        let proof = prove(&secret(1), &hello, &reply).expect("the listener knows the secret");
        check_proof(&secret(1), &hello, &reply, &proof).expect("so does the dialer");
    }

    #[test]
    fn another_secret_convinces_neither_side() {
        let hello = HELLO.encode();
        let foreign = reply(&secret(2), &hello, [9; 32]);
        assert_eq!(prove(&secret(1), &hello, &foreign), Err(Refusal::Secret));
        let ours = reply(&secret(1), &hello, [9; 32]);
        let proof = prove(&secret(2), &hello, &foreign).expect("proves to its own kind");
        assert_eq!(check_proof(&secret(1), &hello, &ours, &proof), Err(Refusal::Secret));
    }

    #[test]
    fn a_recorded_proof_does_not_fit_a_fresh_nonce() {
        let hello = HELLO.encode();
        let recorded = reply(&secret(1), &hello, [9; 32]);
        let proof = prove(&secret(1), &hello, &recorded).expect("knows the secret");
        let fresh = reply(&secret(1), &hello, [10; 32]);
        assert_eq!(check_proof(&secret(1), &hello, &fresh, &proof), Err(Refusal::Secret));
    }

    #[test]
    fn a_changed_hello_is_refused_for_what_it_is() {
        let mut magic = HELLO.encode();
        magic[0] = b'G';
        assert_eq!(Hello::decode(&magic), Err(Refusal::Magic));
        let mut damaged = HELLO.encode();
        damaged[20] ^= 1;
        assert_eq!(Hello::decode(&damaged), Err(Refusal::Checksum));
        let mut newer = HELLO.encode();
        newer[8..12].copy_from_slice(&99u32.to_le_bytes());
        let sum = checksum(&newer[..56]);
        newer[56..].copy_from_slice(&sum);
        assert_eq!(Hello::decode(&newer), Err(Refusal::Version(99)));
    }
}
