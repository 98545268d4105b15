//! What travels on a connection once it is made: frames of 32 bytes, some followed by payload.
//!
//! ```text
//! +0   magic     u32   RSF1
//! +4   kind      u8    1 data, 2 credit, 3 bye, 4 bye heard, 5 broken
//! +5   zero      u8
//! +6   channel   u16
//! +8   sequence  u64   data: the message's number; broken: the rank that is to blame
//! +16  credit    u64   data, credit: how many messages of this channel the sender of the frame has
//!                      taken out, since the communicator began
//! +24  bytes     u32   data: bytes of payload behind the frame
//! +28  check     u32   over the above and a key of the connection
//! ```
//! All little-endian. Every field of every frame is checked by [`Frame::decode`] or by its user; the
//! payload is not: TCP and the link below it do that.

/// Bytes of a frame without its payload.
pub(crate) const FRAME_BYTES: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"RSF1");

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message; its payload follows.
    Data,
    /// Slots were given back.
    Credit,
    /// The sender of the frame sends nothing more.
    Bye,
    /// A bye and all before it have been read.
    ByeHeard,
    /// The sender's communicator is broken; it closes without waiting.
    Broken,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) channel: u16,
    pub(crate) sequence: u64,
    pub(crate) credit: u64,
    pub(crate) bytes: u32,
}

/// What is wrong with 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("a frame starts with {0:#010x}, which is no frame of this protocol")]
    Magic(u32),
    #[error("a frame's checksum is wrong: bytes were lost, added or changed on the way")]
    Check,
    #[error("a frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a frame of kind {0:?} has fields set that it does not use")]
    Unused(Kind),
}

impl Frame {
    /// A frame without message or credit.
    pub(crate) fn plain(kind: Kind) -> Self {
        Self { kind, channel: 0, sequence: 0, credit: 0, bytes: 0 }
    }

    /// The bytes to send.
    pub(crate) fn encode(&self, key: u64) -> [u8; FRAME_BYTES] {
        let kind = match self.kind {
            Kind::Data => 1u8,
            Kind::Credit => 2,
            Kind::Bye => 3,
            Kind::ByeHeard => 4,
            Kind::Broken => 5,
        };
        let mut bytes = [0; FRAME_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = kind;
        bytes[6..8].copy_from_slice(&self.channel.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.credit.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.bytes.to_le_bytes());
        let check = check(&bytes, key);
        bytes[28..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads a frame and checks all that can be checked without knowing the link.
    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES], key: u64) -> Result<Self, FrameError> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if word(0) != MAGIC {
            return Err(FrameError::Magic(word(0)));
        }
        if word(28) != check(bytes, key) {
            return Err(FrameError::Check);
        }
        let kind = match bytes[4] {
            1 => Kind::Data,
            2 => Kind::Credit,
            3 => Kind::Bye,
            4 => Kind::ByeHeard,
            5 => Kind::Broken,
            other => return Err(FrameError::Kind(other)),
        };
        let channel = u16::from_le_bytes([bytes[6], bytes[7]]);
        let frame = Self { kind, channel, sequence: long(8), credit: long(16), bytes: word(24) };
        let plain = match kind {
            Kind::Data => true,
            Kind::Credit => frame.sequence == 0 && frame.bytes == 0,
            Kind::Bye | Kind::ByeHeard => frame == Self::plain(kind),
            Kind::Broken => frame == (Self { sequence: frame.sequence, ..Self::plain(kind) }),
        };
        if bytes[5] == 0 && plain { Ok(frame) } else { Err(FrameError::Unused(kind)) }
    }
}

/// Mixes the first 28 bytes and the key. Finds accidents and streams out of step, not forgery: whoever
/// can write into the connection can read it too.
fn check(bytes: &[u8; FRAME_BYTES], key: u64) -> u32 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut mixed = key;
    for at in [0, 8, 16] {
        let word = u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        mixed = (mixed.rotate_left(23) ^ word).wrapping_mul(ODD);
    }
    let last = u32::from_le_bytes(bytes[24..28].try_into().expect("four bytes"));
    mixed = (mixed.rotate_left(23) ^ u64::from(last)).wrapping_mul(ODD);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: Frame =
        Frame { kind: Kind::Data, channel: 513, sequence: 1 << 40, credit: 77, bytes: 1 << 30 };

    #[test]
    fn frames_survive_the_trip() {
        let credit = Frame { sequence: 0, bytes: 0, kind: Kind::Credit, ..DATA };
        let broken = Frame { sequence: 3, ..Frame::plain(Kind::Broken) };
        for frame in [DATA, credit, Frame::plain(Kind::Bye), Frame::plain(Kind::ByeHeard), broken] {
            assert_eq!(Frame::decode(&frame.encode(9), 9), Ok(frame));
        }
    }

    #[test]
    fn every_changed_bit_is_noticed() {
        let bytes = DATA.encode(3);
        for bit in 0..FRAME_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(Frame::decode(&changed, 3).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_frame_of_another_connection_is_refused() {
        assert_eq!(Frame::decode(&DATA.encode(1), 2), Err(FrameError::Check));
    }

    #[test]
    fn unknown_kinds_and_stray_fields_are_refused() {
        let mut bytes = DATA.encode(0);
        bytes[4] = 9;
        let sum = check(&bytes, 0);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(Frame::decode(&bytes, 0), Err(FrameError::Kind(9)));
        let stray = Frame { kind: Kind::Bye, ..DATA };
        assert_eq!(Frame::decode(&stray.encode(0), 0), Err(FrameError::Unused(Kind::Bye)));
    }
}
