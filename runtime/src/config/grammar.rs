//! The grammars of single settings: interface lists, port ranges, algorithm filters, addresses.
//!
//! Pure text to value, called by the table only. An error here says what is accepted; the caller
//! adds the variable's name and the value. Nothing here looks at the machine: whether an interface
//! exists is found out when it is needed.

use crate::shown::short;
use std::fmt;
use std::num::NonZeroU16;
use std::time::Duration;

/// Which network interfaces may be used. Written `eth`, `=eth0,eth1`, `^docker,br-`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum InterfaceFilter {
    /// All, ordinary ones first, virtual ones and loopback last.
    #[default]
    All,
    /// Only these, in this order.
    Only(InterfaceNames),
    /// All but these; virtual ones and loopback are still last.
    Except(InterfaceNames),
}

/// A list of interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceNames {
    /// The names, or their beginnings. Never empty.
    pub names: Vec<String>,
    /// Whether whole names must match. Written as `=` at the start of the list.
    pub exact: bool,
}

impl InterfaceNames {
    /// The place in the list of the first entry that means this interface.
    pub fn position(&self, interface: &str) -> Option<usize> {
        self.names
            .iter()
            .position(|name| if self.exact { interface == name } else { interface.starts_with(name) })
    }
}

impl InterfaceFilter {
    /// Reads a list. `^` at its start excludes, `=` at its start asks for whole names.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (excludes, list) = match text.strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, text),
        };
        let exact = list.starts_with('=');
        let mut names = Vec::new();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let name = item.strip_prefix('=').filter(|_| exact).unwrap_or(item);
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-@".contains(&b);
            if name.is_empty() || name.len() > 15 || !name.bytes().all(plain) {
                let place = if name.starts_with(['^', '=']) {
                    "; ^ and = stand at the start of the list"
                } else {
                    ""
                };
                return Err(format!(
                    "{:?} is no interface name (at most 15 letters, digits and ._-@){place}",
                    short(item)
                ));
            }
            names.push(name.to_owned());
        }
        if names.is_empty() {
            return Err("the list is empty".into());
        }
        let names = InterfaceNames { names, exact };
        Ok(if excludes { Self::Except(names) } else { Self::Only(names) })
    }
}

impl fmt::Display for InterfaceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mark, list) = match self {
            Self::All => return Ok(()),
            Self::Only(list) => ("", list),
            Self::Except(list) => ("^", list),
        };
        let exact = if list.exact { "=" } else { "" };
        write!(f, "{mark}{exact}{}", list.names.join(","))
    }
}

/// Ports that listeners may take, first to last. Written `50000-50100` or `50000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    /// The lowest port.
    pub first: NonZeroU16,
    /// The highest port.
    pub last: NonZeroU16,
}

impl PortRange {
    /// Reads a range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = Self { first: port_number(first.trim())?, last: port_number(last.trim())? };
        if range.first > range.last {
            return Err("the first port is above the last".into());
        }
        Ok(range)
    }

    /// Its ports, in order.
    pub fn ports(self) -> impl Iterator<Item = u16> {
        self.first.get()..=self.last.get()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// A host and port as people write them: `node1:4000`, `10.0.0.1:4000`, `[fd00::1]:4000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name or an address, without brackets.
    pub host: String,
    /// The port.
    pub port: NonZeroU16,
}

impl HostPort {
    /// Reads a host and port.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("the port is missing; expected HOST:PORT")?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or("a bracket is not closed")?,
            None if host.contains(':') => return Err("an IPv6 address must stand in brackets".into()),
            None => host,
        };
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-:%".contains(&b);
        if host.is_empty() || host.len() > 253 || !host.bytes().all(plain) {
            return Err(format!("{:?} is neither a host name nor an address", short(host)));
        }
        Ok(Self { host: host.to_owned(), port: port_number(port)? })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A value that is used and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a value.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Which algorithms (or protocols) may be chosen, in NCCL's grammar:
/// `ring;allreduce:tree,^oneshot` allows the ring, for all_reduce the tree and not one-shot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFilter {
    sections: Vec<Section>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    /// `None`: every collective without a section of its own.
    collective: Option<&'static str>,
    /// Empty: everything that is not in `except`.
    only: Vec<&'static str>,
    except: Vec<&'static str>,
}

impl NameFilter {
    /// Reads a filter. Sections are parted by `;`, each an optional collective with a colon and a
    /// list; `^` excludes one name, at the start of a list all of it. Case and underscores do not
    /// matter.
    pub fn parse(text: &str, known: &[&'static str], collectives: &[&'static str]) -> Result<Self, String> {
        let mut sections: Vec<Section> = Vec::new();
        if text.trim().is_empty() {
            return Err("the list is empty".into());
        }
        for (index, part) in text.split(';').map(str::trim).enumerate() {
            if part.is_empty() {
                let number = index + 1;
                return Err(format!("part {number} between the semicolons of {:?} is empty", short(text)));
            }
            let (collective, list) = match part.split_once(':') {
                Some((name, list)) => (Some(find_name(name, collectives)?), list),
                None => (None, part),
            };
            if sections.iter().any(|section| section.collective == collective) {
                return Err(match collective {
                    Some(name) => format!("{name} has two lists"),
                    None => "two lists stand for all collectives".into(),
                });
            }
            let excludes_all = list.trim_start().starts_with('^');
            let mut section = Section { collective, only: Vec::new(), except: Vec::new() };
            for (index, item) in list.split(',').map(str::trim).enumerate() {
                if matches!(item, "" | "^") {
                    return Err(format!("name {} of {:?} is empty", index + 1, short(part)));
                }
                match item.strip_prefix('^') {
                    Some(name) => section.except.push(find_name(name, known)?),
                    None if excludes_all => section.except.push(find_name(item, known)?),
                    None => section.only.push(find_name(item, known)?),
                }
            }
            sections.push(section);
        }
        Ok(Self { sections })
    }

    /// Whether the general list decides for `collective` and lists only names other than `names`: it was
    /// written with other collectives in mind.
    pub fn names_others(&self, collective: &str, names: &[&str]) -> bool {
        let general = self.sections.iter().find(|section| section.collective.is_none());
        let others = |section: &Section| {
            !section.only.is_empty() && section.only.iter().all(|o| names.iter().all(|n| !same_name(o, n)))
        };
        !self.is_about(collective) && general.is_some_and(others)
    }

    /// Whether it has a list for `collective` alone.
    pub fn is_about(&self, collective: &str) -> bool {
        self.sections.iter().any(|section| section.collective.is_some_and(|c| same_name(c, collective)))
    }

    /// Whether `name` may be used for `collective`. A collective's own list replaces the general one.
    pub fn permits(&self, collective: &str, name: &str) -> bool {
        let own =
            self.sections.iter().find(|section| section.collective.is_some_and(|c| same_name(c, collective)));
        let general = || self.sections.iter().find(|section| section.collective.is_none());
        let Some(section) = own.or_else(general) else { return true };
        let listed = |list: &[&str]| list.iter().any(|&listed| same_name(listed, name));
        (section.only.is_empty() || listed(&section.only)) && !listed(&section.except)
    }
}

impl fmt::Display for NameFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, section) in self.sections.iter().enumerate() {
            let semicolon = if index == 0 { "" } else { ";" };
            f.write_str(semicolon)?;
            if let Some(collective) = section.collective {
                write!(f, "{collective}:")?;
            }
            let items = section
                .only
                .iter()
                .map(|name| ("", name))
                .chain(section.except.iter().map(|name| ("^", name)));
            for (index, (mark, name)) in items.enumerate() {
                let comma = if index == 0 { "" } else { "," };
                write!(f, "{comma}{mark}{name}")?;
            }
        }
        Ok(())
    }
}

fn folded(name: &str) -> String {
    name.chars().filter(|&c| c != '_' && c != '-').map(|c| c.to_ascii_lowercase()).collect()
}

fn same_name(a: &str, b: &str) -> bool {
    folded(a) == folded(b)
}

/// The entry of `known` that `text` spells, or an error that suggests one.
pub fn find_name(text: &str, known: &[&'static str]) -> Result<&'static str, String> {
    let text = text.trim();
    if let Some(name) = known.iter().find(|name| same_name(name, text)) {
        return Ok(name);
    }
    let hint = match nearest(&folded(text), known.iter().copied()) {
        Some(name) => format!("did you mean {name:?}? "),
        None => String::new(),
    };
    Err(format!("{:?} is unknown; {hint}known are {}", short(text), known.join(", ")))
}

/// The candidate that is spelled most like `text`, if one is close enough to be what was meant.
pub fn nearest<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Long input is no typing mistake, and the distance costs time quadratic in it.
    const LONGEST: usize = 64;
    if text.len() > LONGEST {
        return None;
    }
    let distance = |candidate: &str| strsim::damerau_levenshtein(text, candidate);
    let (candidate, distance) = candidates.map(|c| (c, distance(c))).min_by_key(|&(_, distance)| distance)?;
    (distance <= 1 + text.len() / 5).then_some(candidate)
}

/// The known name that an unknown one was built upon: the longest whose words, as `_` parts them, all stand in it
/// in their order. `NCCL_PROXY_DEBUG` was built upon `NCCL_DEBUG`.
pub fn built_upon<'a>(text: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // A prefix alone says nothing.
    const FEWEST_WORDS: usize = 2;
    let holds = |candidate: &&str| {
        let mut words = text.split('_');
        candidate.split('_').count() >= FEWEST_WORDS
            && candidate.split('_').all(|wanted| words.any(|word| word == wanted))
    };
    candidates.filter(holds).max_by_key(|candidate| candidate.len())
}

/// Reads a time in seconds, with a fraction if need be.
pub fn seconds(text: &str) -> Result<Duration, String> {
    // A year: beyond it arithmetic on deadlines could overflow, and nobody waits that long.
    const MAX_SECONDS: f64 = 365.0 * 86_400.0;
    match text.parse::<f64>() {
        Ok(seconds) if (0.001..=MAX_SECONDS).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected a number of seconds from 0.001 to a year".into()),
    }
}

/// Reads a number within bounds.
pub fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(format!("expected a whole number from {least} to {most}")),
    }
}

/// Reads the number of a port.
fn port_number(text: &str) -> Result<NonZeroU16, String> {
    let wrong = || format!("{:?} is no port, a whole number from 1 to {}", short(text), u16::MAX);
    // A sign would pass for a number.
    text.parse().ok().filter(|_| !text.starts_with('+')).ok_or_else(wrong)
}

/// Reads a size in bytes: `4096`, `64K`, `4M`, `1G`, powers of two.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || "expected a number of bytes, with K, M or G for powers of two".to_owned();
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 10),
        Some((at, 'm' | 'M')) => (&text[..at], 20),
        Some((at, 'g' | 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let value: u64 = digits.parse().map_err(|_| wrong())?;
    value.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Reads a switch.
pub fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "y" | "yes" | "true" | "on" => Ok(true),
        "0" | "n" | "no" | "false" | "off" => Ok(false),
        _ => Err("expected 0 or 1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_lists() {
        let InterfaceFilter::Only(eth) = InterfaceFilter::parse("eth").expect("a prefix") else {
            panic!("a list without ^ selects")
        };
        assert!(eth.position("eth1") == Some(0) && eth.position("ib0").is_none());
        let InterfaceFilter::Only(list) = InterfaceFilter::parse("=eth0,ib1").expect("a list") else {
            panic!("a list without ^ selects")
        };
        assert!(list.position("ib1") == Some(1) && list.position("eth01").is_none());
        let InterfaceFilter::Except(list) = InterfaceFilter::parse("^docker,br-").expect("a list") else {
            panic!("a list with ^ excludes")
        };
        assert!(list.position("docker0").is_some() && list.position("br-12").is_some());
        for text in ["eth", "=eth0,ib1", "^docker,br-", "^=lo"] {
            assert_eq!(InterfaceFilter::parse(text).expect("a list").to_string(), text);
        }
        for wrong in ["", "^", "=", "eth0;eth1", "a/b", "sixteen_letters_x", "eth0,^lo", "eth0,=ib0"] {
            assert!(InterfaceFilter::parse(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn ports_and_addresses() {
        let range = PortRange::parse("50000-50002").expect("a range");
        assert_eq!(range.ports().collect::<Vec<_>>(), [50000, 50001, 50002]);
        assert_eq!(PortRange::parse("65535").expect("one port").ports().count(), 1);
        for wrong in ["", "-", "0", "5-4", "1-65536", "a-b", "1-2-3"] {
            assert!(PortRange::parse(wrong).is_err(), "{wrong:?} was accepted");
        }
        for text in ["node-1.example:4000", "10.0.0.1:1", "[fd00::1]:65535"] {
            assert_eq!(HostPort::parse(text).expect("an address").to_string(), text);
        }
        for wrong in ["", "node", ":1", "fd00::1:1", "[::1:4", "node:0", "node:x", "a b:1", "node:70000"] {
            assert!(HostPort::parse(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn filters_of_names() {
        const KNOWN: &[&str] = &["ring", "tree", "one_shot"];
        const COLLECTIVES: &[&str] = &["all_reduce", "broadcast"];
        let parse = |text: &str| NameFilter::parse(text, KNOWN, COLLECTIVES);
        let filter = parse("Ring;AllReduce:tree,^ring").expect("NCCL's own example");
        assert!(filter.permits("broadcast", "ring") && !filter.permits("broadcast", "tree"));
        assert!(filter.permits("all_reduce", "tree") && !filter.permits("all_reduce", "ring"));
        assert_eq!(parse(&filter.to_string()), Ok(filter));
        let without = parse("^ring,tree").expect("an exclusion");
        assert!(without.permits("all_reduce", "one_shot"));
        assert!(!without.permits("all_reduce", "tree") && !without.permits("broadcast", "ring"));
        let error = parse("ringg").expect_err("a typing mistake");
        assert!(error.contains("did you mean \"ring\""), "{error}");
        let error = parse("ring;;").expect_err("two empty parts");
        assert!(error.contains("part 2") && error.contains("empty"), "{error}");
        let error = parse("ring,,tree").expect_err("an empty name");
        assert!(error.contains("name 2") && error.contains("empty"), "{error}");
        for wrong in [
            "",
            ";",
            "ring;",
            ",ring",
            "ring,^",
            "^,ring",
            "ring;tree",
            "allgather:ring",
            "all_reduce:",
            "^",
            "ring:tree",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?} was accepted");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("1g"), Ok(1 << 30));
        for wrong in ["", "K", "-1", "1.5M", "99999999999G", "4MB"] {
            assert!(bytes(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "nan", "inf", "1e300", "2 s"] {
            assert!(seconds(wrong).is_err(), "{wrong:?} was accepted");
        }
        assert_eq!(switch("Yes"), Ok(true));
        assert!(switch("2").is_err() && switch("").is_err());
        assert!(number("65", 1, 64).is_err() && number("64", 1, 64).is_ok());
    }
}
