//! Values of flags: sizes, ranges of ranks, settings, names. Text in, checked value or a reason out.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use ringsmith_ir::expand::MAX_RANKS;
use ringsmith_ir::types::{Collective, DataType, ReduceOp};
use ringsmith_runtime::config::grammar;
use ringsmith_runtime::shown::short;
use std::ffi::OsStr;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Reads a size in bytes, as settings have it: `8`, `64K`, `1M`, `1G`, in powers of two.
pub(crate) fn size(text: &str) -> Result<u64, &'static str> {
    let expected = "expected a size in bytes, such as 8, 64K, 1M or 1G, below 2^64";
    // A sign would pass for a number.
    if text.starts_with('+') { Err(expected) } else { grammar::bytes(text).map_err(|_| expected) }
}

/// Reads a whole number within bounds.
pub(crate) fn whole<T: TryFrom<u64>>(least: T, most: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    u64: From<T>,
{
    let (least, most) = (u64::from(least), u64::from(most));
    move |text| {
        let number = text.parse().ok().filter(|n| (least..=most).contains(n) && !text.starts_with('+'));
        number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| match most {
            u64::MAX => format!("expected a whole number from {least} on, below 2^64"),
            most => format!("expected a whole number from {least} to {most}"),
        })
    }
}

/// Reads a rank or `all`.
pub(crate) fn root(text: &str) -> Result<OneOrAll<u32>, &'static str> {
    text.parse().map_err(|_| "expected a rank, a whole number from 0, or `all`")
}

/// A size as [`size`] reads it, in the largest unit that divides it.
pub(crate) fn print_size(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let fits = |&&(shift, _): &&(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= shift;
    match units.iter().find(fits) {
        Some(&(shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Numbers of ranks: one, or every one from `first` to `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranks {
    /// The smallest.
    pub(crate) first: u32,
    /// The largest.
    pub(crate) last: u32,
}

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |text: &str| match text.parse::<u32>() {
            Ok(n) if (1..=MAX_RANKS).contains(&n) => Ok(n),
            _ => Err(format!(
                "expected a number from 1 to {MAX_RANKS}, or two with `..` between, both included"
            )),
        };
        let Some((first, last)) = text.split_once("..") else {
            return one(text).map(|n| Self { first: n, last: n });
        };
        let ranks = Self { first: one(first)?, last: one(last.strip_prefix('=').unwrap_or(last))? };
        if ranks.first > ranks.last { Err("the range is empty".to_owned()) } else { Ok(ranks) }
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}..{}", self.first, self.last)
        }
    }
}

/// Reads `name=value` for a parameter of a program.
pub(crate) fn setting(text: &str) -> Result<(String, i64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=NUMBER")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{:?} is not the name of a parameter", short(name)));
    }
    let value = value.parse().map_err(|_| format!("{:?} is not a whole number of 64 bits", short(value)))?;
    Ok((name.to_owned(), value))
}

impl<T: fmt::Display> fmt::Display for OneOrAll<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(value) => value.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// One value, or every possible one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OneOrAll<T> {
    /// Only this.
    One(T),
    /// Each in turn.
    All,
}

impl<T: FromStr> FromStr for OneOrAll<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text == "all" { Ok(Self::All) } else { text.parse().map(Self::One) }
    }
}

/// What is meant by `-r` or `--root`: which rank is the collective's root, or where the ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The root of a rooted collective.
    Rank(OneOrAll<u32>),
    /// `HOST:PORT` of the rendezvous.
    Address(String),
}

impl FromStr for Root {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            return Ok(Self::Address(text.to_owned()));
        }
        text.parse().map(Self::Rank).map_err(|_| {
            "expected a rank, a whole number from 0, or `all`, or the HOST:PORT where ranks meet".to_owned()
        })
    }
}

/// A kind of name that a flag can take: what spellings there are, for help and completion.
pub(crate) trait Names: FromStr + Clone + Send + Sync + 'static {
    /// Every canonical spelling.
    fn names() -> Vec<&'static str>;
}

impl Names for Collective {
    fn names() -> Vec<&'static str> {
        Self::ALL.into_iter().map(Self::name).collect()
    }
}

impl Names for DataType {
    fn names() -> Vec<&'static str> {
        Self::ALL.into_iter().map(Self::name).collect()
    }
}

impl Names for ReduceOp {
    fn names() -> Vec<&'static str> {
        Self::ALL.into_iter().map(Self::name).collect()
    }
}

impl<T: Names> Names for OneOrAll<T> {
    fn names() -> Vec<&'static str> {
        T::names().into_iter().chain(["all"]).collect()
    }
}

/// Reads a name, synonyms included; lists the canonical ones in help and completions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameParser<T>(PhantomData<T>);

/// The parser of names of one kind.
pub(crate) fn name<T: Names>() -> NameParser<T> {
    NameParser(PhantomData)
}

impl<T: Names> TypedValueParser for NameParser<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        if let Some(parsed) = value.to_str().and_then(|text| text.parse().ok()) {
            return Ok(parsed);
        }
        let value = value.to_string_lossy().into_owned();
        let argument = argument.map_or_else(|| "...".to_owned(), ToString::to_string);
        let mut error = clap::Error::new(ErrorKind::InvalidValue).with_cmd(command);
        let names: Vec<String> = T::names().into_iter().map(str::to_owned).collect();
        error.insert(ContextKind::InvalidArg, ContextValue::String(argument));
        error.insert(ContextKind::InvalidValue, ContextValue::String(value));
        error.insert(ContextKind::ValidValue, ContextValue::Strings(names));
        Err(error)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(T::names().into_iter().map(PossibleValue::new)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("8", 8), ("64K", 65536), ("1M", 1 << 20), ("3g", 3 << 30)] {
            assert_eq!(size(text), Ok(bytes));
        }
        for bytes in [0, 1, 8, 1 << 10, 3 << 19, 5 << 30] {
            assert_eq!(size(&print_size(bytes)), Ok(bytes));
        }
        assert_eq!(print_size(64 << 20), "64M");
        for text in
            ["", "K", "-1", "+1", "1.5M", "1KB", "1 K", "8T", "99999999999G", "99999999999999999999", "1e9"]
        {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_include_both_ends() {
        assert_eq!("4".parse(), Ok(Ranks { first: 4, last: 4 }));
        assert_eq!("2..16".parse(), Ok(Ranks { first: 2, last: 16 }));
        assert_eq!("2..=16".parse(), Ok(Ranks { first: 2, last: 16 }));
        for text in ["", "0", "-1", "..", "2..", "..4", "5..4", "1..65537", "x", "1...3", "0..4"] {
            assert!(text.parse::<Ranks>().is_err(), "{text}");
        }
    }

    #[test]
    fn settings_are_a_name_and_a_number() {
        assert_eq!(setting("per_node=4"), Ok(("per_node".to_owned(), 4)));
        assert_eq!(setting("k=-9223372036854775808"), Ok(("k".to_owned(), i64::MIN)));
        for text in ["", "k", "=1", "k=", "k=x", "k=1.0", "a b=1", "k=9223372036854775808", "k==1"] {
            assert!(setting(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_root_is_a_rank_or_an_address() {
        assert_eq!("3".parse(), Ok(Root::Rank(OneOrAll::One(3))));
        assert_eq!("all".parse(), Ok(Root::Rank(OneOrAll::All)));
        assert_eq!("node0:4000".parse(), Ok(Root::Address("node0:4000".to_owned())));
        for text in ["", "-1", "4294967296", "node0", "ALL"] {
            assert!(text.parse::<Root>().is_err(), "{text}");
        }
    }
}
