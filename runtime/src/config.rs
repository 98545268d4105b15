//! Settings, read once at the door: the environment and a file become a [`Config`], which is passed
//! down. Nothing past this point reads a variable.
//!
//! `RINGSMITH_X` wins over NCCL's name for the same setting, variables win over files. A value that
//! cannot be read is an error, all of them reported at once; a name that nobody knows is a warning
//! with the nearest name that somebody does. The rows are in [`table`], docs/settings.md lists them.

pub mod grammar;
pub mod selection;
pub mod table;
pub mod tuning;

use crate::files;
use crate::log::{Level, Subsystems};
use crate::shown::shown;
use crate::unique_id::UniqueId;
use grammar::{HostPort, InterfaceFilter, NameFilter, PortRange, Secret};
use ringsmith_compiler::plan::{Machine, Tuning};
use std::collections::BTreeSet;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use table::{FOREIGN, FOREIGN_PREFIXES, Read, SETTINGS, Setting};

const OUR_PREFIX: &str = "RINGSMITH_";
const NCCL_PREFIX: &str = "NCCL_";
/// Settings whose values no message shows.
const SECRETS: [&str; 2] = ["JOB_SECRET", "ID"];

/// A network between hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// TCP sockets.
    Socket,
    /// InfiniBand or RoCE verbs.
    Ib,
}

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Host memory.
    Cpu,
    /// GPUs.
    Cuda,
}

/// All settings, with their defaults filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// How long initialisation waits for the other ranks.
    pub init_timeout: Duration,
    /// How long a collective waits for a peer before it fails; `None`: for ever.
    pub timeout: Option<Duration>,
    /// After how long a waiting collective says whom it waits for.
    pub stall: Duration,
    /// Where the root listens, for ranks that share no id.
    pub comm_id: Option<HostPort>,
    /// A secret of the job, mixed into the handshake.
    pub job_secret: Option<Secret>,
    /// The id of the job, given as text.
    pub id: Option<UniqueId>,
    /// Interfaces to use.
    pub interfaces: InterfaceFilter,
    /// Ports that listeners may take; `None`: any.
    pub port_range: Option<PortRange>,
    /// Where ranks of one host find each other; `None`: a folder of the user's in /tmp.
    pub run_dir: Option<PathBuf>,
    /// The host to pretend to be on.
    pub host_id: Option<String>,
    /// Whether ranks of one host may share memory.
    pub shm: bool,
    /// The network between hosts; `None`: the best that all ranks have.
    pub net: Option<Net>,
    /// Connections between two ranks that use sockets.
    pub socket_connections: u32,
    /// Slots of a FIFO.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Algorithms to choose among; `None`: all.
    pub algorithms: Option<NameFilter>,
    /// Protocols to choose among; `None`: all.
    pub protocols: Option<NameFilter>,
    /// Fewest channels of a plan.
    pub min_channels: Option<u32>,
    /// Most channels of a plan.
    pub max_channels: Option<u32>,
    /// The fewest channels under NCCL's other name for them.
    pub min_ctas: Option<u32>,
    /// The most channels under NCCL's other name for them.
    pub max_ctas: Option<u32>,
    /// What programs that speak NCCL's interface work on.
    pub device: DeviceKind,
    /// Whether the buffers of every call are checked.
    pub check_pointers: bool,
    /// Whether several ranks may be on one GPU.
    pub multi_rank_gpu: bool,
    /// How much is logged.
    pub debug: Level,
    /// What is logged.
    pub debug_subsystems: Subsystems,
    /// Where the log goes, with `%h` and `%p` still in it; `None`: standard error.
    pub debug_file: Option<String>,
    /// The folder of CUDA's run-time compiler; `None`: searched for.
    pub nvrtc: Option<PathBuf>,
    /// A bundle of compiled kernels; `None`: there is none.
    pub bundle: Option<PathBuf>,
    /// Where compiled kernels are kept; `None`: `ringsmith` in the user's folder of caches.
    pub cache_dir: Option<PathBuf>,
    /// What machines like this were measured to cost.
    pub tuning: Option<Arc<Tuning>>,
    /// The user's folder of caches, as `XDG_CACHE_HOME` or `HOME` gives it.
    pub user_cache: Option<PathBuf>,
    /// CUDA toolkits, as `CUDA_HOME` and `CUDA_PATH` name them.
    pub cuda_toolkits: Vec<PathBuf>,
    /// Bytes of all slots of a FIFO, as NCCL has it, until the slots are known.
    fifo_bytes: Option<u64>,
    /// The names of the settings that were given. Not their values: some are secrets.
    set: BTreeSet<&'static str>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            init_timeout: Duration::from_secs(120),
            timeout: None,
            stall: Duration::from_secs(30),
            comm_id: None,
            job_secret: None,
            id: None,
            interfaces: InterfaceFilter::All,
            port_range: None,
            run_dir: None,
            host_id: None,
            shm: true,
            net: None,
            socket_connections: 2,
            slots: 8,
            slot_bytes: 64 << 10,
            algorithms: None,
            protocols: None,
            min_channels: None,
            max_channels: None,
            min_ctas: None,
            max_ctas: None,
            device: DeviceKind::Cuda,
            check_pointers: false,
            multi_rank_gpu: false,
            debug: Level::Warn,
            debug_subsystems: Subsystems::default(),
            debug_file: None,
            nvrtc: None,
            bundle: None,
            cache_dir: None,
            tuning: None,
            user_cache: None,
            cuda_toolkits: Vec::new(),
            fifo_bytes: None,
            set: BTreeSet::new(),
        }
    }
}

/// One value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The variable, as it was written; empty for a line of a file that names none.
    pub name: String,
    /// Where it was written: the environment, or a file and line.
    pub place: Place,
    /// Its value; empty for secrets.
    pub value: String,
    /// What is wrong and what is accepted.
    pub detail: String,
}

/// Where a setting was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The environment.
    Environment,
    /// A line of a file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => f.write_str("environment"),
            Self::File { path, line } => write!(f, "{}:{line}", shown(&path.to_string_lossy())),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, place, value, detail } = self;
        let equals = if name.is_empty() { "" } else { "=" };
        // A line without a name is quoted as a whole, and a setting without a value is not set.
        let value = if value.is_empty() { "(hidden)".into() } else { shown(value) };
        write!(f, "{}{equals}{value} ({place}): {detail}", shown(name))
    }
}

/// Every value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The values: those of the environment, then those of files in the order of their lines. Never empty.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings that cannot be used:")?;
        for mistake in &self.mistakes {
            write!(f, "\n  {mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Something about the settings that is worth saying and stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Nobody knows this name.
    Unknown {
        /// The name.
        name: String,
        /// Where it was written.
        place: Place,
        /// The nearest name that is known.
        suggestion: Option<String>,
    },
    /// Understood, and without effect here.
    NoEffect {
        /// The name.
        name: String,
    },
    /// Two names of one setting have different values.
    Overridden {
        /// The name that lost.
        name: String,
        /// The name that won.
        by: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, place, suggestion } => {
                write!(f, "{} ({place}) is not a setting of Ringsmith and is ignored", shown(name))?;
                match suggestion {
                    Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
                    None => Ok(()),
                }
            }
            Self::NoEffect { name } => write!(f, "{name} has no effect on the CPU device"),
            Self::Overridden { name, by } => write!(f, "{name} is ignored: {by} is set to something else"),
        }
    }
}

/// A setting as it was written somewhere.
struct Written {
    name: String,
    value: String,
    place: Place,
}

impl Config {
    /// Reads the environment of this process and the files it names.
    ///
    /// Errors: every value that cannot be used.
    pub fn from_env() -> Result<(Self, Vec<Warning>), ConfigError> {
        // A name or value that is no Unicode cannot be one of ours; its readable part says so.
        let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        Self::from_vars(std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value))))
    }

    /// Reads the given variables and the files they name.
    ///
    /// Errors: every value that cannot be used.
    pub fn from_vars(
        vars: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(Self, Vec<Warning>), ConfigError> {
        let known_prefix = |name: &str| name.starts_with(OUR_PREFIX) || name.starts_with(NCCL_PREFIX);
        let mut config = Self::default();
        let vars: Vec<(String, String)> = vars.into_iter().collect();
        config.read_places(|name| vars.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim()));
        let mut written: Vec<Written> = vars
            .into_iter()
            .filter(|(name, _)| known_prefix(name))
            .map(|(name, value)| Written { name, value: value.trim().to_owned(), place: Place::Environment })
            .collect();
        // One order, whatever the order of the environment.
        written.sort_by(|a, b| a.name.cmp(&b.name));
        let mut mistakes = Vec::new();
        let files: Vec<_> = ["RINGSMITH_CONF_FILE", "NCCL_CONF_FILE"]
            .iter()
            .filter_map(|name| written.iter().find(|w| w.name == *name && !w.value.is_empty()))
            .map(|w| (w.name.clone(), PathBuf::from(&w.value)))
            .collect();
        for (name, path) in &files {
            match read_file(path) {
                Ok(text) => written.extend(settings_of(path, &text, &mut mistakes)),
                Err(detail) => {
                    let value = path.display().to_string();
                    let name = name.clone();
                    mistakes.push(Mistake { name, place: Place::Environment, value, detail });
                }
            }
        }
        let mut warnings = unknown_names(&written);
        for setting in SETTINGS {
            config.read(setting, &written, &mut mistakes, &mut warnings);
        }
        config.relate(&written, &mut mistakes);
        // As somebody mends them.
        mistakes.sort_by_key(|mistake| match &mistake.place {
            Place::Environment => (0, 0),
            Place::File { path, line } => {
                (1 + files.iter().take_while(|(_, file)| file != path).count(), *line)
            }
        });
        if mistakes.is_empty() { Ok((config, warnings)) } else { Err(ConfigError { mistakes }) }
    }

    fn read(
        &mut self,
        setting: &'static Setting,
        written: &[Written],
        mistakes: &mut Vec<Mistake>,
        warnings: &mut Vec<Warning>,
    ) {
        let own_name = format!("{OUR_PREFIX}{}", setting.name);
        let (own, theirs) = given(setting, written);
        let Some(used) = used(own, theirs) else { return };
        for other in [own, theirs]
            .into_iter()
            .flatten()
            .filter(|other| other.name != used.name && other.value != used.value)
        {
            warnings.push(Warning::Overridden { name: other.name.clone(), by: used.name.clone() });
        }
        let outcome = match setting.read {
            Read::Apply(apply) => apply(self, &used.value),
            Read::ApplyWithNccl(apply, apply_nccl) => {
                if used.name == own_name {
                    apply(self, &used.value)
                } else {
                    apply_nccl(self, &used.value)
                }
            }
            Read::Elsewhere => Ok(()),
            Read::NoEffect(check) => {
                let checked = check(&used.value);
                if checked.is_ok() {
                    warnings.push(Warning::NoEffect { name: used.name.clone() });
                }
                checked
            }
        };
        match outcome {
            Ok(()) => {
                self.set.insert(setting.name);
            }
            Err(detail) => {
                let is_secret = SECRETS.contains(&setting.name);
                let value = if is_secret { String::new() } else { used.value.clone() };
                mistakes.push(Mistake { name: used.name.clone(), place: used.place.clone(), value, detail });
            }
        }
    }

    /// Reads the variables of other programs that say where things lie. A path that is not absolute says
    /// nothing.
    fn read_places<'a>(&mut self, value: impl Fn(&str) -> Option<&'a str>) {
        let place = |name| value(name).map(PathBuf::from).filter(|path| path.is_absolute());
        self.user_cache = place("XDG_CACHE_HOME").or_else(|| Some(place("HOME")?.join(".cache")));
        self.cuda_toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(place).collect();
    }

    /// Checks what depends on several settings.
    fn relate(&mut self, written: &[Written], mistakes: &mut Vec<Mistake>) {
        let mut mistake = |name: &str, detail: String| {
            let setting = SETTINGS.iter().find(|s| s.name == name);
            if let Some(used) = setting.and_then(|setting| {
                let (own, theirs) = given(setting, written);
                used(own, theirs)
            }) {
                mistakes.push(Mistake {
                    name: used.name.clone(),
                    place: used.place.clone(),
                    value: used.value.clone(),
                    detail,
                });
            }
        };
        let (_, most) = self.channels();
        for (name, least) in [("MIN_CHANNELS", self.min_channels), ("MIN_CTAS", self.min_ctas)] {
            if let (Some(least), Some(most)) = (least, most)
                && least > most
            {
                mistake(name, format!("above the most channels, {most}"));
            }
        }
        if let Some(total) = self.fifo_bytes.take() {
            let slots = self.slots as u64;
            let slot = total / slots;
            if total.is_multiple_of(slots) && slot.is_multiple_of(128) && (1024..=64 << 20).contains(&slot) {
                self.slot_bytes = slot as u32;
            } else {
                mistake(
                    "SLOT_BYTES",
                    format!(
                        "must be a multiple of {} ({slots} slots of a multiple of 128 bytes), from {} to {}",
                        slots * 128,
                        slots << 10,
                        slots * (64 << 20)
                    ),
                );
            }
        }
    }

    /// The fewest and the most channels of a plan, where they are limited: on GPUs the thread blocks of a launch, which
    /// is why NCCL calls them CTAs too. Of two limits the narrower counts, and the most before the fewest.
    pub fn channels(&self) -> (Option<u32>, Option<u32>) {
        let most = [self.max_channels, self.max_ctas].into_iter().flatten().min();
        let least = self.min_channels.max(self.min_ctas);
        (least.map(|least| least.min(most.unwrap_or(least))), most)
    }

    /// Whether a setting was given, by its name without prefix.
    pub fn is_set(&self, name: &str) -> bool {
        self.set.contains(name)
    }

    /// A machine with what it was measured to cost.
    pub(crate) fn tuned(&self, machine: Machine) -> Machine {
        match &self.tuning {
            Some(tuning) => tuning.applied_to(machine),
            None => machine,
        }
    }

    /// What every rank must have set to the same: name and value, defaults included.
    pub fn agreement(&self) -> Vec<(&'static str, String)> {
        let text = |filter: &Option<NameFilter>| filter.as_ref().map_or("all".into(), ToString::to_string);
        let count = |value: Option<u32>| value.map_or("default".into(), |n| n.to_string());
        SETTINGS
            .iter()
            .filter(|setting| setting.agree)
            .map(|setting| {
                let value = match setting.name {
                    "NET" => self.net.map_or("default".into(), |net| format!("{net:?}").to_lowercase()),
                    "TUNING" => self.tuning.as_ref().map_or("none".into(), |tuning| tuning.to_string()),
                    "SOCKET_NCONNS" => self.socket_connections.to_string(),
                    "SLOTS" => self.slots.to_string(),
                    "SLOT_BYTES" => self.slot_bytes.to_string(),
                    "ALGO" => text(&self.algorithms),
                    "PROTO" => text(&self.protocols),
                    "MIN_CHANNELS" => count(self.min_channels),
                    "MAX_CHANNELS" => count(self.max_channels),
                    "MIN_CTAS" => count(self.min_ctas),
                    "MAX_CTAS" => count(self.max_ctas),
                    name => unreachable!("{name} is marked for agreement and has no value here"),
                };
                (setting.name, value)
            })
            .collect()
    }

    /// The rows of docs/settings.md.
    pub fn markdown_table() -> String {
        let mut table = String::from(
            "| setting | NCCL's name | accepts | default | same on all ranks | does |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for setting in SETTINGS {
            let nccl = setting.nccl.map(|name| format!("`{name}`")).unwrap_or_default();
            let agree = if setting.agree { "yes" } else { "" };
            let effect =
                if matches!(setting.read, Read::NoEffect(_)) { " (no effect on the CPU device)" } else { "" };
            table += &format!(
                "| `{OUR_PREFIX}{}` | {nccl} | {} | {} | {agree} | {}{effect} |\n",
                setting.name, setting.accepts, setting.default, setting.does
            );
        }
        table
    }
}

/// Where a setting is given under our name and under NCCL's. The first match wins: the environment stands
/// before the files.
fn given<'a>(setting: &Setting, written: &'a [Written]) -> (Option<&'a Written>, Option<&'a Written>) {
    let find = |name: &str| written.iter().find(|w| w.name == name && !w.value.is_empty());
    (find(&format!("{OUR_PREFIX}{}", setting.name)), setting.nccl.and_then(find))
}

/// The one of the two that counts: ours, but variables before files.
fn used<'a>(own: Option<&'a Written>, theirs: Option<&'a Written>) -> Option<&'a Written> {
    let from_environment = |w: &&Written| w.place == Place::Environment;
    own.filter(from_environment).or(theirs.filter(from_environment)).or(own).or(theirs)
}

fn unknown_names(written: &[Written]) -> Vec<Warning> {
    let ours = SETTINGS.iter().map(|s| format!("{OUR_PREFIX}{}", s.name));
    let theirs = SETTINGS.iter().filter_map(|s| s.nccl.map(str::to_owned));
    let known: Vec<String> = ours.chain(theirs).collect();
    let is_known = |name: &str| {
        known.iter().any(|k| k == name)
            || FOREIGN.contains(&name)
            || FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    };
    written
        .iter()
        .filter(|w| !is_known(&w.name))
        .map(|w| Warning::Unknown {
            name: w.name.clone(),
            place: w.place.clone(),
            suggestion: like(&w.name, &known)
                .or_else(|| grammar::built_upon(&w.name, known.iter().map(String::as_str)))
                .map(str::to_owned),
        })
        .collect()
}

/// The known name that is spelled most like this one. A prefix that they share says nothing about how alike they are.
fn like<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let prefix = [OUR_PREFIX, NCCL_PREFIX].into_iter().find(|prefix| name.starts_with(prefix));
    let Some(prefix) = prefix else { return grammar::nearest(name, known.iter().map(String::as_str)) };
    let rest = |name: &'a String| name.strip_prefix(prefix);
    let found = grammar::nearest(name.strip_prefix(prefix)?, known.iter().filter_map(rest))?;
    known.iter().find(|name| name.strip_prefix(prefix) == Some(found)).map(String::as_str)
}

/// Reads a file of settings. The error says what is wrong with the whole of it.
fn read_file(path: &Path) -> Result<String, String> {
    // Far beyond any real file; a device or a log given by mistake ends here.
    const MAX_BYTES: u64 = 1 << 20;
    let mut text = String::new();
    let file = files::to_read_again(path).map_err(|e| format!("cannot be opened: {e}"))?;
    let read =
        file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|e| format!("cannot be read: {e}"))?;
    if read as u64 > MAX_BYTES { Err(format!("is longer than {MAX_BYTES} bytes")) } else { Ok(text) }
}

/// The `NAME=value` lines of a file. `#` starts a comment line; other lines are mistakes, of which the
/// first are told: a file that holds something else has nothing but such lines.
fn settings_of(path: &Path, text: &str, mistakes: &mut Vec<Mistake>) -> Vec<Written> {
    const MOST_TOLD: usize = 10;
    let (mut written, mut wrong) = (Vec::new(), 0);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = Place::File { path: path.to_owned(), line: index + 1 };
        if let Some((name, value)) = line.split_once('=').filter(|(name, _)| !name.trim().is_empty()) {
            written.push(Written { name: name.trim().to_owned(), value: value.trim().to_owned(), place });
            continue;
        }
        wrong += 1;
        if wrong <= MOST_TOLD {
            let detail = "expected NAME=value, or a comment that begins with #".to_owned();
            let is_secret = SECRETS.iter().any(|name| line.contains(&format!("{OUR_PREFIX}{name}")));
            let value = if is_secret { String::new() } else { line.to_owned() };
            mistakes.push(Mistake { name: String::new(), place, value, detail });
        }
    }
    written
}
