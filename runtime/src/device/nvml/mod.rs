//! What NVIDIA's management library tells of the GPUs of this host: compute capability, and where each
//! NVLink leads. It opens no context on a GPU, and is absent where there is no driver.
//!
//! Functions and their arguments follow `nvml.h` (NVML API Reference Guide); all of them are in drivers
//! since 450. The library is loaded for one look and let go.

#![allow(unsafe_code)] // NVML is a C library.

use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

/// A GPU as the driver knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its address on PCIe, as sysfs spells it.
    pub bus: String,
    /// Compute capability times ten.
    pub sm: u32,
    /// Where each NVLink that is up leads.
    pub links: Vec<Remote>,
}

/// The far end of an NVLink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its address on PCIe.
    pub bus: String,
    /// Whether it is a switch.
    pub is_switch: bool,
}

/// `NVML_NVLINK_MAX_LINKS`.
const MAX_LINKS: c_uint = 18;

/// The most GPUs that are asked about. Ours.
const MAX_GPUS: c_uint = 256;

/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`.
const SWITCH: c_int = 2;

/// `nvmlDevice_t`.
type Handle = *mut c_void;
/// `nvmlReturn_t`; 0 is success.
type Status = c_int;

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    pci_device_id: c_uint,
    pci_subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

/// The functions that are used.
struct Api {
    count: unsafe extern "C" fn(*mut c_uint) -> Status,
    handle: unsafe extern "C" fn(c_uint, *mut Handle) -> Status,
    pci: unsafe extern "C" fn(Handle, *mut PciInfo) -> Status,
    capability: unsafe extern "C" fn(Handle, *mut c_int, *mut c_int) -> Status,
    link_state: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status,
    remote_pci: unsafe extern "C" fn(Handle, c_uint, *mut PciInfo) -> Status,
    remote_kind: Option<unsafe extern "C" fn(Handle, c_uint, *mut c_int) -> Status>,
}

/// The GPUs that the driver lists, in its order. Empty if there is no driver, or none that answers.
pub fn gpus() -> Vec<Listed> {
    let Some((library, init, shutdown)) = load() else { return Vec::new() };
    // SAFETY: `nvmlInit_v2` takes nothing, and may be called by many.
    if unsafe { init() } != 0 {
        return Vec::new();
    }
    let gpus = api(&library).map_or_else(Vec::new, |api| all(&api));
    // SAFETY: it ends what `nvmlInit_v2` began; no handle outlives `all`.
    unsafe { shutdown() };
    gpus
}

type Plain = unsafe extern "C" fn() -> Status;

fn load() -> Option<(Library, Plain, Plain)> {
    // SAFETY: the driver's own library; what it runs when it is loaded is what every tool of the driver runs.
    let library = unsafe { Library::new("libnvidia-ml.so.1") }.ok()?;
    // SAFETY: both have this type in nvml.h, and are used while `library` lives.
    let (init, shutdown) = unsafe {
        (*library.get::<Plain>(c"nvmlInit_v2").ok()?, *library.get::<Plain>(c"nvmlShutdown").ok()?)
    };
    Some((library, init, shutdown))
}

fn api(library: &Library) -> Option<Api> {
    // SAFETY: the types are those of nvml.h; the pointers are used while `library` lives, in `gpus`.
    unsafe {
        Some(Api {
            count: *library.get(c"nvmlDeviceGetCount_v2").ok()?,
            handle: *library.get(c"nvmlDeviceGetHandleByIndex_v2").ok()?,
            pci: *library.get(c"nvmlDeviceGetPciInfo_v3").ok()?,
            capability: *library.get(c"nvmlDeviceGetCudaComputeCapability").ok()?,
            link_state: *library.get(c"nvmlDeviceGetNvLinkState").ok()?,
            remote_pci: *library.get(c"nvmlDeviceGetNvLinkRemotePciInfo_v2").ok()?,
            remote_kind: library.get(c"nvmlDeviceGetNvLinkRemoteDeviceType").ok().map(|symbol| *symbol),
        })
    }
}

fn all(api: &Api) -> Vec<Listed> {
    let mut count = 0;
    // SAFETY: `count` is a valid place for one number.
    if unsafe { (api.count)(&mut count) } != 0 {
        return Vec::new();
    }
    // One that does not answer, such as a GPU that fell off its bus, is left out.
    (0..count.min(MAX_GPUS)).filter_map(|index| one(api, index)).collect()
}

fn one(api: &Api, index: c_uint) -> Option<Listed> {
    let mut handle: Handle = std::ptr::null_mut();
    // SAFETY: `handle` is a valid place for one handle.
    if unsafe { (api.handle)(index, &mut handle) } != 0 {
        return None;
    }
    let (mut info, mut major, mut minor) = (PciInfo::default(), 0, 0);
    // SAFETY: the handle is the library's own, and the places have the types of nvml.h.
    let failed = unsafe { (api.pci)(handle, &mut info) | (api.capability)(handle, &mut major, &mut minor) };
    if failed != 0 {
        return None;
    }
    let sm = u32::try_from(major * 10 + minor).ok()?;
    let links = (0..MAX_LINKS).filter_map(|link| remote(api, handle, link)).collect();
    Some(Listed { bus: address(&info)?, sm, links })
}

/// Where a link leads; none if there is no such link, or it is down.
fn remote(api: &Api, handle: Handle, link: c_uint) -> Option<Remote> {
    let (mut state, mut info, mut kind) = (0, PciInfo::default(), -1);
    // SAFETY: as above.
    if unsafe { (api.link_state)(handle, link, &mut state) } != 0 || state != 1 {
        return None;
    }
    // SAFETY: as above.
    if unsafe { (api.remote_pci)(handle, link, &mut info) } != 0 {
        return None;
    }
    if let Some(remote_kind) = api.remote_kind {
        // SAFETY: as above. What fails leaves the kind unknown.
        unsafe { remote_kind(handle, link, &mut kind) };
    }
    Some(Remote { bus: address(&info)?, is_switch: kind == SWITCH })
}

/// An address as sysfs spells it: NVML's domains have eight digits.
fn address(info: &PciInfo) -> Option<String> {
    let bytes: Vec<u8> = info.bus_id.iter().map(|byte| *byte as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?.to_ascii_lowercase();
    Some(shortened(&text))
}

fn shortened(bus: &str) -> String {
    match bus.strip_prefix("0000") {
        Some(rest) if rest.find(':') == Some(4) => rest.to_owned(),
        _ => bus.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_as_sysfs_does() {
        assert_eq!(shortened("00000000:18:00.0"), "0000:18:00.0");
        assert_eq!(shortened("00010000:18:00.0"), "00010000:18:00.0");
        assert_eq!(shortened("0000:18:00.0"), "0000:18:00.0");
    }

    #[test]
    fn what_is_listed_has_an_address_and_an_architecture() {
        for gpu in gpus() {
            assert!(gpu.bus.split(':').count() == 3 && gpu.sm >= 30, "{gpu:?}");
        }
    }
}
