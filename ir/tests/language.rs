//! Programs read and expanded through the public interface.

use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::entity::{Link, Rank};
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::{OpKind, Schedule};
use ringsmith_ir::text::{
    File, codes, format, parse, parse_program, parse_schedule, print_program, print_schedule,
    schedule_without_spans,
};
use std::path::Path;

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

fn docs(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The blocks of a page that hold texts of the language, each with the arguments of its expansion, if
/// it is to be expanded: ```` ```sched ranks=4 root=0 ````.
fn examples(page: &str) -> Vec<(Option<Arguments>, String)> {
    let mut examples = Vec::new();
    for block in page.split("```sched").skip(1) {
        let (info, rest) = block.split_once('\n').expect("a block has lines");
        let (text, _) = rest.split_once("```").expect("a block is closed");
        let mut arguments = None;
        for word in info.split_whitespace() {
            let (name, value) = word.split_once('=').expect("NAME=VALUE");
            let value: u32 = value.parse().expect("a number");
            let set = arguments.take().unwrap_or_default();
            arguments = Some(match name {
                "ranks" => Arguments { ranks: value, ..set },
                "root" => set.root(value),
                _ => set.set(name, i64::from(value)),
            });
        }
        examples.push((arguments, text.to_owned()));
    }
    examples
}

fn mistakes(arguments: Option<&Arguments>, text: &str) -> Vec<Diagnostic> {
    match (parse(text), arguments) {
        (Err(found), _) => found,
        (Ok(File::Program(program)), Some(arguments)) => {
            expand(&program, arguments).err().unwrap_or_default()
        }
        (Ok(_), _) => Vec::new(),
    }
}

/// Pages without an example: a text that earns the mistake would be longer than the page.
const WITHOUT_EXAMPLE: [&str; 3] = ["P0104", "P0105", "P0110"];

#[test]
fn every_code_has_a_page_whose_example_earns_it() {
    let index = docs("diagnostics/README.md");
    for (code, _) in codes::ALL {
        let page = docs(&format!("diagnostics/{code}.md"));
        assert!(page.starts_with(&format!("# {code}: ")), "{code}: the page has another title");
        assert!(index.contains(&format!("[{code}]({code}.md)")), "{code}: not in the index");
        let examples = examples(&page);
        assert_eq!(examples.is_empty(), WITHOUT_EXAMPLE.contains(&code.0), "{code}");
        for (arguments, text) in examples {
            let found = mistakes(arguments.as_ref(), &text);
            assert!(found.iter().any(|d| d.code == *code), "{code}: the example earns {found:#?}");
        }
    }
}

#[test]
fn the_examples_of_the_language_page_are_right() {
    let examples = examples(&docs("language.md"));
    assert!(examples.len() >= 2);
    for (arguments, text) in examples {
        assert_eq!(mistakes(arguments.as_ref(), &text), [], "{text}");
        assert_eq!(format(&text).as_deref(), Ok(&text[..]), "not in canonical form");
    }
}
