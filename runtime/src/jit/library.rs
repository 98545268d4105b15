//! NVRTC's library, opened by its path, and the calls into it. The only `unsafe` code of this module.
//!
//! After the manual "NVRTC" of the CUDA toolkit. The symbols are taken from the library that was opened
//! and from no other: a loader that is asked by name alone may give another version that comes first in
//! its own path. Results are plain numbers, since later versions have more of them than this one.

use libloading::Library as Loaded;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

type Program = *mut c_void;
type Result_ = c_int;

/// `NVRTC_SUCCESS`.
const SUCCESS: Result_ = 0;
/// `NVRTC_ERROR_COMPILATION`: the source is at fault.
const COMPILATION: Result_ = 6;
/// More than any kernel or log has; beyond it NVRTC is not believed.
const MAX_BYTES: usize = 1 << 30;

/// The calls, with the types of nvrtc.h.
struct Calls {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Result_,
    error_string: unsafe extern "C" fn(Result_) -> *const c_char,
    architectures_len: unsafe extern "C" fn(*mut c_int) -> Result_,
    architectures: unsafe extern "C" fn(*mut c_int) -> Result_,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Result_,
    destroy: unsafe extern "C" fn(*mut Program) -> Result_,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Result_,
    log_len: unsafe extern "C" fn(Program, *mut usize) -> Result_,
    log: unsafe extern "C" fn(Program, *mut c_char) -> Result_,
    cubin_len: unsafe extern "C" fn(Program, *mut usize) -> Result_,
    cubin: unsafe extern "C" fn(Program, *mut c_char) -> Result_,
}

/// An opened NVRTC. Threads may compile with it at the same time, each its own program.
pub(super) struct Library {
    calls: Calls,
    /// Never closed: the library starts threads and registers exit handlers of its own.
    _opened: ManuallyDrop<Vec<Loaded>>,
}

/// What a compilation gave.
pub(super) struct Compiled {
    /// Machine code.
    pub(super) bytes: Vec<u8>,
    /// What compiler and assembler said.
    pub(super) log: String,
}

/// Why a compilation gave nothing.
pub(super) enum Failure {
    /// The source is at fault, and the log says how.
    Source {
        /// What compiler and assembler said.
        log: String,
    },
    /// A call failed.
    Call {
        /// The call.
        operation: &'static str,
        /// NVRTC's reason, and the log if there is one.
        detail: String,
    },
}

impl Library {
    /// Opens what NVRTC itself opens by name (its built-ins) and then NVRTC.
    ///
    /// Errors: the loader's reason, or the call that the library lacks.
    pub(super) fn open(builtins: &[PathBuf], nvrtc: &Path) -> Result<Self, String> {
        let mut opened = Vec::new();
        for path in builtins.iter().map(PathBuf::as_path).chain([nvrtc]) {
            // SAFETY: the caller found these by their names where NVIDIA's libraries lie, or was told by
            // the user to use them; their initialisers are NVIDIA's and need nothing of this process.
            let library = unsafe { Loaded::new(path) }.map_err(|error| reason(&error))?;
            opened.push(library);
        }
        let library = opened.last().expect("NVRTC itself was opened");
        // SAFETY: each symbol is named with the type that nvrtc.h gives it, and the library that it
        // comes from is never closed.
        let calls = unsafe {
            Calls {
                version: symbol(library, c"nvrtcVersion")?,
                error_string: symbol(library, c"nvrtcGetErrorString")?,
                architectures_len: symbol(library, c"nvrtcGetNumSupportedArchs")?,
                architectures: symbol(library, c"nvrtcGetSupportedArchs")?,
                create: symbol(library, c"nvrtcCreateProgram")?,
                destroy: symbol(library, c"nvrtcDestroyProgram")?,
                compile: symbol(library, c"nvrtcCompileProgram")?,
                log_len: symbol(library, c"nvrtcGetProgramLogSize")?,
                log: symbol(library, c"nvrtcGetProgramLog")?,
                cubin_len: symbol(library, c"nvrtcGetCUBINSize")?,
                cubin: symbol(library, c"nvrtcGetCUBIN")?,
            }
        };
        Ok(Self { calls, _opened: ManuallyDrop::new(opened) })
    }

    /// Major and minor version.
    pub(super) fn version(&self) -> Result<(u32, u32), String> {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both point to numbers that live across the call.
        let result = unsafe { (self.calls.version)(&mut major, &mut minor) };
        let number = |value: c_int| u32::try_from(value).map_err(|_| "its version is negative".to_owned());
        if result == SUCCESS { Ok((number(major)?, number(minor)?)) } else { Err(self.describe(result)) }
    }

    /// Numbers of the architectures that it compiles for, ascending.
    pub(super) fn architectures(&self) -> Result<Vec<u32>, String> {
        // Far more than there are; a library that says otherwise is not what it seems.
        const MOST: usize = 1000;
        let mut len = 0;
        // SAFETY: `len` lives across the call.
        let result = unsafe { (self.calls.architectures_len)(&mut len) };
        let len = usize::try_from(len).ok().filter(|&len| result == SUCCESS && len <= MOST);
        let Some(len) = len else { return Err(self.describe(result)) };
        let mut numbers: Vec<c_int> = vec![0; len];
        // SAFETY: the call writes as many numbers as the call before has said.
        let result = unsafe { (self.calls.architectures)(numbers.as_mut_ptr()) };
        if result != SUCCESS {
            return Err(self.describe(result));
        }
        let mut numbers: Vec<u32> = numbers.into_iter().filter_map(|number| number.try_into().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Compiles a source that includes no header to machine code.
    pub(super) fn compile(
        &self,
        name: &CStr,
        source: &CStr,
        options: &[CString],
    ) -> Result<Compiled, Failure> {
        let mut handle: Program = std::ptr::null_mut();
        // SAFETY: name and source live until after the program is destroyed at the end of this
        // function; with no headers both lists may be null.
        let result = unsafe {
            let none = std::ptr::null();
            (self.calls.create)(&mut handle, source.as_ptr(), name.as_ptr(), 0, none, none)
        };
        self.check(result, "nvrtcCreateProgram")?;
        let program = Guard { library: self, handle };
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let len = c_int::try_from(options.len()).expect("there are few options");
        // SAFETY: the program was just created; `options` holds `len` strings that outlive the call.
        let result = unsafe { (self.calls.compile)(program.handle, len, options.as_ptr()) };
        let log = self.log(&program);
        match result {
            SUCCESS => {}
            COMPILATION => return Err(Failure::Source { log: log? }),
            other => {
                let said = log.unwrap_or_default();
                let detail = [self.describe(other), said.trim().replace('\n', "; ")];
                let detail =
                    detail.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
                return Err(Failure::Call { operation: "nvrtcCompileProgram", detail });
            }
        }
        let bytes = self.text(&program, "nvrtcGetCUBIN", self.calls.cubin_len, self.calls.cubin)?;
        if bytes.is_empty() {
            return Err(Failure::Call { operation: "nvrtcGetCUBIN", detail: "it gave no code".to_owned() });
        }
        Ok(Compiled { bytes, log: log? })
    }

    fn log(&self, program: &Guard<'_>) -> Result<String, Failure> {
        let bytes = self.text(program, "nvrtcGetProgramLog", self.calls.log_len, self.calls.log)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned())
    }

    /// A result that is fetched by asking for its size first.
    fn text(
        &self,
        program: &Guard<'_>,
        operation: &'static str,
        len_of: unsafe extern "C" fn(Program, *mut usize) -> Result_,
        get: unsafe extern "C" fn(Program, *mut c_char) -> Result_,
    ) -> Result<Vec<u8>, Failure> {
        let mut len = 0;
        // SAFETY: the guard's program is alive, and `len` lives across the call.
        self.check(unsafe { len_of(program.handle, &mut len) }, operation)?;
        if len > MAX_BYTES {
            return Err(Failure::Call { operation, detail: format!("it speaks of {len} bytes") });
        }
        let mut bytes = vec![0; len];
        if len > 0 {
            // SAFETY: as above; the call writes as many bytes as the call before has said.
            self.check(unsafe { get(program.handle, bytes.as_mut_ptr().cast()) }, operation)?;
        }
        Ok(bytes)
    }

    fn check(&self, result: Result_, operation: &'static str) -> Result<(), Failure> {
        let detail = || self.describe(result);
        if result == SUCCESS { Ok(()) } else { Err(Failure::Call { operation, detail: detail() }) }
    }

    fn describe(&self, result: Result_) -> String {
        // SAFETY: takes any number, and gives null or a string that is never freed.
        let text = unsafe {
            let text = (self.calls.error_string)(result);
            if text.is_null() { None } else { Some(CStr::from_ptr(text)) }
        };
        match text {
            Some(text) => format!("{} (result {result})", text.to_string_lossy()),
            None => format!("result {result}"),
        }
    }
}

/// A program that is destroyed when it is left.
struct Guard<'a> {
    library: &'a Library,
    handle: Program,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create` and is destroyed here only. Nothing can be done about a
        // failure, which only leaks the program.
        let _ = unsafe { (self.library.calls.destroy)(&mut self.handle) };
    }
}

/// A function of a library.
///
/// # Safety
/// `F` is a function pointer of the type that the library's header gives this name, and the library is
/// never closed.
unsafe fn symbol<F: Copy>(library: &Loaded, name: &CStr) -> Result<F, String> {
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name) };
    found.map(|symbol| *symbol).map_err(|_| format!("it has no {}", name.to_string_lossy()))
}

/// The loader's own words, without the wrapping.
fn reason(error: &libloading::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}
