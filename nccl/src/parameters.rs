//! Settings as NCCL's parameter functions show them: what the environment says, by NCCL's names and ours.

use crate::outcome::Failure;
use ringsmith_runtime::config::table::SETTINGS;
use std::ffi::CString;
use std::sync::OnceLock;

/// A setting that can be asked for.
pub(crate) struct Parameter {
    pub(crate) key: CString,
}

/// Every setting but secrets, by its name.
pub(crate) fn all() -> &'static [Parameter] {
    static ALL: OnceLock<Vec<Parameter>> = OnceLock::new();
    ALL.get_or_init(|| {
        let shown = SETTINGS.iter().filter(|s| !matches!(s.name, "JOB_SECRET" | "ID"));
        let names = shown
            .flat_map(|s| s.nccl.map(str::to_owned).into_iter().chain([format!("RINGSMITH_{}", s.name)]));
        names.filter_map(|name| Some(Parameter { key: CString::new(name).ok()? })).collect()
    })
}

/// The setting of a name.
///
/// Errors: nobody knows it.
pub(crate) fn find(key: &str) -> Result<usize, Failure> {
    all().iter().position(|p| p.key.to_str() == Ok(key)).ok_or_else(|| {
        Failure::argument(format!(
            "{key} is no setting; ncclParamGetAllParameterKeys lists those that there are"
        ))
    })
}

/// What a setting is set to; empty where it is not set.
pub(crate) fn value(parameter: &Parameter) -> String {
    let key = parameter.key.to_string_lossy();
    std::env::var_os(key.as_ref()).map_or_else(String::new, |value| value.to_string_lossy().into_owned())
}

/// A setting as a number.
///
/// Errors: it is not set, is no number, or does not fit.
pub(crate) fn number<T: TryFrom<i128>>(parameter: &Parameter) -> Result<T, Failure> {
    let text = value(parameter);
    let key = parameter.key.to_string_lossy();
    let number: i128 = text.trim().parse().map_err(|_| {
        Failure::argument(format!("{key} is {text:?}, which is no number; ncclParamGetStr gives its text"))
    })?;
    T::try_from(number)
        .map_err(|_| Failure::argument(format!("{key} is {number}, which does not fit the type asked for")))
}

/// Tells the log what is set.
pub(crate) fn dump() {
    for parameter in all() {
        let value = value(parameter);
        if !value.is_empty() {
            tracing::info!(target: "ringsmith::env", "{} set by environment to {value}", parameter.key.to_string_lossy());
        }
    }
}
