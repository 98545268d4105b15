//! A wire against a peer that is played by the test: what it sends, and what it does not put up with.

use super::*;
use crate::memory::mapping::Mapping;
use crate::transport::geometry::{Geometry, Layout};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const KEY: u64 = 77;
const GEOMETRY: Geometry =
    Geometry { ranks: 2, channels: 4, slots: 4, slot_bytes: 128 << 10, zone_cells: 0, zone_cell_bytes: 0 };

/// A wire that carries channels 1 and 3 of four, its peer's end, and the FIFOs behind it.
struct Scene {
    wire: Wire,
    peer: TcpStream,
    out: Fifo,
    inward: Fifo,
    _memory: [Mapping; 2],
}

fn scene() -> Scene {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let peer = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    peer.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let (socket, address) = listener.accept().expect("accepts");
    socket.set_nonblocking(true).expect("nonblocking");
    let bytes = Layout::new(&GEOMETRY).region_bytes;
    let memory = [Mapping::private(bytes).expect("memory"), Mapping::private(bytes).expect("memory")];
    // SAFETY: the scene keeps the regions as long as the FIFOs.
    let fifo = |region: &Mapping, channel| unsafe { Fifo::new(region.start(), &GEOMETRY, channel, None) };
    let channels = [1, 3].map(|n| Channel::new(n, fifo(&memory[0], n), fifo(&memory[1], n)));
    let (out, inward) = (fifo(&memory[0], 3), fifo(&memory[1], 3));
    let made = Made { peer: 1, index: 1, socket: socket.into(), address: address.to_string(), key: KEY };
    let wire = Wire::new(made, 2, channels.into()).expect("a TCP socket");
    Scene { wire, peer, out, inward, _memory: memory }
}

impl Scene {
    /// Lets the wire receive until something comes of it.
    fn receive(&mut self) -> Result<Vec<(u32, u64)>, WireError> {
        let mut heard = Vec::new();
        for _ in 0..10_000 {
            let moved = self.wire.receive(|channel, count| heard.push((channel, count)))?;
            if moved {
                return Ok(heard);
            }
            std::thread::yield_now();
        }
        panic!("nothing came");
    }

    /// Receives until the wire complains.
    fn complaint(&mut self) -> WireError {
        loop {
            if let Err(error) = self.receive() {
                return error;
            }
        }
    }

    fn say(&mut self, frame: Frame) {
        self.peer.write_all(&frame.encode(KEY)).expect("the wire listens");
    }

    fn send(&mut self) {
        while self.wire.has_output() {
            self.wire.send(|_, _| ()).expect("the peer listens");
        }
    }

    fn hear(&mut self) -> Frame {
        let mut bytes = [0; FRAME_BYTES];
        self.peer.read_exact(&mut bytes).expect("a frame");
        Frame::decode(&bytes, KEY).expect("a good frame")
    }
}

fn data(sequence: u64, bytes: u32) -> Frame {
    Frame { kind: Kind::Data, channel: 3, sequence, credit: 0, bytes }
}

fn protocol(error: &WireError, words: &str) {
    assert!(matches!(error, WireError::Protocol(text) if text.contains(words)), "{error:?}");
}

#[test]
fn messages_arrive_however_they_are_cut() {
    let mut scene = scene();
    let mut stream = Vec::new();
    let payload: Vec<u8> = (0..100_000u32).map(|n| (n * 7 % 251) as u8).collect();
    stream.extend_from_slice(&data(0, 100_000).encode(KEY));
    stream.extend_from_slice(&payload);
    stream.extend_from_slice(&data(1, 3).encode(KEY));
    stream.extend_from_slice(b"abc");
    let mut heard = Vec::new();
    let cuts = [1, 30, 31, 33, 5000, 95_000, 7, 60, 10];
    let mut rest = &stream[..];
    for cut in cuts.into_iter().chain([usize::MAX]) {
        let (piece, after) = rest.split_at(cut.min(rest.len()));
        rest = after;
        if !piece.is_empty() {
            scene.peer.write_all(piece).expect("the wire listens");
            heard.extend(scene.receive().expect("good frames"));
        }
    }
    while heard.len() < 2 {
        heard.extend(scene.receive().expect("good frames"));
    }
    assert_eq!(heard, [(3, 1), (3, 2)]);
    assert!(scene.inward.has(1) && !scene.inward.has(2));
    assert_eq!((scene.inward.bytes(0), scene.inward.bytes(1)), (100_000, 3));
    // SAFETY: both messages have arrived.
    let (first, second) = unsafe {
        (
            std::slice::from_raw_parts(scene.inward.payload(0), 100_000),
            std::slice::from_raw_parts(scene.inward.payload(1), 3),
        )
    };
    assert_eq!(first, payload);
    assert_eq!(second, b"abc");
}

#[test]
fn messages_leave_in_order_with_what_was_taken_out() {
    let mut scene = scene();
    // SAFETY: the first slot is free.
    unsafe { scene.out.payload(0).copy_from_nonoverlapping(b"hello".as_ptr(), 5) };
    scene.out.publish(0, 5);
    scene.out.publish(1, 0);
    scene.wire.notice_out(1).expect("two messages");
    scene.send();
    assert_eq!(scene.hear(), data(0, 5));
    let mut payload = [0; 5];
    scene.peer.read_exact(&mut payload).expect("payload");
    assert_eq!(&payload, b"hello");
    assert_eq!(scene.hear(), data(1, 0));
    let credit = Frame { kind: Kind::Credit, channel: 3, sequence: 0, credit: 2, bytes: 0 };
    scene.say(credit);
    scene.receive().expect("a credit for what was sent");
    assert!(scene.out.has_room(5) && !scene.out.has_room(6));
}

#[test]
fn credits_are_held_back_until_there_are_many_or_nothing_else_to_do() {
    let mut scene = scene();
    let credit = |credit| Frame { kind: Kind::Credit, channel: 3, sequence: 0, credit, bytes: 0 };
    for n in 0..4 {
        scene.say(data(n, 0));
    }
    while !scene.inward.has(3) {
        scene.receive().expect("messages");
    }
    scene.inward.release(0);
    scene.wire.notice_in(1).expect("one was taken out");
    assert!(!scene.wire.has_output(), "one of four slots can wait");
    assert!(scene.wire.queue_credits());
    scene.inward.release(1);
    scene.inward.release(2);
    scene.wire.notice_in(1).expect("three were taken out");
    scene.send();
    assert_eq!((scene.hear(), scene.hear()), (credit(1), credit(3)));
}

#[test]
fn credits_ride_on_data() {
    let mut scene = scene();
    scene.say(data(0, 0));
    scene.receive().expect("a message");
    scene.inward.release(0);
    scene.wire.notice_in(1).expect("one was taken out");
    scene.out.publish(0, 0);
    scene.wire.notice_out(1).expect("one message");
    assert!(!scene.wire.queue_credits(), "the message has told it");
    scene.send();
    assert_eq!(scene.hear(), Frame { credit: 1, ..data(0, 0) });
}

#[test]
fn what_a_peer_may_not_send_is_named() {
    let cases: [(Frame, &str); 6] = [
        (data(1, 0), "message 1 instead of 0"),
        (data(0, (128 << 10) + 1), "a slot has 131072"),
        (Frame { channel: 2, ..data(0, 0) }, "channel 2 does not travel"),
        (Frame { channel: 40_001, ..data(0, 0) }, "channel 40001 does not travel"),
        (Frame { credit: 1, ..data(0, 0) }, "it took 1 messages out of channel 3, after 0, and 0 were sent"),
        (Frame::plain(Kind::ByeHeard), "a goodbye that was not said"),
    ];
    for (frame, words) in cases {
        let mut scene = scene();
        scene.say(frame);
        protocol(&scene.complaint(), words);
    }
}

#[test]
fn a_message_without_a_free_slot_is_named() {
    let mut scene = scene();
    for n in 0..5 {
        scene.say(data(n, 0));
    }
    protocol(&scene.complaint(), "message 4 came before its slot was free");
}

#[test]
fn garbage_is_named() {
    let mut scene = scene();
    scene.peer.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the wire listens");
    protocol(&scene.complaint(), "no frame of this protocol");
}

#[test]
fn a_peer_that_ends_amid_a_message_is_lost() {
    let mut scene = scene();
    scene.say(data(0, 100));
    scene.peer.write_all(&[0; 40]).expect("the wire listens");
    scene.peer.shutdown(std::net::Shutdown::Write).expect("ends");
    let error = scene.complaint();
    let words = "within message 0 of channel 3, after 40 of 100 bytes";
    assert!(matches!(&error, WireError::Lost(text) if text.contains(words)), "{error:?}");
}

#[test]
fn goodbyes_are_confirmed_and_then_the_end_is_no_loss() {
    let mut scene = scene();
    scene.wire.say_bye();
    scene.send();
    assert_eq!(scene.hear().kind, Kind::Bye);
    scene.say(Frame::plain(Kind::ByeHeard));
    scene.say(Frame::plain(Kind::Bye));
    scene.receive().expect("both goodbyes");
    while !scene.wire.bye().heard {
        scene.receive().expect("both goodbyes");
    }
    scene.send();
    assert_eq!(scene.hear().kind, Kind::ByeHeard);
    scene.peer.shutdown(std::net::Shutdown::Both).expect("ends");
    scene.receive().expect("an orderly end");
    assert_eq!(scene.wire.bye(), Bye { said: true, confirmed: true, heard: true, over: true });
}

#[test]
fn a_broken_peer_says_who_is_to_blame() {
    let mut scene = scene();
    scene.out.publish(0, 5);
    scene.wire.notice_out(1).expect("one message");
    scene.wire.say_broken(7);
    let broken = scene.hear();
    assert_eq!((broken.kind, broken.sequence), (Kind::Broken, 7));
    scene.say(broken);
    assert_eq!(scene.complaint(), WireError::Told(7));
}

#[test]
fn nothing_but_a_confirmation_may_follow_a_goodbye() {
    let mut scene = scene();
    scene.say(Frame::plain(Kind::Bye));
    scene.say(data(0, 0));
    protocol(&scene.complaint(), "Data after its goodbye");
}

#[test]
fn what_this_side_may_not_do_is_its_own_fault() {
    let mut scene = scene();
    scene.out.full().store(5, Ordering::Release);
    assert!(matches!(scene.wire.notice_out(1), Err(WireError::Own(_))), "five messages in four slots");
    scene.inward.release(0);
    assert!(matches!(scene.wire.notice_in(1), Err(WireError::Own(_))), "gave back what never came");
}

#[test]
fn a_full_socket_blocks_and_loses_nothing() {
    const MESSAGES: u64 = 10;
    const BYTES: u32 = 128 << 10;
    let mut scene = scene();
    // Less than a message: writes must come up short.
    rustix::net::sockopt::set_socket_send_buffer_size(scene.wire.fd(), 8 << 10).expect("a small buffer");
    let mut peer = scene.peer.try_clone().expect("a second handle");
    let reader = std::thread::spawn(move || {
        let mut body = vec![0; BYTES as usize];
        for n in 0..MESSAGES {
            let mut bytes = [0; FRAME_BYTES];
            peer.read_exact(&mut bytes).expect("a frame");
            assert_eq!(Frame::decode(&bytes, KEY), Ok(data(n, BYTES)));
            peer.read_exact(&mut body).expect("payload");
            assert!(body.iter().all(|byte| *byte == n as u8 + 1), "message {n}");
            let credit = Frame { kind: Kind::Credit, channel: 3, sequence: 0, credit: n + 1, bytes: 0 };
            peer.write_all(&credit.encode(KEY)).expect("the wire listens");
        }
    });
    let (mut next, mut moved, mut blocked) = (0, 0, false);
    while moved < MESSAGES {
        if next < MESSAGES && scene.out.has_room(next) {
            // SAFETY: the slot is free, and has that many bytes.
            unsafe { scene.out.payload(next).write_bytes(next as u8 + 1, BYTES as usize) };
            scene.out.publish(next, BYTES.into());
            scene.wire.notice_out(1).expect("one message");
            next += 1;
        }
        scene.wire.send(|_, count| moved = count).expect("the peer lives");
        blocked |= scene.wire.blocked;
        scene.wire.receive(|_, _| ()).expect("credits");
        std::thread::yield_now();
    }
    reader.join().expect("the peer got all of it");
    assert!(blocked && !scene.wire.blocked && !scene.wire.has_output());
}
