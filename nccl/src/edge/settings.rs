//! NCCL's parameter functions: the settings of the environment, by handle or by name.

use super::{put, text};
use crate::communicator::Done;
use crate::outcome::{self, Failure};
use crate::parameters::{self, Parameter};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};

/// A handle is the address of one of our rows, which are never freed.
fn bound(handle: *mut c_void) -> Result<&'static Parameter, Failure> {
    parameters::all().iter().find(|p| std::ptr::from_ref(*p).cast() == handle.cast_const()).ok_or_else(|| {
        Failure::argument(format!("{handle:p} is no handle of a parameter; ncclParamBind gives one"))
    })
}

/// A value for C, valid until this thread asks the same function again.
fn kept(place: &'static std::thread::LocalKey<RefCell<CString>>, value: &str) -> (*const c_char, c_int) {
    let clean = CString::new(value.replace('\0', "?")).unwrap_or_default();
    place.with_borrow_mut(|kept| {
        *kept = clean;
        (kept.as_ptr(), kept.as_bytes().len() as c_int)
    })
}

thread_local! {
    static BY_HANDLE: RefCell<CString> = RefCell::default();
    static BY_KEY: RefCell<CString> = RefCell::default();
    static KEYS: RefCell<Vec<*const c_char>> = const { RefCell::new(Vec::new()) };
}

macro_rules! numbers {
    ($($name:ident, $twin:ident, $type:ty;)*) => {
        exports! {$(
            fn $name, $twin(handle: *mut c_void, out: *mut $type) {
                put("out", out, parameters::number::<$type>(bound(handle)?)?)?;
                Ok(Done::Now)
            }
        )*}
    };
}

numbers! {
    ncclParamGetI8, pncclParamGetI8, i8;
    ncclParamGetI16, pncclParamGetI16, i16;
    ncclParamGetI32, pncclParamGetI32, i32;
    ncclParamGetI64, pncclParamGetI64, i64;
    ncclParamGetU8, pncclParamGetU8, u8;
    ncclParamGetU16, pncclParamGetU16, u16;
    ncclParamGetU32, pncclParamGetU32, u32;
    ncclParamGetU64, pncclParamGetU64, u64;
}

exports! {
    fn ncclParamBind, pncclParamBind(out: *mut *mut c_void, key: *const c_char) {
        let row = &parameters::all()[parameters::find(&text("key", key)?)?];
        put("out", out, std::ptr::from_ref(row).cast_mut().cast())?;
        Ok(Done::Now)
    }

    fn ncclParamGetStr, pncclParamGetStr(handle: *mut c_void, out: *mut *const c_char) {
        put("out", out, kept(&BY_HANDLE, &parameters::value(bound(handle)?)).0)?;
        Ok(Done::Now)
    }

    fn ncclParamGet, pncclParamGet(handle: *mut c_void, out: *mut c_void, most: c_int, len: *mut c_int) {
        let value = parameters::value(bound(handle)?);
        let fits = usize::try_from(most).is_ok_and(|most| value.len() <= most);
        if out.is_null() || !fits {
            return Err(Failure::argument(format!("the value has {} bytes, and there is room for {most}", value.len())));
        }
        for (at, byte) in value.bytes().enumerate() {
            put("out", out.cast::<u8>().add(at), byte)?;
        }
        put("len", len, value.len() as c_int)?;
        Ok(Done::Now)
    }

    fn ncclParamGetParameter, pncclParamGetParameter(key: *const c_char, out: *mut *const c_char, len: *mut c_int) {
        let row = &parameters::all()[parameters::find(&text("key", key)?)?];
        let (value, bytes) = kept(&BY_KEY, &parameters::value(row));
        put("value", out, value)?;
        put("valueLen", len, bytes)?;
        Ok(Done::Now)
    }

    fn ncclParamGetAllParameterKeys, pncclParamGetAllParameterKeys(table: *mut *const *const c_char, len: *mut c_int) {
        let (keys, count) = KEYS.with_borrow_mut(|keys| {
            *keys = parameters::all().iter().map(|p| p.key.as_ptr()).collect();
            (keys.as_ptr(), keys.len() as c_int)
        });
        put("table", table, keys)?;
        put("tableLen", len, count)?;
        Ok(Done::Now)
    }
}

/// Tells the log.
fn dump(function: &str) {
    let told = crate::process::without_panic(|| {
        crate::process::settings()?;
        parameters::dump();
        Ok(())
    });
    if let Err(failure) = told {
        outcome::keep(function, &failure);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclParamDumpAll() {
    dump("ncclParamDumpAll");
}

#[unsafe(no_mangle)]
pub extern "C" fn pncclParamDumpAll() {
    dump("ncclParamDumpAll");
}
