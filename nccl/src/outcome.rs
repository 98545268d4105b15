//! From errors to result codes, in one function, and the last error that keeps the full text.

use crate::abi::Code;
use ringsmith_runtime::error::{Error, ExitStatus};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, PoisonError};

/// A call that failed: what it returns, and what `ncclGetLastError` says.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    /// An argument that is wrong by itself.
    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, text: text.into() }
    }

    /// A call that is wrong here and now.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { code: Code::InvalidUsage, text: text.into() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { code: code(&error), text: error.to_string() }
    }
}

/// The code of an error of the runtime.
fn code(error: &Error) -> Code {
    match error {
        Error::Argument { .. } | Error::Id(_) => Code::InvalidArgument,
        Error::Device { source, .. } if source.is_misuse() => Code::InvalidUsage,
        Error::Device { .. } => Code::UnhandledCudaError,
        Error::Interrupted { .. } | Error::Fault(_) | Error::PeerLeft { .. } | Error::Timeout { .. } => {
            Code::RemoteError
        }
        Error::Refused { .. } | Error::RootSilent { .. } | Error::RootLeft { .. }
            if error.exit_status() == ExitStatus::WorldFailed =>
        {
            Code::RemoteError
        }
        other => match other.exit_status() {
            ExitStatus::WorldFailed => Code::SystemError,
            ExitStatus::No | ExitStatus::Unusable => Code::InvalidUsage,
        },
    }
}

/// The last failure of the process, whichever thread had it.
static LAST: Mutex<String> = Mutex::new(String::new());

thread_local! {
    /// What this thread was told last: valid until it asks again.
    static TOLD: RefCell<CString> = RefCell::new(CString::default());
}

/// Keeps a failure for `ncclGetLastError` and tells the log.
pub(crate) fn keep(function: &str, failure: &Failure) -> Code {
    tracing::warn!(target: "ringsmith::call", "{function}: {}", failure.text);
    *LAST.lock().unwrap_or_else(PoisonError::into_inner) = format!("{function}: {}", failure.text);
    failure.code
}

/// The process's last failure.
pub(crate) fn last() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Text for C, valid until this thread asks again.
pub(crate) fn told(text: &str) -> *const c_char {
    let clean = CString::new(text.replace('\0', "?")).unwrap_or_default();
    TOLD.try_with(|told| {
        *told.borrow_mut() = clean;
        told.borrow().as_ptr()
    })
    .unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringsmith_runtime::fault::Reason;

    #[test]
    fn every_kind_of_error_has_its_code() {
        let argument = Error::Argument { operation: "all_reduce", detail: String::new() };
        assert_eq!(code(&argument), Code::InvalidArgument);
        let unsupported = Error::Unsupported { operation: "x".into(), detail: String::new() };
        assert_eq!(code(&unsupported), Code::InvalidUsage);
        let aborted = Error::Fault(Reason::AbortedBy { rank: 1, reason: "disk full".into() });
        assert_eq!(code(&aborted), Code::RemoteError);
        let source = std::io::Error::other("full");
        assert_eq!(code(&Error::System { operation: "eventfd", source }), Code::SystemError);
    }

    #[test]
    fn what_is_told_to_c_holds_no_zero() {
        let text = told("a\0b");
        assert!(!text.is_null());
        TOLD.with(|told| assert_eq!(told.borrow().to_str(), Ok("a?b")));
    }
}
