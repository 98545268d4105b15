//! The first line of a case: `//!` and then keys and values as in TOML, one line, comma-separated as
//! in an inline table: `//! run = ["verify"], ranks = "2..4", root = 0`.

use ringsmith_ir::schedule::Protocol;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// What to do with a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// Read it.
    Parse,
    /// Print it in canonical form, into `.fmt`.
    Fmt,
    /// Expand it, into `.expand`. A kernel plan and a flat schedule cannot be expanded.
    Expand,
    /// Prove it.
    Verify,
    /// Lower it, into `.lower`.
    Lower,
}

/// The directive of a case.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Directive {
    /// What to do, in this order.
    pub(crate) run: Vec<Action>,
    /// For how many ranks a program is expanded: a number, or `"2..4"`, both included, as on the
    /// command line.
    #[serde(default)]
    ranks: Option<Ranks>,
    /// The root of a rooted collective.
    #[serde(default)]
    pub(crate) root: Option<u32>,
    /// Values of named integers.
    #[serde(default)]
    pub(crate) set: BTreeMap<String, i64>,
    /// How messages travel, for lowering.
    #[serde(default)]
    protocol: Option<String>,
    /// Slots per link, for lowering.
    #[serde(default)]
    pub(crate) slots: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Ranks {
    One(u32),
    Several(String),
}

impl Directive {
    /// Reads the first line of a case.
    ///
    /// Errors: what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let line = text.lines().next().unwrap_or_default();
        let table =
            line.strip_prefix("//! ").ok_or("the first line is no directive, `//! run = [\"verify\"]`")?;
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Document {
            directive: Directive,
        }
        let document: Document =
            toml::from_str(&format!("directive = {{ {table} }}")).map_err(|error| error.to_string())?;
        let directive = document.directive;
        if directive.run.is_empty() {
            return Err("`run` lists nothing to do".to_owned());
        }
        directive.ranks()?;
        directive.protocol()?;
        Ok(directive)
    }

    /// The numbers of ranks to expand for; none where the directive does not say.
    pub(crate) fn ranks(&self) -> Result<Option<RangeInclusive<u32>>, String> {
        let range = match &self.ranks {
            None => return Ok(None),
            Some(Ranks::One(ranks)) => *ranks..=*ranks,
            Some(Ranks::Several(text)) => {
                let wrong = || format!("ranks = {text:?}: not a range like \"2..4\"");
                let (first, last) = text.split_once("..").ok_or_else(wrong)?;
                first.parse().map_err(|_| wrong())?..=last.parse().map_err(|_| wrong())?
            }
        };
        if range.is_empty() { Err("`ranks` is an empty range".to_owned()) } else { Ok(Some(range)) }
    }

    /// How messages travel.
    pub(crate) fn protocol(&self) -> Result<Protocol, String> {
        match self.protocol.as_deref() {
            None | Some("simple") => Ok(Protocol::Simple),
            Some("ll") => Ok(Protocol::Ll),
            Some("ll128") => Ok(Protocol::Ll128),
            Some(other) => Err(format!("protocol = {other:?}: not simple, ll or ll128")),
        }
    }
}
