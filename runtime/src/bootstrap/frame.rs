//! Frames: what ranks and the root say to each other, as bytes. Pure: no sockets, no clock.
//!
//! A frame is `len: u32, kind: u8, body`, little endian; `len` counts kind and body. A string is
//! `len: u16, UTF-8`. The decoder refuses what is longer than its reader allows before any of it is
//! kept, refuses unknown kinds, and refuses bodies with bytes missing or left over. It says nothing
//! about who may send what when: the hub and the client decide that.

use super::refusal::{Process, Refusal};

/// Longest frame that a stranger who passed the handshake may send first.
pub const MAX_JOIN_BYTES: usize = 2048;
/// Longest part that one rank may put into one gathering. Chosen for topologies of large hosts,
/// which are some hundred KB as XML; a longer part is refused where it is given.
pub const MAX_PART_BYTES: usize = 1 << 20;
/// Longest frame at all: the longest part, with room for its tag.
pub const MAX_FRAME_BYTES: usize = MAX_PART_BYTES + 4096;
/// Longest tag of a gathering, in bytes.
pub const MAX_TAG_BYTES: usize = 64;
/// Longest free text (host names, reasons), in bytes. Longer text is cut by its writer.
pub const MAX_TEXT_BYTES: usize = 1024;
/// Most ranks of one job. Plans are made for up to 16,384; the root keeps a table of this length.
pub const MAX_RANKS: u32 = 1 << 17;

/// What a rank says about itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Its rank.
    pub rank: u32,
    /// The number of ranks it was told.
    pub world: u32,
    /// How long it will wait for the others, in milliseconds.
    pub timeout_ms: u64,
    /// Who it is.
    pub process: Process,
    /// Equal on ranks that share a host.
    pub host_key: [u8; 16],
    /// The version of the program.
    pub version: String,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Rank to root: I am here.
    Join(Join),
    /// Rank to root: my part of a gathering.
    Part {
        /// Number of the gathering, from 0.
        sequence: u64,
        /// How long the rank will wait, in milliseconds.
        timeout_ms: u64,
        /// What is gathered.
        tag: String,
        /// The part.
        bytes: Vec<u8>,
    },
    /// Rank to root: I leave in good order.
    Goodbye,
    /// Rank to root: I give up.
    Abort {
        /// Why.
        reason: String,
    },
    /// Root to rank: one of the ranks that joined.
    Member {
        /// Its rank.
        rank: u32,
        /// Who it is.
        process: Process,
        /// Equal on ranks that share a host.
        host_key: [u8; 16],
    },
    /// Root to rank: every rank has joined, and every `Member` was sent.
    Welcome {
        /// The number of ranks.
        world: u32,
        /// The process that holds the root.
        root: Process,
    },
    /// Root to rank: you, or the whole job, cannot go on joining.
    Refused(Refusal),
    /// Root to rank: one rank's part of a gathering.
    Gathered {
        /// Number of the gathering.
        sequence: u64,
        /// Whose part.
        rank: u32,
        /// The part.
        bytes: Vec<u8>,
    },
    /// Root to rank: every part was sent.
    GatherDone {
        /// Number of the gathering.
        sequence: u64,
    },
    /// Root to rank: the gathering failed.
    GatherFailed {
        /// Number of the gathering.
        sequence: u64,
        /// Why.
        refusal: Refusal,
    },
    /// Root to rank: a rank died.
    Lost {
        /// The rank.
        rank: u32,
        /// Who it was.
        process: Process,
        /// How that was noticed.
        detail: String,
    },
    /// Root to rank: a rank gave up.
    Aborted {
        /// The rank.
        rank: u32,
        /// Why.
        reason: String,
    },
    /// Root to rank: the root leaves in good order; the end of this connection means nothing.
    RootLeaving,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than the reader allows at this point.
    #[error("a frame of {len} bytes where at most {max} are allowed")]
    TooLong {
        /// The length it announced.
        len: usize,
        /// What is allowed.
        max: usize,
    },
    /// No such kind.
    #[error("no frame has kind {0}")]
    Kind(u8),
    /// The body ends early, or goes on after its end.
    #[error("a frame of kind {kind} with a body of the wrong length")]
    Length {
        /// Its kind.
        kind: u8,
    },
    /// A value of the body is out of its range.
    #[error("a frame of kind {kind} with an impossible {field}")]
    Field {
        /// Its kind.
        kind: u8,
        /// Which value.
        field: &'static str,
    },
}

const LENGTH_BYTES: usize = 4;

const JOIN: u8 = 1;
const PART: u8 = 2;
const GOODBYE: u8 = 3;
const ABORT: u8 = 4;
const MEMBER: u8 = 5;
const WELCOME: u8 = 6;
const REFUSED: u8 = 7;
const GATHERED: u8 = 8;
const GATHER_DONE: u8 = 9;
const GATHER_FAILED: u8 = 10;
const LOST: u8 = 11;
const ABORTED: u8 = 12;
const ROOT_LEAVING: u8 = 13;

/// Reads the frame at the start of `bytes`: the frame and its length, or `None` while some of it is
/// still to come.
///
/// Errors: see [`FrameError`]. The stream cannot be used after one.
pub fn decode(bytes: &[u8], max_frame_bytes: usize) -> Result<Option<(Frame, usize)>, FrameError> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let len = u32::from_le_bytes(*length) as usize;
    if len > max_frame_bytes {
        return Err(FrameError::TooLong { len, max: max_frame_bytes });
    }
    if len == 0 {
        return Err(FrameError::Length { kind: 0 });
    }
    let Some(content) = rest.get(..len) else { return Ok(None) };
    let mut body = Body { kind: content[0], rest: &content[1..] };
    let frame = body.frame()?;
    if !body.rest.is_empty() {
        return Err(body.wrong_length());
    }
    Ok(Some((frame, LENGTH_BYTES + len)))
}

struct Body<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl Body<'_> {
    fn frame(&mut self) -> Result<Frame, FrameError> {
        Ok(match self.kind {
            JOIN => Frame::Join(Join {
                rank: self.u32()?,
                world: self.u32()?,
                timeout_ms: self.u64()?,
                process: self.process()?,
                host_key: self.array()?,
                version: self.text()?,
            }),
            PART => Frame::Part {
                sequence: self.u64()?,
                timeout_ms: self.u64()?,
                tag: self.tag()?,
                bytes: self.remaining()?,
            },
            GOODBYE => Frame::Goodbye,
            ABORT => Frame::Abort { reason: self.text()? },
            MEMBER => Frame::Member { rank: self.u32()?, process: self.process()?, host_key: self.array()? },
            WELCOME => Frame::Welcome { world: self.world()?, root: self.process()? },
            REFUSED => Frame::Refused(self.refusal()?),
            GATHERED => {
                Frame::Gathered { sequence: self.u64()?, rank: self.u32()?, bytes: self.remaining()? }
            }
            GATHER_DONE => Frame::GatherDone { sequence: self.u64()? },
            GATHER_FAILED => Frame::GatherFailed { sequence: self.u64()?, refusal: self.refusal()? },
            LOST => Frame::Lost { rank: self.u32()?, process: self.process()?, detail: self.text()? },
            ABORTED => Frame::Aborted { rank: self.u32()?, reason: self.text()? },
            ROOT_LEAVING => Frame::RootLeaving,
            kind => return Err(FrameError::Kind(kind)),
        })
    }

    fn refusal(&mut self) -> Result<Refusal, FrameError> {
        Ok(match self.u8()? {
            1 => Refusal::Missing {
                waited_ms: self.u64()?,
                strangers: self.optional_text()?,
                missing: self.ranks()?,
            },
            2 => {
                Refusal::DuplicateRank { rank: self.u32()?, first: self.process()?, second: self.process()? }
            }
            3 => Refusal::RankOutOfRange { rank: self.u32()?, world: self.u32()?, process: self.process()? },
            4 => Refusal::WorldMismatch {
                rank: self.u32()?,
                world: self.u32()?,
                process: self.process()?,
                first_world: self.u32()?,
                first_rank: self.u32()?,
            },
            5 => Refusal::Finished { rank: self.u32()?, world: self.u32()? },
            6 => Refusal::Version { rank: self.u32()?, theirs: self.text()?, ours: self.text()? },
            7 => Refusal::TagMismatch {
                rank: self.u32()?,
                tag: self.tag()?,
                first_rank: self.u32()?,
                first_tag: self.tag()?,
            },
            8 => Refusal::Left { rank: self.u32()?, process: self.process()? },
            9 => Refusal::TooLarge { rank: self.u32()?, max_bytes: self.u64()? },
            10 => Refusal::ShuttingDown,
            11 => Refusal::Lost { rank: self.u32()?, process: self.process()?, detail: self.text()? },
            _ => return Err(self.impossible("refusal")),
        })
    }

    fn bytes(&mut self, len: usize) -> Result<&[u8], FrameError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(self.wrong_length())?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(self.wrong_length())?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn world(&mut self) -> Result<u32, FrameError> {
        let world = self.u32()?;
        if world > MAX_RANKS { Err(self.impossible("number of ranks")) } else { Ok(world) }
    }

    fn bounded_text(&mut self, max_bytes: usize, field: &'static str) -> Result<String, FrameError> {
        let len = u16::from_le_bytes(self.array()?) as usize;
        if len > max_bytes {
            return Err(self.impossible(field));
        }
        let impossible = self.impossible(field);
        let text = std::str::from_utf8(self.bytes(len)?).map_err(|_| impossible)?;
        Ok(text.to_owned())
    }

    fn text(&mut self) -> Result<String, FrameError> {
        self.bounded_text(MAX_TEXT_BYTES, "text")
    }

    fn tag(&mut self) -> Result<String, FrameError> {
        self.bounded_text(MAX_TAG_BYTES, "tag")
    }

    fn optional_text(&mut self) -> Result<Option<String>, FrameError> {
        let text = self.text()?;
        Ok((!text.is_empty()).then_some(text))
    }

    fn process(&mut self) -> Result<Process, FrameError> {
        Ok(Process { pid: self.u32()?, host: self.text()? })
    }

    fn remaining(&mut self) -> Result<Vec<u8>, FrameError> {
        if self.rest.len() > MAX_PART_BYTES {
            return Err(self.impossible("part"));
        }
        Ok(std::mem::take(&mut self.rest).to_vec())
    }

    fn ranks(&mut self) -> Result<Vec<u32>, FrameError> {
        let (words, rest) = self.rest.as_chunks::<4>();
        if !rest.is_empty() || words.len() > MAX_RANKS as usize {
            return Err(self.impossible("list of ranks"));
        }
        self.rest = &[];
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn wrong_length(&self) -> FrameError {
        FrameError::Length { kind: self.kind }
    }

    fn impossible(&self, field: &'static str) -> FrameError {
        FrameError::Field { kind: self.kind, field }
    }
}

/// Appends `frame` to `out`.
///
/// Panics: when a part or tag is longer than its bound; who makes the frame checks that.
pub fn encode(frame: &Frame, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend([0; LENGTH_BYTES]);
    match frame {
        Frame::Join(join) => {
            out.push(JOIN);
            put_u32(out, join.rank);
            put_u32(out, join.world);
            put_u64(out, join.timeout_ms);
            put_process(out, &join.process);
            out.extend(join.host_key);
            put_text(out, &join.version);
        }
        Frame::Part { sequence, timeout_ms, tag, bytes } => {
            out.push(PART);
            put_u64(out, *sequence);
            put_u64(out, *timeout_ms);
            put_tag(out, tag);
            put_part(out, bytes);
        }
        Frame::Goodbye => out.push(GOODBYE),
        Frame::Abort { reason } => {
            out.push(ABORT);
            put_text(out, reason);
        }
        Frame::Member { rank, process, host_key } => {
            out.push(MEMBER);
            put_u32(out, *rank);
            put_process(out, process);
            out.extend(host_key);
        }
        Frame::Welcome { world, root } => {
            out.push(WELCOME);
            put_u32(out, *world);
            put_process(out, root);
        }
        Frame::Refused(refusal) => {
            out.push(REFUSED);
            put_refusal(out, refusal);
        }
        Frame::Gathered { sequence, rank, bytes } => {
            out.push(GATHERED);
            put_u64(out, *sequence);
            put_u32(out, *rank);
            put_part(out, bytes);
        }
        Frame::GatherDone { sequence } => {
            out.push(GATHER_DONE);
            put_u64(out, *sequence);
        }
        Frame::GatherFailed { sequence, refusal } => {
            out.push(GATHER_FAILED);
            put_u64(out, *sequence);
            put_refusal(out, refusal);
        }
        Frame::Lost { rank, process, detail } => {
            out.push(LOST);
            put_u32(out, *rank);
            put_process(out, process);
            put_text(out, detail);
        }
        Frame::Aborted { rank, reason } => {
            out.push(ABORTED);
            put_u32(out, *rank);
            put_text(out, reason);
        }
        Frame::RootLeaving => out.push(ROOT_LEAVING),
    }
    let len = out.len() - start - LENGTH_BYTES;
    assert!(len <= MAX_FRAME_BYTES, "a frame of {len} bytes should have been refused before it was made");
    out[start..start + LENGTH_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
}

fn put_refusal(out: &mut Vec<u8>, refusal: &Refusal) {
    match refusal {
        Refusal::Missing { missing, waited_ms, strangers } => {
            out.push(1);
            put_u64(out, *waited_ms);
            put_text(out, strangers.as_deref().unwrap_or(""));
            for &rank in missing {
                put_u32(out, rank);
            }
        }
        Refusal::DuplicateRank { rank, first, second } => {
            out.push(2);
            put_u32(out, *rank);
            put_process(out, first);
            put_process(out, second);
        }
        Refusal::RankOutOfRange { rank, world, process } => {
            out.push(3);
            put_u32(out, *rank);
            put_u32(out, *world);
            put_process(out, process);
        }
        Refusal::WorldMismatch { rank, world, process, first_world, first_rank } => {
            out.push(4);
            put_u32(out, *rank);
            put_u32(out, *world);
            put_process(out, process);
            put_u32(out, *first_world);
            put_u32(out, *first_rank);
        }
        Refusal::Finished { rank, world } => {
            out.push(5);
            put_u32(out, *rank);
            put_u32(out, *world);
        }
        Refusal::Version { rank, theirs, ours } => {
            out.push(6);
            put_u32(out, *rank);
            put_text(out, theirs);
            put_text(out, ours);
        }
        Refusal::TagMismatch { rank, tag, first_rank, first_tag } => {
            out.push(7);
            put_u32(out, *rank);
            put_tag(out, tag);
            put_u32(out, *first_rank);
            put_tag(out, first_tag);
        }
        Refusal::Left { rank, process } => {
            out.push(8);
            put_u32(out, *rank);
            put_process(out, process);
        }
        Refusal::TooLarge { rank, max_bytes } => {
            out.push(9);
            put_u32(out, *rank);
            put_u64(out, *max_bytes);
        }
        Refusal::ShuttingDown => out.push(10),
        Refusal::Lost { rank, process, detail } => {
            out.push(11);
            put_u32(out, *rank);
            put_process(out, process);
            put_text(out, detail);
        }
    }
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend(value.to_le_bytes());
}

fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend(value.to_le_bytes());
}

fn put_process(out: &mut Vec<u8>, process: &Process) {
    put_u32(out, process.pid);
    put_text(out, &process.host);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(MAX_TEXT_BYTES)];
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_tag(out: &mut Vec<u8>, tag: &str) {
    assert!(tag.len() <= MAX_TAG_BYTES, "a tag of {} bytes should have been refused", tag.len());
    put_text(out, tag);
}

fn put_part(out: &mut Vec<u8>, bytes: &[u8]) {
    assert!(bytes.len() <= MAX_PART_BYTES, "a part of {} bytes should have been refused", bytes.len());
    out.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Frame> {
        let process = || Process { host: "nœud-7".into(), pid: 4_000_000_000 };
        let refusals = [
            Refusal::Missing { missing: vec![0, 7, u32::MAX], waited_ms: 5, strangers: Some("2".into()) },
            Refusal::Missing { missing: vec![], waited_ms: u64::MAX, strangers: None },
            Refusal::DuplicateRank { rank: 1, first: process(), second: process() },
            Refusal::RankOutOfRange { rank: 2, world: 2, process: process() },
            Refusal::WorldMismatch { rank: 1, world: 2, process: process(), first_world: 3, first_rank: 0 },
            Refusal::Finished { rank: 1, world: 2 },
            Refusal::Version { rank: 1, theirs: "1".into(), ours: String::new() },
            Refusal::TagMismatch { rank: 1, tag: "a".into(), first_rank: 0, first_tag: "b".into() },
            Refusal::Left { rank: 3, process: process() },
            Refusal::Lost { rank: 3, process: process(), detail: "reset".into() },
            Refusal::TooLarge { rank: 3, max_bytes: 9 },
            Refusal::ShuttingDown,
        ];
        let mut frames = vec![
            Frame::Join(Join {
                rank: 1,
                world: 2,
                timeout_ms: 3,
                process: process(),
                host_key: [9; 16],
                version: "1.2.3".into(),
            }),
            Frame::Part { sequence: 1, timeout_ms: 2, tag: "t".repeat(MAX_TAG_BYTES), bytes: vec![1; 1000] },
            Frame::Part { sequence: 0, timeout_ms: 0, tag: String::new(), bytes: vec![] },
            Frame::Goodbye,
            Frame::Abort { reason: "why".into() },
            Frame::Member { rank: 1, process: process(), host_key: [1; 16] },
            Frame::Welcome { world: 2, root: process() },
            Frame::Gathered { sequence: 1, rank: 2, bytes: vec![3; 77] },
            Frame::GatherDone { sequence: 1 },
            Frame::Lost { rank: 1, process: process(), detail: "d".into() },
            Frame::Aborted { rank: 1, reason: "r".into() },
            Frame::RootLeaving,
        ];
        for refusal in refusals {
            frames.push(Frame::Refused(refusal.clone()));
            frames.push(Frame::GatherFailed { sequence: 4, refusal });
        }
        frames
    }

    #[test]
    fn what_is_written_is_read() {
        let mut stream = Vec::new();
        for frame in samples() {
            encode(&frame, &mut stream);
        }
        let mut rest = &stream[..];
        for frame in samples() {
            let (read, len) = decode(rest, MAX_FRAME_BYTES).expect("a frame").expect("all of it");
            assert_eq!(read, frame);
            rest = &rest[len..];
        }
        assert_eq!(decode(rest, MAX_FRAME_BYTES), Ok(None));
    }

    #[test]
    fn a_part_of_a_frame_waits_for_the_rest() {
        for frame in samples() {
            let mut bytes = Vec::new();
            encode(&frame, &mut bytes);
            for len in 0..bytes.len() {
                assert_eq!(decode(&bytes[..len], MAX_FRAME_BYTES), Ok(None), "{frame:?} cut at {len}");
            }
        }
    }

    #[test]
    fn bodies_of_the_wrong_length_are_refused() {
        let open_ended = |frame: &Frame| {
            let list = |refusal: &Refusal| matches!(refusal, Refusal::Missing { .. });
            match frame {
                Frame::Part { .. } | Frame::Gathered { .. } => true,
                Frame::Refused(refusal) | Frame::GatherFailed { refusal, .. } => list(refusal),
                _ => false,
            }
        };
        for frame in samples().iter().filter(|frame| !open_ended(frame)) {
            let mut bytes = Vec::new();
            encode(frame, &mut bytes);
            bytes.push(0);
            let len = bytes.len() - LENGTH_BYTES;
            bytes[..LENGTH_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
            assert!(decode(&bytes, MAX_FRAME_BYTES).is_err(), "{frame:?} with a byte more");
            if len > 2 {
                bytes.truncate(LENGTH_BYTES + len - 2);
                bytes[..LENGTH_BYTES].copy_from_slice(&(len as u32 - 2).to_le_bytes());
                assert!(decode(&bytes, MAX_FRAME_BYTES).is_err(), "{frame:?} with a byte less");
            }
        }
    }

    #[test]
    fn lengths_and_texts_are_bounded() {
        let long = |len: u32| [&len.to_le_bytes()[..], &[PART]].concat();
        assert_eq!(
            decode(&long(u32::MAX), MAX_FRAME_BYTES),
            Err(FrameError::TooLong { len: u32::MAX as usize, max: MAX_FRAME_BYTES })
        );
        assert!(decode(&long(MAX_JOIN_BYTES as u32 + 1), MAX_JOIN_BYTES).is_err());
        assert_eq!(decode(&0u32.to_le_bytes(), MAX_FRAME_BYTES), Err(FrameError::Length { kind: 0 }));
        assert_eq!(decode(&[1, 0, 0, 0, 99], MAX_FRAME_BYTES), Err(FrameError::Kind(99)));
        // Text longer than its bound is cut between characters when written.
        let mut bytes = Vec::new();
        encode(&Frame::Abort { reason: "é".repeat(MAX_TEXT_BYTES) }, &mut bytes);
        let (frame, _) = decode(&bytes, MAX_FRAME_BYTES).expect("a frame").expect("all of it");
        assert_eq!(frame, Frame::Abort { reason: "é".repeat(MAX_TEXT_BYTES / 2) });
        let not_text = [5, 0, 0, 0, ABORT, 2, 0, 0xff, 0xff];
        assert_eq!(decode(&not_text, MAX_FRAME_BYTES), Err(FrameError::Field { kind: ABORT, field: "text" }));
    }

    /// Whatever comes, the decoder ends, keeps to its bounds, and what it accepts it also writes.
    #[test]
    fn damaged_frames_are_refused_or_read() {
        let seed: u64 =
            std::env::var("RINGSMITH_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed);
        println!("RINGSMITH_TEST_SEED={seed}");
        let mut state = seed | 1;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let samples = samples();
        for _ in 0..20_000 {
            let mut bytes = Vec::new();
            encode(&samples[random(samples.len())], &mut bytes);
            for _ in 0..=random(4) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] ^= 1 << random(8),
                    1 => bytes[at] = random(256) as u8,
                    _ => {
                        bytes.truncate(at + 1);
                    }
                }
            }
            if let Ok(Some((frame, len))) = decode(&bytes, MAX_FRAME_BYTES) {
                let mut again = Vec::new();
                encode(&frame, &mut again);
                assert_eq!(decode(&again, MAX_FRAME_BYTES), Ok(Some((frame, again.len()))));
                assert!(len <= bytes.len());
            }
        }
    }
}
