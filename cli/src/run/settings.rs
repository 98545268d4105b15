//! Settings of a run: the environment, with the flags that stand for settings put over it.

use super::arguments::{RunArguments, Transport};
use crate::outcome::{Failure, Result};
use ringsmith_runtime::config::table::SETTINGS;
use ringsmith_runtime::config::{Config, Warning};
use ringsmith_runtime::shown::shown;

/// A flag that stands for a setting.
struct Override {
    flag: &'static str,
    setting: &'static str,
    /// What the flag says.
    given: String,
    /// What the setting would have to say.
    value: String,
}

impl Override {
    /// What is said of the value, said of what was given: nobody has typed what was put before it.
    fn as_given(&self, detail: &str) -> String {
        let put_before = self.value.strip_suffix(&self.given).unwrap_or_default();
        detail.replace(&format!("\"{put_before}"), "\"")
    }
}

/// Reads the environment and the flags.
///
/// Errors: every value that cannot be used, by the name of its variable or flag.
pub(crate) fn read(arguments: &RunArguments) -> Result<(Config, Vec<Warning>)> {
    let overrides = overrides(arguments);
    if let Some(empty) = overrides.iter().find(|o| o.given.trim().is_empty()) {
        // As a variable, it would be one that is not set.
        return Err(Failure::unusable(format_args!(
            "{} is empty: give it a value, or leave it out",
            empty.flag
        )));
    }
    let lossy = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    let environment = std::env::vars_os().map(|(name, value)| (lossy(name), lossy(value)));
    let kept = environment.filter(|(name, _)| !overrides.iter().any(|o| is_named(o.setting, name)));
    let given = overrides.iter().map(|o| (own_name(o.setting), o.value.clone()));
    Config::from_vars(kept.chain(given)).map_err(|error| {
        let lines = error.mistakes.iter().map(|mistake| {
            match overrides.iter().find(|o| own_name(o.setting) == mistake.name) {
                Some(o) => format!("{} {}: {}", o.flag, shown(&o.given), o.as_given(&mistake.detail)),
                None => mistake.to_string(),
            }
        });
        Failure::unusable(lines.collect::<Vec<_>>().join("\n  "))
    })
}

fn overrides(arguments: &RunArguments) -> Vec<Override> {
    let mut all = Vec::new();
    let mut put = |flag, setting, value: String| {
        all.push(Override { flag, setting, given: value.clone(), value });
    };
    if let Some(algorithms) = &arguments.selection.algo {
        put("--algo", "ALGO", algorithms.clone());
    }
    if let Some(protocols) = &arguments.selection.proto {
        put("--proto", "PROTO", protocols.clone());
    }
    if let Some(channels) = arguments.selection.channels {
        put("--channels", "MIN_CHANNELS", channels.to_string());
        put("--channels", "MAX_CHANNELS", channels.to_string());
    }
    if let Some(seconds) = &arguments.timeout {
        put("--timeout", "TIMEOUT_S", seconds.clone());
    }
    // A list that names no collective is about this one, and not about the barriers between its calls.
    let name = arguments.collective.name();
    let lists = all.iter_mut().filter(|o| matches!(o.flag, "--algo" | "--proto"));
    lists.filter(|o| !o.given.contains([':', ';'])).for_each(|o| o.value = format!("{name}:{}", o.given));
    let mut put = |flag, setting, value: String| {
        all.push(Override { flag, setting, given: value.clone(), value });
    };
    if let Some(folder) = &arguments.bundle {
        put("--bundle", "BUNDLE", folder.to_string_lossy().into_owned());
    }
    match arguments.transport {
        None => (),
        Some(Transport::Shm) => put("--transport", "SHM_DISABLE", "0".to_owned()),
        Some(Transport::Socket) => put("--transport", "SHM_DISABLE", "1".to_owned()),
    }
    all
}

fn own_name(setting: &str) -> String {
    format!("RINGSMITH_{setting}")
}

/// Whether a variable is this setting, under our name or NCCL's.
fn is_named(setting: &str, variable: &str) -> bool {
    let theirs = SETTINGS.iter().find(|s| s.name == setting).and_then(|s| s.nccl);
    variable == own_name(setting) || Some(variable) == theirs
}
