//! The numbered schedules in `examples/`: each is in canonical form, and the verifier and the lowering
//! agree with it for the numbers of ranks that its first line lists, at every root.
//!
//! `BLESS=1` rewrites the files in canonical form.

use ringsmith_compiler::lower;
use ringsmith_ir::diagnostic::Diagnostic;
use ringsmith_ir::expand::{Arguments, expand};
use ringsmith_ir::schedule::Schedule;
use ringsmith_ir::text::{self, File};
use ringsmith_ir::verify;
use std::path::{Path, PathBuf};

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/schedules");
    let entries = std::fs::read_dir(&folder).expect("the folder of examples exists");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("its entries can be listed").path()).collect();
    files.sort();
    files
}

/// The value of `key` in the first line: the text between the quotes or braces after it.
fn directive<'a>(source: &'a str, key: &str) -> Option<&'a str> {
    let line = source.lines().next()?.strip_prefix("//! ")?;
    let (_, rest) = line.split_once(&format!("{key} = "))?;
    rest[1..].split(['"', '}', ']']).next()
}

fn ranks(source: &str) -> std::ops::RangeInclusive<u32> {
    let range = directive(source, "ranks").expect("a program says for how many ranks it is");
    let (first, last) = range.split_once("..").expect("as `1..9`");
    first.parse().expect("a number")..=last.parse().expect("a number")
}

fn arguments(source: &str, ranks: u32) -> Arguments {
    let set = directive(source, "set").into_iter().flat_map(|s| s.split(','));
    set.fold(Arguments::ranks(ranks), |arguments, pair| {
        let (name, value) = pair.split_once('=').expect("as `name = 8`");
        arguments.set(name.trim(), value.trim().parse().expect("a number"))
    })
}

fn prove(path: &Path, schedule: Schedule) {
    let explain = |found: Vec<Diagnostic>| -> ! { panic!("{}: {found:#?}", path.display()) };
    let protocol = schedule.protocol;
    let ranks = schedule.ranks;
    let schedule = verify::schedule(schedule).unwrap_or_else(|found| explain(found));
    let options = lower::Options { protocol, ..lower::Options::default() };
    let plan = lower::lower(&schedule, options).unwrap_or_else(|found| explain(found));
    assert_eq!(plan.ranks, ranks);
}

#[test]
fn every_example_is_proved_and_lowered() {
    for path in examples() {
        let source = std::fs::read_to_string(&path).expect("an example can be read");
        match text::parse(&source).unwrap_or_else(|found| panic!("{}: {found:#?}", path.display())) {
            File::Schedule(schedule) => prove(&path, schedule),
            File::Program(program) => {
                for n in ranks(&source) {
                    let rooted = program.parameters.iter().any(|p| p.name.text == "root");
                    for root in 0..if rooted { n } else { 1 } {
                        let arguments = arguments(&source, n);
                        let arguments = if rooted { arguments.root(root) } else { arguments };
                        let schedule = expand(&program, &arguments)
                            .unwrap_or_else(|found| panic!("{} on {n}: {found:#?}", path.display()));
                        prove(&path, schedule);
                    }
                }
            }
        }
    }
}

#[test]
fn every_example_is_in_canonical_form_and_numbered_in_order() {
    for (index, path) in examples().iter().enumerate() {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let (number, rest) = name.split_once('_').expect("as `01_name.sched`");
        assert_eq!(number.parse(), Ok(index + 1), "{name}");
        let source = std::fs::read_to_string(path).expect("an example can be read");
        let canonical = text::format(&source).unwrap_or_else(|found| panic!("{name}: {found:#?}"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, &canonical).expect("an example can be written");
        } else {
            assert_eq!(canonical, source, "{name}");
        }
        assert!(
            source.contains(&format!(" @{}", rest.trim_end_matches(".sched"))),
            "{name} is named otherwise"
        );
    }
}
