//! `verify`: proof or diagnostics, for every number of ranks and every root that is asked for.
//!
//! The verifier proves one expansion at a time; what is said of a range is said of each number in it
//! and of no other. The kernel plan that would run of it is proved too: a schedule knows no slots, and one
//! that needs more of them than there are would wait for ever.

use crate::arguments::VerifyArguments;
use crate::expand::{self, Request};
use crate::input::{Input, name_of};
use crate::outcome::{Failure, Outcome, Result};
use crate::output::{Output, Progress, remark, shortened};
use crate::values::{OneOrAll, Ranks};
use ringsmith_compiler::lower::{self, Options};
use ringsmith_ir::diagnostic::{Diagnostic, line_column};
use ringsmith_ir::expand::Arguments;
use ringsmith_ir::program::Program;
use ringsmith_ir::schedule::{Protocol, Schedule};
use ringsmith_ir::text::codes::undecided;
use ringsmith_ir::text::{self, File};
use ringsmith_ir::verify::{self, Verified};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// The numbers of ranks that a program is proved for where none are given. Ours: both parities,
/// powers of two and not, within a moment.
pub(crate) const DEFAULT_RANKS: Ranks = Ranks { first: 2, last: 8 };

/// What became of one file at one number of ranks.
pub(crate) enum Answer {
    /// Proved.
    Proved {
        /// The last expansion that was proved: its size is told.
        schedule: Box<Verified<Schedule>>,
        /// For which roots.
        roots: Roots,
    },
    /// Refuted, or not even expanded.
    Wrong {
        /// What is wrong.
        mistakes: Vec<Diagnostic>,
        /// The root at which it is.
        root: Option<u32>,
        /// Whether the text or the flags are unusable, rather than the program wrong.
        unusable: bool,
    },
}

/// Which roots a proof covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    /// The collective has none.
    None,
    /// This one.
    One(u32),
    /// Every rank as the root.
    Every,
}

/// Runs `verify`.
pub(crate) fn run(arguments: &VerifyArguments) -> Result {
    let set = arguments.parameters.by_name()?;
    let mut output = Output::new();
    let mut outcome = Outcome::Done;
    for path in &arguments.files {
        let one = Input::read(path).and_then(|input| {
            let mut report =
                Report { input: &input, json: arguments.json, output: &mut output, drawn: HashSet::new() };
            file(&input, arguments, &set, &mut report)
        });
        match one {
            Ok(one) => outcome = outcome.max(one),
            Err(Failure::Message { outcome: Outcome::Unusable, text }) => {
                if arguments.json {
                    output.json(&Row::unread(&name_of(path), &text))?;
                    output.flush()?;
                } else {
                    remark(format_args!("error: {text}"));
                }
                outcome = outcome.max(Outcome::Unusable);
            }
            // No other file would fare better: standard output cannot be written.
            Err(failure) => return Err(failure),
        }
    }
    output.flush()?;
    Ok(outcome)
}

fn file(
    input: &Input,
    arguments: &VerifyArguments,
    set: &BTreeMap<String, i64>,
    report: &mut Report<'_>,
) -> Result {
    match text::parse(&input.text) {
        Err(mistakes) => report.answer(None, &Answer::Wrong { mistakes, root: None, unusable: true }),
        Ok(File::Schedule(schedule)) => {
            let ranks = arguments.ranks;
            if let Some(ranks) = ranks.filter(|r| !(r.first..=r.last).contains(&schedule.ranks)) {
                let own = counted(schedule.ranks as usize, "rank");
                let text = format!("--ranks {ranks}: {} holds a schedule for {own}", input.name);
                return Err(Failure::unusable(text));
            }
            let root = match arguments.root {
                OneOrAll::One(root) => Some(root),
                OneOrAll::All => None,
            };
            expand::fits(input, &schedule, &Request { ranks: None, root, set: set.clone() })?;
            report.answer(Some(schedule.ranks), &flat(schedule, arguments.fifos.slots, &input.name))
        }
        Ok(File::Program(program)) => {
            expand::check_values(&program, set)?;
            let ranks = arguments.ranks.unwrap_or(DEFAULT_RANKS);
            let mut outcome = Outcome::Done;
            for n in ranks.first..=ranks.last {
                let answer = prove(&program, n, arguments.root, set, arguments.fifos.slots, &input.name);
                outcome = outcome.max(report.answer(Some(n), &answer)?);
                if matches!(answer, Answer::Wrong { unusable: true, .. }) {
                    break;
                }
            }
            Ok(outcome)
        }
    }
}

/// Proves a schedule, and the kernel plans that would run of it: over FIFOs, which every size can use,
/// and with the protocol that it asks for.
fn whole(
    schedule: Schedule,
    slots: u32,
    progress: &mut Progress,
    what: &str,
) -> std::result::Result<Verified<Schedule>, Vec<Diagnostic>> {
    progress.show(format_args!("{what}: proving"));
    let proved = verify::schedule(schedule)?;
    let own = Some(proved.protocol).filter(|&own| own != Protocol::Simple);
    for protocol in std::iter::once(Protocol::Simple).chain(own) {
        progress.show(format_args!("{what}: proving the kernel plan, protocol {protocol}"));
        lower::lower(&proved, Options { protocol, slots, ..Options::default() })?;
    }
    Ok(proved)
}

/// Proves a flat schedule.
pub(crate) fn flat(schedule: Schedule, slots: u32, name: &str) -> Answer {
    let root = schedule.root.map(|r| r.as_u32());
    match whole(schedule, slots, &mut Progress::new(), name) {
        Ok(schedule) => {
            Answer::Proved { schedule: Box::new(schedule), roots: root.map_or(Roots::None, Roots::One) }
        }
        Err(mistakes) => {
            let unusable = undecided(&mistakes);
            Answer::Wrong { mistakes, root: None, unusable }
        }
    }
}

/// Proves a program for one number of ranks, and one or every root.
pub(crate) fn prove(
    program: &Program,
    ranks: u32,
    root: OneOrAll<u32>,
    set: &BTreeMap<String, i64>,
    slots: u32,
    name: &str,
) -> Answer {
    let rooted = expand::rooted(program);
    let roots: Vec<Option<u32>> = match root {
        OneOrAll::One(root) => vec![Some(root)],
        OneOrAll::All if rooted => (0..ranks).map(Some).collect(),
        OneOrAll::All => vec![None],
    };
    let mut progress = Progress::new();
    let mut proved = None;
    for &root in &roots {
        let at = root.map_or_else(String::new, |r| format!(", root {r}"));
        let what = format!("{name} for {}{at}", counted(ranks as usize, "rank"));
        progress.show(format_args!("{what}: expanding"));
        let arguments = Arguments { ranks, root, set: set.clone() };
        let schedule = match ringsmith_ir::expand::expand(program, &arguments) {
            Ok(schedule) => schedule,
            Err(mistakes) => {
                let unusable = undecided(&mistakes);
                return Answer::Wrong { mistakes, root, unusable };
            }
        };
        match whole(schedule, slots, &mut progress, &what) {
            Ok(schedule) => proved = Some(schedule),
            Err(mistakes) => {
                let unusable = undecided(&mistakes);
                return Answer::Wrong { mistakes, root, unusable };
            }
        }
    }
    let schedule = Box::new(proved.expect("there is at least one root, or none to choose"));
    let covered = match (root, rooted) {
        (OneOrAll::One(root), _) => Roots::One(root),
        (OneOrAll::All, true) => Roots::Every,
        (OneOrAll::All, false) => Roots::None,
    };
    Answer::Proved { schedule, roots: covered }
}

/// How a command ends that drew these mistakes: the rule for all of them.
pub(crate) fn outcome_of(mistakes: &[Diagnostic]) -> Outcome {
    if undecided(mistakes) { Outcome::Unusable } else { Outcome::No }
}

/// One line of `verify --json`.
#[derive(Serialize)]
struct Row<'a> {
    file: &'a str,
    ok: bool,
    ranks: Option<u32>,
    diagnostics: Vec<JsonDiagnostic<'a>>,
}

impl<'a> Row<'a> {
    /// Of a file that cannot be read, or that the arguments do not fit: nothing in its text is at fault.
    fn unread(file: &'a str, why: &'a str) -> Self {
        let message = shortened(why);
        let diagnostic = JsonDiagnostic { code: None, line: None, column: None, message };
        Self { file, ok: false, ranks: None, diagnostics: vec![diagnostic] }
    }
}

#[derive(Serialize)]
struct JsonDiagnostic<'a> {
    code: Option<&'static str>,
    line: Option<usize>,
    column: Option<usize>,
    message: Cow<'a, str>,
}

/// Where the answers about one file go.
struct Report<'a> {
    input: &'a Input,
    json: bool,
    output: &'a mut Output,
    /// What has been drawn: the same mistakes at another number of ranks are only counted.
    drawn: HashSet<Vec<(&'static str, u32)>>,
}

impl Report<'_> {
    fn answer(&mut self, ranks: Option<u32>, answer: &Answer) -> Result {
        let outcome = match answer {
            Answer::Proved { .. } => Outcome::Done,
            Answer::Wrong { unusable: true, .. } => Outcome::Unusable,
            Answer::Wrong { .. } => Outcome::No,
        };
        if self.json {
            let mistakes = match answer {
                Answer::Proved { .. } => &[][..],
                Answer::Wrong { mistakes, .. } => mistakes,
            };
            let text = &self.input.text;
            let row = |m: &'_ Diagnostic| line_column(text, m.span().start);
            let diagnostics = mistakes.iter().map(|m| {
                let (line, column) = row(m);
                let (line, column, code) = (Some(line), Some(column), Some(m.code.0));
                JsonDiagnostic { code, line, column, message: shortened(&m.message) }
            });
            let diagnostics = diagnostics.collect();
            let ok = outcome == Outcome::Done;
            self.output.json(&Row { file: &self.input.name, ok, ranks, diagnostics })?;
        } else {
            self.print(ranks, answer)?;
        }
        // A reader of a long run sees each answer when it is there.
        self.output.flush().map(|()| outcome)
    }

    fn print(&mut self, ranks: Option<u32>, answer: &Answer) -> Result<()> {
        let name = &self.input.name;
        match answer {
            Answer::Proved { schedule, roots } => {
                let sentence = proof(schedule, *roots);
                self.output.line(format_args!("{name}: {sentence}"))
            }
            Answer::Wrong { mistakes, root, unusable } => {
                let seen = mistakes.iter().map(|m| (m.code.0, m.span().start)).collect();
                let new = self.drawn.insert(seen);
                if new {
                    self.input.draw(mistakes);
                }
                let Some(ranks) = ranks.filter(|_| !unusable) else { return Ok(()) };
                let at = root.map_or_else(String::new, |r| format!(", root {r}"));
                let count = counted(mistakes.len(), "mistake");
                let again = if new { "" } else { ", as shown above" };
                self.output.line(format_args!(
                    "{name}: {}{at}: refuted, {count}{again}",
                    counted(ranks as usize, "rank")
                ))
            }
        }
    }
}

/// What was proved, in a sentence.
pub(crate) fn proof(schedule: &Verified<Schedule>, roots: Roots) -> String {
    let ranks = counted(schedule.ranks as usize, "rank");
    let roots = match roots {
        Roots::None => String::new(),
        Roots::One(root) => format!(", root {root}"),
        Roots::Every => ", every root".to_owned(),
    };
    let ops: usize = schedule.lanes.values().map(|lane| lane.ops.len()).sum();
    let lanes = counted(schedule.lanes.len(), "lane");
    format!("{ranks}{roots}: proved, {} in {lanes}", counted(ops, "op"))
}

/// A number and what it counts.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
