//! Programs read and expanded through the public interface.

use ringsmith_ir::entity::{Link, Rank};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::{OpKind, Schedule};
use ringsmith_ir::text::{
    format, parse_program, parse_schedule, print_program, print_schedule, schedule_without_spans,
};

const RING: &str = include_str!("samples/ring_all_reduce.sched");

fn expanded(source: &str, arguments: &Arguments) -> Schedule {
    let program = parse_program(source).unwrap_or_else(|d| panic!("{d:#?}"));
    expand(&program, arguments).unwrap_or_else(|d| panic!("{d:#?}"))
}

#[test]
fn the_ring_expands() {
    for ranks in [1, 2, 3, 8] {
        let schedule = expanded(RING, &Arguments::ranks(ranks));
        let n = ranks as usize;
        assert_eq!(schedule.name, "ring_all_reduce");
        assert_eq!((schedule.ranks, schedule.chunks), (ranks, ranks));
        assert_eq!((schedule.links.len(), schedule.lanes.len()), (n, n));
        for (r, lane) in schedule.lanes.values().enumerate() {
            assert_eq!(lane.name.to_string(), format!("r{r}.0"));
            assert_eq!(lane.ops.len(), (n - 1) * 7);
            for op in &lane.ops {
                let text = &RING[op.span.start as usize..op.span.end as usize];
                let word = match op.kind {
                    OpKind::Put { peer, link, .. } => {
                        assert_eq!(
                            (peer, link),
                            (Rank::from_u32((r as u32 + 1) % ranks), Link::from_u32(r as u32))
                        );
                        "put "
                    }
                    OpKind::Signal { link } => {
                        assert_eq!(link, Link::from_u32(r as u32));
                        "signal "
                    }
                    OpKind::Wait { link } => {
                        assert_eq!(link, Link::from_u32((r as u32 + ranks - 1) % ranks));
                        "wait "
                    }
                    OpKind::Reduce { .. } => "reduce ",
                    OpKind::Get { .. } | OpKind::Copy { .. } => panic!("there is none in the text"),
                };
                assert!(text.starts_with(word) && !text.contains('\n'), "{text}");
            }
        }
    }
}

#[test]
fn canonical_text_is_kept() {
    assert_eq!(format(RING).unwrap(), RING);
    let program = parse_program(RING).unwrap();
    assert_eq!(print_program(&program), RING);
}

#[test]
fn expansions_print_and_read_back() {
    for ranks in [1, 2, 5] {
        let schedule = expanded(RING, &Arguments::ranks(ranks));
        let text = print_schedule(&schedule);
        let back = parse_schedule(&text).unwrap_or_else(|d| panic!("{d:#?}\n{text}"));
        assert_eq!(schedule_without_spans(back), schedule_without_spans(schedule), "{text}");
        assert_eq!(format(&text).unwrap(), text);
    }
}
