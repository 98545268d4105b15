//! The log as people read it: a subscriber for `tracing` events, for programs that have none.
//!
//! The library only emits events; it never installs this by itself. The command line calls
//! [`install`], and libnccl.so.2 [`install_as`]. The target of an event is `ringsmith::SUBSYSTEM`. Warnings and
//! errors are shown whatever the subsystem.

use crate::bootstrap::host;
use crate::config::Config;
use crate::config::grammar::find_name;
use crate::error::{Error, Result};
use crate::files;
use std::fmt;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// The version only.
    Version,
    /// What is likely wrong.
    Warn,
    /// What was decided and why.
    Info,
    /// Every step.
    Trace,
}

impl Level {
    /// Reads a level; case does not matter.
    pub fn parse(text: &str) -> Result<Self, String> {
        Ok(match find_name(text, &["none", "version", "warn", "info", "debug", "trace"])? {
            "none" => Self::None,
            "version" => Self::Version,
            "warn" => Self::Warn,
            "info" => Self::Info,
            _ => Self::Trace,
        })
    }

    fn admits(self, level: &tracing::Level) -> bool {
        match *level {
            tracing::Level::ERROR | tracing::Level::WARN => self >= Self::Warn,
            tracing::Level::INFO => self >= Self::Info,
            _ => self >= Self::Trace,
        }
    }
}

/// The parts of the runtime that a log can be limited to.
pub const SUBSYSTEMS: &[&str] = &[
    "init",
    "bootstrap",
    "env",
    "coll",
    "p2p",
    "shm",
    "net",
    "graph",
    "tuning",
    "alloc",
    "call",
    "proxy",
    "nvls",
    "reg",
    "profile",
    "ras",
    "jit",
    "all",
];

/// Which parts of the runtime are logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystems {
    listed: Vec<&'static str>,
    excludes: bool,
}

impl Default for Subsystems {
    fn default() -> Self {
        Self { listed: vec!["init", "bootstrap", "env", "jit"], excludes: false }
    }
}

impl Subsystems {
    /// Reads a list; `^` at its start logs all but these.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (excludes, list) = match text.strip_prefix('^') {
            Some(list) => (true, list),
            None => (false, text),
        };
        let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
        let listed = items.map(|item| find_name(item, SUBSYSTEMS)).collect::<Result<Vec<_>, _>>()?;
        if listed.is_empty() { Err("the list is empty".into()) } else { Ok(Self { listed, excludes }) }
    }

    /// Whether events of this subsystem are shown.
    pub fn admit(&self, subsystem: &str) -> bool {
        let listed = self.listed.iter().any(|&name| name == "all" || name == subsystem);
        listed != self.excludes
    }
}

/// How lines look.
#[derive(Clone, Copy, Debug)]
pub enum Style {
    /// `host:pid:thread INFO bootstrap: text`
    Ringsmith,
    /// `host:pid:thread [device] NCCL INFO text`, as NCCL's own lines, for tools that read those.
    Nccl {
        /// What the first line says that this is.
        version: &'static str,
        /// The device of the calling thread.
        device: fn() -> i32,
    },
}

/// Makes this process log as the settings say, until it ends.
///
/// Errors: `File` when the log's file cannot be opened; `Argument` when a subscriber is there already.
pub fn install(config: &Config) -> Result<()> {
    install_as(config, Style::Ringsmith)
}

/// The same with lines of another look.
///
/// Errors: as [`install`].
pub fn install_as(config: &Config, style: Style) -> Result<()> {
    let sink: Box<dyn std::io::Write + Send> = match &config.debug_file {
        None => Box::new(std::io::stderr()),
        Some(pattern) => {
            let path = PathBuf::from(expand(pattern, &host::name(), std::process::id()));
            let file = files::to_write(OpenOptions::new().create(true).append(true), &path);
            Box::new(file.map_err(|source| Error::File {
                path,
                detail: format!("cannot open the log: {source}"),
                source: Some(source),
            })?)
        }
    };
    let lines = Lines {
        level: config.debug,
        subsystems: config.debug_subsystems.clone(),
        prefix: format!("{}:{}", host::name(), std::process::id()),
        style,
        sink: Mutex::new(sink),
    };
    if config.debug == Level::Version || config.debug >= Level::Info {
        match style {
            Style::Ringsmith => lines.write(format_args!("ringsmith {}", env!("CARGO_PKG_VERSION"))),
            Style::Nccl { version, device } => {
                lines.write(format_args!("[{}] NCCL INFO {version}", device()));
            }
        }
    }
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(lines)).map_err(|_| {
        Error::Argument {
            operation: "log::install",
            detail: "this program has a subscriber for tracing events already".into(),
        }
    })
}

/// `%h` is the host, `%p` the process, `%%` a percent sign; any other `%` stays as it is.
fn expand(pattern: &str, host: &str, pid: u32) -> String {
    let mut expanded = String::new();
    let mut rest = pattern;
    while let Some(at) = rest.find('%') {
        expanded += &rest[..at];
        let (replacement, length) = match rest.as_bytes().get(at + 1) {
            Some(b'h') => (host.to_owned(), 2),
            Some(b'p') => (pid.to_string(), 2),
            Some(b'%') => ("%".to_owned(), 2),
            _ => ("%".to_owned(), 1),
        };
        expanded += &replacement;
        rest = &rest[at + length..];
    }
    expanded + rest
}

struct Lines {
    level: Level,
    subsystems: Subsystems,
    prefix: String,
    style: Style,
    sink: Mutex<Box<dyn std::io::Write + Send>>,
}

impl Lines {
    fn admits(&self, metadata: &Metadata<'_>) -> bool {
        let Some(subsystem) = metadata.target().strip_prefix("ringsmith::") else { return false };
        let part = subsystem.split("::").next().unwrap_or(subsystem);
        let always = *metadata.level() <= tracing::Level::WARN;
        self.level.admits(metadata.level()) && (always || self.subsystems.admit(part))
    }

    fn write(&self, text: fmt::Arguments<'_>) {
        let line = format!("{}:{} {text}\n", self.prefix, rustix::thread::gettid().as_raw_nonzero());
        let mut sink = self.sink.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // A log that cannot be written has nowhere to say so, and must not stop the job.
        let _ = sink.write_all(line.as_bytes());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.admits(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let metadata = event.metadata();
        let subsystem = metadata.target().trim_start_matches("ringsmith::");
        let Text { message, fields } = text;
        match self.style {
            Style::Ringsmith => {
                self.write(format_args!("{} {subsystem}: {message}{fields}", metadata.level()));
            }
            Style::Nccl { device, .. } => {
                let level = nccl_level(metadata.level());
                self.write(format_args!("[{}] NCCL {level} {message}{fields}", device()));
            }
        }
    }
}

/// What NCCL calls a level; it has no word for errors.
fn nccl_level(level: &tracing::Level) -> &'static str {
    match *level {
        tracing::Level::ERROR | tracing::Level::WARN => "WARN",
        tracing::Level::INFO => "INFO",
        tracing::Level::DEBUG | tracing::Level::TRACE => "TRACE",
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        } else {
            self.fields += &format!(" {}={value:?}", field.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_filled_in() {
        assert_eq!(expand("/tmp/log.%h.%p", "node1", 12), "/tmp/log.node1.12");
        assert_eq!(expand("100%%.%x%", "h", 1), "100%.%x%");
    }

    #[test]
    fn subsystems_are_chosen() {
        let default = Subsystems::default();
        assert!(default.admit("init") && !default.admit("net"));
        let without = Subsystems::parse("^net,PROXY").expect("a list");
        assert!(without.admit("init") && !without.admit("proxy"));
        assert!(Subsystems::parse("ALL").expect("a list").admit("anything"));
        assert!(Subsystems::parse("nets").expect_err("unknown").contains("did you mean \"net\""));
        assert!(Subsystems::parse("^").is_err());
    }

    #[test]
    fn levels_are_ordered() {
        assert_eq!(Level::parse("INFO"), Ok(Level::Info));
        assert!(Level::Info.admits(&tracing::Level::WARN) && !Level::Info.admits(&tracing::Level::DEBUG));
        assert!(!Level::Version.admits(&tracing::Level::WARN));
        assert!(Level::parse("loud").is_err());
    }
}
