//! The handshake: both ends prove that they hold the id's secret before anything else is read.
//!
//! ```text
//! rank -> root   hello      magic, rank's nonce
//! root -> rank   challenge  magic, root's nonce, HMAC(key, "root", both nonces)
//! rank -> root   proof      HMAC(key, "rank", both nonces)
//! ```
//! Every message has a fixed length, so a stranger can make nobody keep or parse anything. It keeps
//! out strangers, scanners and stray jobs; it hides no traffic and does not resist someone who can
//! read or change it. Pure: who calls moves the bytes.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Starts hello and challenge. The digit is the version of the whole protocol.
const MAGIC: [u8; 8] = *b"RSBOOT1\n";
const NONCE_BYTES: usize = 32;
const MAC_BYTES: usize = 32;

/// Length of a hello.
pub(crate) const HELLO_BYTES: usize = MAGIC.len() + NONCE_BYTES;
/// Length of a challenge.
pub(crate) const CHALLENGE_BYTES: usize = MAGIC.len() + NONCE_BYTES + MAC_BYTES;
/// Length of a proof.
pub(crate) const PROOF_BYTES: usize = MAC_BYTES;

/// The key that both ends derive from the id.
pub(crate) type Key = [u8; 32];
type Nonce = [u8; NONCE_BYTES];

/// What is wrong with the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stranger {
    #[error("it does not speak Ringsmith's protocol")]
    Protocol,
    #[error("it speaks another version of Ringsmith's protocol")]
    Version,
    #[error("it does not hold the secret of this id")]
    Secret,
}

fn fresh_nonce() -> Result<Nonce, getrandom::Error> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce)?;
    Ok(nonce)
}

fn mac(key: &Key, role: &[u8], rank_nonce: &Nonce, root_nonce: &Nonce) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(b"ringsmith bootstrap 1 ");
    mac.update(role);
    mac.update(rank_nonce);
    mac.update(root_nonce);
    mac
}

fn check_magic(bytes: &[u8]) -> Result<(), Stranger> {
    if bytes[..8] == MAGIC {
        Ok(())
    } else if bytes[..6] == MAGIC[..6] {
        Err(Stranger::Version)
    } else {
        Err(Stranger::Protocol)
    }
}

/// The rank's side.
pub(crate) struct RankHandshake {
    nonce: Nonce,
}

impl RankHandshake {
    /// Draws a nonce.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        Ok(Self { nonce: fresh_nonce()? })
    }

    /// The first message.
    pub(crate) fn hello(&self) -> [u8; HELLO_BYTES] {
        let mut hello = [0; HELLO_BYTES];
        hello[..8].copy_from_slice(&MAGIC);
        hello[8..].copy_from_slice(&self.nonce);
        hello
    }

    /// The proof that answers a challenge, and whether the challenge came from our root.
    ///
    /// A rank with the wrong secret still sends its proof, so that the root can say why the rank is
    /// missing.
    pub(crate) fn answer(
        &self,
        key: &Key,
        challenge: &[u8; CHALLENGE_BYTES],
    ) -> Result<([u8; PROOF_BYTES], Result<(), Stranger>), Stranger> {
        check_magic(challenge)?;
        let root_nonce: Nonce = challenge[8..][..NONCE_BYTES].try_into().expect("a challenge holds a nonce");
        let root_mac = mac(key, b"root", &self.nonce, &root_nonce);
        let verdict = root_mac.verify_slice(&challenge[8 + NONCE_BYTES..]).map_err(|_| Stranger::Secret);
        let proof = mac(key, b"rank", &self.nonce, &root_nonce).finalize().into_bytes().into();
        Ok((proof, verdict))
    }
}

/// The root's side, once the hello has come.
pub(crate) struct RootHandshake {
    rank_nonce: Nonce,
    root_nonce: Nonce,
}

impl RootHandshake {
    /// Reads a hello; gives the challenge to send.
    pub(crate) fn challenge(
        key: &Key,
        hello: &[u8; HELLO_BYTES],
    ) -> Result<(Self, [u8; CHALLENGE_BYTES]), Stranger> {
        check_magic(hello)?;
        let rank_nonce: Nonce = hello[8..].try_into().expect("a hello holds a nonce");
        // Without random bytes nobody can be told from a stranger, so nobody is let in.
        let root_nonce = fresh_nonce().map_err(|_| Stranger::Secret)?;
        let mut challenge = [0; CHALLENGE_BYTES];
        challenge[..8].copy_from_slice(&MAGIC);
        challenge[8..][..NONCE_BYTES].copy_from_slice(&root_nonce);
        let tag = mac(key, b"root", &rank_nonce, &root_nonce).finalize().into_bytes();
        challenge[8 + NONCE_BYTES..].copy_from_slice(&tag);
        Ok((Self { rank_nonce, root_nonce }, challenge))
    }

    /// Whether the proof is right.
    pub(crate) fn check(&self, key: &Key, proof: &[u8; PROOF_BYTES]) -> Result<(), Stranger> {
        mac(key, b"rank", &self.rank_nonce, &self.root_nonce)
            .verify_slice(proof)
            .map_err(|_| Stranger::Secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 32];

    #[test]
    fn both_ends_prove_themselves() {
        let rank = RankHandshake::new().expect("random bytes");
        let (root, challenge) = RootHandshake::challenge(&KEY, &rank.hello()).expect("our hello");
        let (proof, verdict) = rank.answer(&KEY, &challenge).expect("our challenge");
        assert_eq!(verdict, Ok(()));
        assert_eq!(root.check(&KEY, &proof), Ok(()));
        // Neither message serves again, nor in the other's place.
        let (other_root, _) = RootHandshake::challenge(&KEY, &rank.hello()).expect("our hello");
        assert_eq!(other_root.check(&KEY, &proof), Err(Stranger::Secret));
        let echoed: [u8; PROOF_BYTES] = challenge[40..].try_into().expect("a MAC");
        assert_eq!(root.check(&KEY, &echoed), Err(Stranger::Secret));
    }

    #[test]
    fn another_secret_is_noticed_by_both() {
        let rank = RankHandshake::new().expect("random bytes");
        let (root, challenge) = RootHandshake::challenge(&KEY, &rank.hello()).expect("our hello");
        let (proof, verdict) = rank.answer(&[8; 32], &challenge).expect("our challenge");
        assert_eq!(verdict, Err(Stranger::Secret));
        assert_eq!(root.check(&KEY, &proof), Err(Stranger::Secret));
    }

    #[test]
    fn other_protocols_are_told_apart() {
        let mut hello = RankHandshake::new().expect("random bytes").hello();
        hello[6] = b'2';
        assert_eq!(RootHandshake::challenge(&KEY, &hello).err(), Some(Stranger::Version));
        hello[..8].copy_from_slice(b"GET / HT");
        assert_eq!(RootHandshake::challenge(&KEY, &hello).err(), Some(Stranger::Protocol));
    }
}
