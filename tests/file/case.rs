//! One case: its text, its directive, and whether what happened is what it says.

use crate::check::{self, Input};
use crate::directive::{Action, Directive};
use crate::{expectation, golden};
use ringsmith_ir::diagnostic::Diagnostic;
use std::path::{Path, PathBuf};

/// A case, read.
pub(crate) struct Case {
    path: PathBuf,
    text: String,
    directive: Directive,
}

impl Case {
    /// Reads a case.
    ///
    /// Errors: what is wrong with the file or its directive.
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let directive = Directive::parse(&text)?;
        Ok(Self { path: path.to_owned(), text, directive })
    }

    /// Does what the directive says and compares.
    ///
    /// Errors: everything that differs.
    pub(crate) fn run(&self, bless: bool) -> Result<(), String> {
        let ranks = self.directive.ranks()?;
        let inputs: Vec<Input<'_>> = match ranks {
            None => vec![self.input(None, None)],
            Some(ranks) => ranks
                .flat_map(|ranks| {
                    self.roots(ranks).into_iter().map(move |root| self.input(Some(ranks), root))
                })
                .collect(),
        };
        for &action in &self.directive.run {
            let mut printed = String::new();
            for input in &inputs {
                let outcome = check::check(action, input)?;
                let (result, found) = match outcome {
                    Ok(result) => (result, Vec::new()),
                    Err(found) => (String::new(), found),
                };
                self.compare_places(&found).map_err(|report| match input.ranks {
                    Some(ranks) => format!("{action:?} for {ranks} ranks:\n{report}"),
                    None => format!("{action:?}:\n{report}"),
                })?;
                printed.push_str(&result);
                // Reading and formatting do not depend on the number of ranks.
                if matches!(action, Action::Parse | Action::Fmt) {
                    break;
                }
            }
            let ending = match action {
                Action::Parse | Action::Verify => continue,
                Action::Fmt => "fmt",
                Action::Expand => "expand",
                Action::Lower => "lower",
            };
            if !printed.is_empty() {
                golden::compare(&self.path, ending, &printed, bless)?;
            }
        }
        self.check_results_are_asked_for()
    }

    /// The roots to expand for: the directive's, or every one where the collective has roots.
    fn roots(&self, ranks: u32) -> Vec<Option<u32>> {
        match self.directive.root {
            None if check::is_rooted(&self.text) => (0..ranks).map(Some).collect(),
            root => vec![root],
        }
    }

    fn input(&self, ranks: Option<u32>, root: Option<u32>) -> Input<'_> {
        Input {
            text: &self.text,
            is_plan: self.path.extension().is_some_and(|ending| ending == "plan"),
            ranks,
            root,
            directive: &self.directive,
        }
    }

    fn compare_places(&self, found: &[Diagnostic]) -> Result<(), String> {
        expectation::compare(&self.text, found)
    }

    /// Refuses printed results beside the case that none of its actions prints.
    fn check_results_are_asked_for(&self) -> Result<(), String> {
        let asked = |ending: &str| {
            self.directive.run.iter().any(|action| match action {
                Action::Parse | Action::Verify => false,
                Action::Fmt => ending == "fmt",
                Action::Expand => ending == "expand",
                Action::Lower => ending == "lower",
            })
        };
        match golden::ENDINGS.into_iter().find(|e| !asked(e) && self.path.with_extension(e).exists()) {
            Some(ending) => Err(format!("the file that ends in `.{ending}` is not asked for")),
            None => Ok(()),
        }
    }
}
