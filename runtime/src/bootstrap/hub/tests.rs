//! The hub without sockets: every decision by calling it.

use super::*;
use crate::bootstrap::frame::{MAX_FRAME_BYTES, decode};

const VERSION: &str = "9.9.9";

fn process(pid: u32) -> Process {
    Process { host: "node".into(), pid }
}

fn hub() -> Hub {
    Hub::new(process(1), VERSION.into())
}

/// What the hub does on one frame: frames by connection, closings as `None`.
fn give(hub: &mut Hub, from: Connection, frame: Frame, now: Instant) -> Vec<(Connection, Option<Frame>)> {
    let mut out = Vec::new();
    hub.receive(from, frame, now, &mut out);
    read(out)
}

fn read(actions: Vec<Action>) -> Vec<(Connection, Option<Frame>)> {
    let mut events = Vec::new();
    for action in actions {
        match action {
            Action::Close(connection) => events.push((connection, None)),
            Action::Send(connection, bytes) => {
                let mut rest = &bytes[..];
                while let Some((frame, len)) = decode(rest, MAX_FRAME_BYTES).expect("the hub's own frames") {
                    events.push((connection, Some(frame)));
                    rest = &rest[len..];
                }
                assert!(rest.is_empty(), "half a frame was sent");
            }
        }
    }
    events
}

fn join(rank: u32, world: u32, timeout_ms: u64) -> Frame {
    let version = VERSION.into();
    Frame::Join(Join { rank, world, timeout_ms, process: process(100 + rank), host_key: [0; 16], version })
}

fn part(sequence: u64, tag: &str, timeout_ms: u64) -> Frame {
    Frame::Part { sequence, timeout_ms, tag: tag.into(), bytes: tag.as_bytes().to_vec() }
}

/// A hub on which `world` ranks have joined; rank r is connection 10 + r.
fn running(world: u32, now: Instant) -> Hub {
    let mut hub = hub();
    for rank in 0..world {
        give(&mut hub, 10 + rank as usize, join(rank, world, 1000), now);
    }
    assert_eq!(hub.state, State::Running);
    hub
}

#[test]
fn the_last_to_join_brings_the_welcome() {
    let (mut hub, now) = (hub(), Instant::now());
    assert!(give(&mut hub, 11, join(1, 2, 1000), now).is_empty());
    let events = give(&mut hub, 10, join(0, 2, 1000), now);
    for connection in [10, 11] {
        let own: Vec<_> = events.iter().filter(|(c, _)| *c == connection).collect();
        assert!(matches!(own[0].1, Some(Frame::Member { rank: 0, .. })));
        assert!(matches!(own[1].1, Some(Frame::Member { rank: 1, .. })));
        assert!(matches!(own[2].1, Some(Frame::Welcome { world: 2, .. })));
        assert_eq!(own.len(), 3);
    }
    assert_eq!(hub.deadline(), None);
}

#[test]
fn the_first_deadline_ends_the_wait_for_all() {
    let (mut hub, now) = (hub(), Instant::now());
    give(&mut hub, 10, join(0, 4, 5000), now);
    give(&mut hub, 12, join(2, 4, 1000), now);
    assert_eq!(hub.deadline(), Some(now + Duration::from_millis(1000)));
    let mut out = Vec::new();
    hub.tick(now + Duration::from_millis(999), || None, &mut out);
    assert!(out.is_empty());
    hub.tick(now + Duration::from_millis(1000), || Some("2 strangers".into()), &mut out);
    let missing =
        Refusal::Missing { missing: vec![1, 3], waited_ms: 1000, strangers: Some("2 strangers".into()) };
    let events = read(out);
    for connection in [10, 12] {
        assert!(events.contains(&(connection, Some(Frame::Refused(missing.clone())))));
        assert!(events.contains(&(connection, None)));
    }
    // Who comes now is told the same.
    let late = give(&mut hub, 13, join(3, 4, 1000), now);
    assert_eq!(late, [(13, Some(Frame::Refused(missing))), (13, None)]);
}

#[test]
fn a_time_that_no_clock_holds_is_no_deadline() {
    let (mut hub, now) = (hub(), Instant::now());
    give(&mut hub, 10, join(0, 2, u64::MAX), now);
    assert_eq!(hub.deadline(), None);
}

#[test]
fn another_version_is_told_to_all() {
    let (mut hub, now) = (hub(), Instant::now());
    give(&mut hub, 10, join(0, 2, 1000), now);
    let Frame::Join(mut other) = join(1, 2, 1000) else { unreachable!("join makes a Join") };
    other.version = "1.0.0".into();
    let events = give(&mut hub, 11, Frame::Join(other), now);
    let told = events
        .iter()
        .filter(|(_, frame)| matches!(frame, Some(Frame::Refused(Refusal::Version { rank: 1, .. }))));
    assert_eq!(told.count(), 2);
}

#[test]
fn a_death_while_joining_is_told_at_once() {
    let (mut hub, now) = (hub(), Instant::now());
    give(&mut hub, 10, join(0, 3, 1000), now);
    give(&mut hub, 11, join(1, 3, 1000), now);
    let mut out = Vec::new();
    hub.closed(11, "gone", &mut out);
    let lost = Refusal::Lost { rank: 1, process: process(101), detail: "gone".into() };
    assert!(read(out).contains(&(10, Some(Frame::Refused(lost)))));
    assert_eq!(hub.deadline(), None);
}

#[test]
fn a_gathering_goes_to_all_when_whole() {
    let now = Instant::now();
    let mut hub = running(2, now);
    for sequence in 0..2 {
        assert!(give(&mut hub, 11, part(sequence, "b", 1000), now).is_empty());
        let events = give(&mut hub, 10, part(sequence, "b", 1000), now);
        for connection in [10, 11] {
            let own: Vec<_> =
                events.iter().filter(|(c, _)| *c == connection).map(|(_, frame)| frame.clone()).collect();
            let gathered = |rank| Some(Frame::Gathered { sequence, rank, bytes: b"b".to_vec() });
            assert_eq!(own, [gathered(0), gathered(1), Some(Frame::GatherDone { sequence })]);
        }
    }
}

#[test]
fn who_comes_late_to_a_failed_gathering_is_told() {
    let now = Instant::now();
    let mut hub = running(3, now);
    give(&mut hub, 10, part(0, "a", 500), now);
    give(&mut hub, 11, part(0, "a", 100), now);
    let mut out = Vec::new();
    hub.tick(now + Duration::from_millis(100), || None, &mut out);
    let refusal = Refusal::Missing { missing: vec![2], waited_ms: 100, strangers: None };
    let failed =
        |connection| (connection, Some(Frame::GatherFailed { sequence: 0, refusal: refusal.clone() }));
    assert_eq!(read(out), [failed(10), failed(11)]);
    assert_eq!(give(&mut hub, 12, part(0, "a", 100), now), [failed(12)]);
    // The next is whole again.
    give(&mut hub, 12, part(1, "b", 100), now);
    give(&mut hub, 10, part(1, "b", 100), now);
    assert_eq!(give(&mut hub, 11, part(1, "b", 100), now).len(), 3 * 4);
}

#[test]
fn a_leaver_fails_the_gathering_it_owes() {
    let now = Instant::now();
    let mut hub = running(3, now);
    give(&mut hub, 10, part(0, "a", 500), now);
    let events = give(&mut hub, 12, Frame::Goodbye, now);
    let left = Refusal::Left { rank: 2, process: process(102) };
    assert_eq!(events, [(12, None), (10, Some(Frame::GatherFailed { sequence: 0, refusal: left.clone() }))]);
    // And every later one, at its first part.
    give(&mut hub, 11, part(0, "a", 500), now);
    let events = give(&mut hub, 11, part(1, "b", 500), now);
    assert_eq!(events, [(11, Some(Frame::GatherFailed { sequence: 1, refusal: left }))]);
}

#[test]
fn a_leaver_that_gave_its_part_fails_nothing() {
    let now = Instant::now();
    let mut hub = running(2, now);
    give(&mut hub, 11, part(0, "last", 500), now);
    give(&mut hub, 11, Frame::Goodbye, now);
    let events = give(&mut hub, 10, part(0, "last", 500), now);
    assert_eq!(events.last(), Some(&(10, Some(Frame::GatherDone { sequence: 0 }))));
}

#[test]
fn the_first_loss_is_told_and_the_rest_is_not() {
    let now = Instant::now();
    let mut hub = running(4, now);
    let mut out = Vec::new();
    hub.closed(11, "gone", &mut out);
    let lost = Frame::Lost { rank: 1, process: process(101), detail: "gone".into() };
    let told: Vec<_> = [10, 12, 13].map(|connection| (connection, Some(lost.clone()))).to_vec();
    assert_eq!(read(out), told);
    let mut out = Vec::new();
    hub.closed(12, "gone too", &mut out);
    hub.closed(12, "twice", &mut out);
    assert!(out.is_empty());
    assert_eq!(hub.present(), [0, 3]);
}

#[test]
fn what_the_protocol_does_not_allow_costs_the_connection() {
    let now = Instant::now();
    let outsiders = [Frame::Goodbye, part(0, "a", 1), Frame::RootLeaving];
    for frame in outsiders {
        assert_eq!(give(&mut running(2, now), 99, frame, now), [(99, None)]);
    }
    let insiders = [part(7, "a", 1), join(1, 2, 1), Frame::GatherDone { sequence: 0 }];
    for frame in insiders {
        let events = give(&mut running(2, now), 11, frame, now);
        assert!(
            events.iter().any(|(c, frame)| *c == 10 && matches!(frame, Some(Frame::Lost { rank: 1, .. })))
        );
        assert!(events.contains(&(11, None)));
    }
    let mut hub = running(2, now);
    give(&mut hub, 11, part(0, "a", 1), now);
    assert!(give(&mut hub, 11, part(0, "a", 1), now).contains(&(11, None)), "one rank gave two parts");
}

#[test]
fn a_root_that_leaves_a_running_job_says_so() {
    let now = Instant::now();
    let mut hub = running(2, now);
    assert!(!hub.is_idle());
    let mut out = Vec::new();
    hub.leave(&mut out);
    assert_eq!(read(out), [(10, Some(Frame::RootLeaving)), (11, Some(Frame::RootLeaving))]);
    give(&mut hub, 10, Frame::Goodbye, now);
    give(&mut hub, 11, Frame::Goodbye, now);
    assert!(hub.is_idle());
}

#[test]
fn a_root_that_leaves_while_ranks_join_says_so() {
    let (mut hub, now) = (hub(), Instant::now());
    give(&mut hub, 10, join(0, 2, 1000), now);
    assert!(hub.is_idle(), "nobody needs it to go on");
    let mut out = Vec::new();
    hub.leave(&mut out);
    assert_eq!(read(out), [(10, Some(Frame::Refused(Refusal::ShuttingDown))), (10, None)]);
}

#[test]
fn an_abort_is_told_once_and_ends_gatherings() {
    let now = Instant::now();
    let mut hub = running(3, now);
    give(&mut hub, 10, part(0, "a", 100), now);
    let events = give(&mut hub, 12, Frame::Abort { reason: "why".into() }, now);
    let aborted = Frame::Aborted { rank: 2, reason: "why".into() };
    assert_eq!(events, [(10, Some(aborted.clone())), (11, Some(aborted))]);
    assert_eq!(hub.deadline(), None);
    // What follows from it is not told.
    assert!(give(&mut hub, 11, part(0, "a", 100), now).is_empty());
    assert!(give(&mut hub, 11, Frame::Abort { reason: "that".into() }, now).is_empty());
    assert!(hub.is_idle(), "nobody needs the root of a broken job");
}
