//! The CUDA driver: every call checked, every handle released, the caller's context as it was.
//!
//! The library is opened at run time. Without it [`Device::open`] says so, and nothing else here can be
//! reached.

use super::stream::Stream;
use cudarc::driver::sys;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A call of the driver failed, or there is no driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CudaError {
    /// No libcuda.
    Missing,
    /// There is no such GPU.
    NoDevice {
        /// Its number.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// A call failed.
    Call {
        /// What was being done.
        what: &'static str,
        /// The driver's name of the error.
        code: String,
    },
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "no CUDA driver: libcuda.so.1 cannot be opened; install the NVIDIA driver, or compute on the CPU",
            ),
            Self::NoDevice { ordinal, count } => write!(
                f,
                "there is no GPU {ordinal}: the driver sees {count} (CUDA_VISIBLE_DEVICES limits which)"
            ),
            Self::Call { what, code } => write!(f, "CUDA: {what}: {code}"),
        }
    }
}

impl std::error::Error for CudaError {}

pub(super) type Result<T> = std::result::Result<T, CudaError>;

/// An answer of the driver's as a result.
pub(super) fn check(what: &'static str, result: sys::CUresult) -> Result<()> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let mut name = ptr::null();
    // SAFETY: `name` is a pointer of ours; the driver sets it to a string that lives for ever.
    let known = unsafe { sys::cuGetErrorName(result, &mut name) } == sys::CUresult::CUDA_SUCCESS;
    let code = if known && !name.is_null() {
        // SAFETY: as above.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    } else {
        format!("{result:?}")
    };
    Err(CudaError::Call { what, code })
}

/// A GPU and its primary context.
pub struct Device {
    ordinal: u32,
    handle: sys::CUdevice,
    context: sys::CUcontext,
    /// Communicators of this process on it.
    communicators: AtomicU32,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// The GPUs that this process has open.
static OPEN: Mutex<Vec<Weak<Device>>> = Mutex::new(Vec::new());

/// The device's context is current until this is dropped; then the caller's is again.
pub(super) struct Current;

impl Drop for Current {
    fn drop(&mut self) {
        let mut popped = ptr::null_mut();
        // SAFETY: pops what `Device::enter` has pushed on this thread.
        let _ = unsafe { sys::cuCtxPopCurrent_v2(&mut popped) };
    }
}

/// Calls that a capture of the thread would forbid are allowed until this is dropped; then the thread's mode
/// is as before.
struct Relaxed(sys::CUstreamCaptureMode);

impl Relaxed {
    fn new() -> Result<Self> {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the mode is ours; the call gives back the thread's.
        check("relaxing the capture mode", unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) })?;
        Ok(Self(mode))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        // SAFETY: gives back what `new` has taken.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut self.0) };
    }
}

impl Device {
    /// The GPU that the calling thread has chosen: that of its current context, or the first.
    ///
    /// Errors: no driver, or what it says.
    pub fn current() -> Result<u32> {
        Self::count()?;
        let mut device = 0;
        // SAFETY: the out parameter is ours; the library is there.
        match unsafe { sys::cuCtxGetDevice(&mut device) } {
            sys::CUresult::CUDA_ERROR_INVALID_CONTEXT => Ok(0),
            other => check("asking for the thread's GPU", other).map(|()| u32::try_from(device).unwrap_or(0)),
        }
    }

    /// Opens a GPU, or returns it where this process has it open.
    ///
    /// Errors: no driver, no such GPU, or what the driver says.
    pub fn open(ordinal: u32) -> Result<Arc<Self>> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(CudaError::NoDevice { ordinal, count });
        }
        let (mut handle, mut context) = (0, ptr::null_mut());
        // SAFETY: out parameters are ours; the library is there.
        unsafe {
            check("finding the GPU", sys::cuDeviceGet(&mut handle, ordinal as i32))?;
            check("opening the GPU's context", sys::cuDevicePrimaryCtxRetain(&mut context, handle))?;
        }
        let device = Arc::new(Self { ordinal, handle, context, communicators: AtomicU32::new(0) });
        // Communicators must know of each other: a GPU that is open is opened once.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|known| known.strong_count() > 0);
        if let Some(known) = open.iter().filter_map(Weak::upgrade).find(|known| known.ordinal == ordinal) {
            return Ok(known);
        }
        open.push(Arc::downgrade(&device));
        Ok(device)
    }

    /// Whether the driver knows what lies at an address: memory of a GPU, or of the host that GPUs may use.
    ///
    /// Errors: no driver, or what it says.
    pub fn knows(address: u64) -> Result<bool> {
        Self::count()?;
        let mut kind = 0u32;
        let asked = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
        // SAFETY: the out parameter is ours and as large as the attribute; the address is only looked up.
        match unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), asked, address) } {
            sys::CUresult::CUDA_ERROR_INVALID_VALUE => Ok(false),
            other => check("asking for a pointer", other).map(|()| true),
        }
    }

    /// Makes the device's context the thread's.
    pub(super) fn enter(&self) -> Result<Current> {
        // SAFETY: the context is retained as long as `self` lives.
        check("entering the GPU's context", unsafe { sys::cuCtxPushCurrent_v2(self.context) })?;
        Ok(Current)
    }

    /// One communicator more.
    pub(super) fn enroll(&self) {
        self.communicators.fetch_add(1, Ordering::Relaxed);
    }

    /// One less.
    pub(super) fn leave(&self) {
        self.communicators.fetch_sub(1, Ordering::Relaxed);
    }

    /// Communicators of this process on the GPU.
    pub fn communicators(&self) -> u32 {
        self.communicators.load(Ordering::Relaxed)
    }

    /// Its number.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its name, such as `NVIDIA H200`.
    pub fn name(&self) -> Result<String> {
        let mut name = [0; 256];
        // SAFETY: the buffer has the stated length.
        check("naming the GPU", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 256, self.handle) })?;
        // SAFETY: the driver ends the name with a zero byte.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<u32> {
        let mut value = 0;
        // SAFETY: the out parameter is ours.
        check("asking the GPU", unsafe { sys::cuDeviceGetAttribute(&mut value, attribute, self.handle) })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// GPUs that the driver sees.
    pub fn count() -> Result<u32> {
        // SAFETY: looks for a library and opens it.
        if !unsafe { sys::is_culib_present() } {
            return Err(CudaError::Missing);
        }
        let mut count = 0;
        // SAFETY: the out parameter is ours; the library is there.
        unsafe {
            check("starting the driver", sys::cuInit(0))?;
            check("counting GPUs", sys::cuDeviceGetCount(&mut count))?;
        }
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// What tells it from every other GPU, on any host.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        let mut uuid = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: the out parameter is ours.
        check("asking for the GPU's UUID", unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, self.handle) })?;
        Ok(uuid.bytes.map(|byte| byte as u8))
    }

    /// Lets this GPU's kernels reach the memory of another GPU that this process has open.
    pub(super) fn reach(&self, peer: &Self) -> Result<()> {
        if self.ordinal == peer.ordinal {
            return Ok(());
        }
        let _current = self.enter()?;
        // SAFETY: the context is retained as long as `peer` lives, which outlives its memory.
        match unsafe { sys::cuCtxEnablePeerAccess(peer.context, 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(()),
            other => check("reaching another GPU's memory", other),
        }
    }

    /// Copies to an address of any GPU that this one reaches.
    ///
    /// # Safety
    /// The address is valid for the data's length.
    pub(super) unsafe fn put(&self, address: u64, data: &[u8]) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the caller's promise; the slice is valid for its length. The call may return while the
        // last of the data is still on its way, and streams of ours do not wait for it.
        unsafe {
            check("copying to the GPU", sys::cuMemcpyHtoD_v2(address, data.as_ptr().cast(), data.len()))?;
            check("copying to the GPU", sys::cuCtxSynchronize())
        }
    }

    /// Streaming multiprocessors.
    pub fn multiprocessors(&self) -> Result<u32> {
        self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    }

    /// The compute capability, such as 90 for 9.0.
    pub fn capability(&self) -> Result<u32> {
        use sys::CUdevice_attribute as Ask;
        let major = self.attribute(Ask::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok(10 * major + self.attribute(Ask::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?)
    }

    /// Waits for everything under way on the device.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: no arguments.
        check("waiting for the GPU", unsafe { sys::cuCtxSynchronize() })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: retained once, in `open`.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.handle) };
    }
}

/// Memory of a GPU: of its own and cleared, or somebody else's.
pub struct DeviceMemory {
    device: Arc<Device>,
    address: u64,
    bytes: u64,
    is_own: bool,
}

impl DeviceMemory {
    /// Allocates and clears.
    pub fn new(device: &Arc<Device>, bytes: u64) -> Result<Self> {
        let _current = device.enter()?;
        let _relaxed = Relaxed::new()?;
        let mut address = 0;
        let size = usize::try_from(bytes.max(1)).unwrap_or(usize::MAX);
        // SAFETY: the out parameter is ours; what is cleared has just been allocated.
        unsafe {
            check("allocating GPU memory", sys::cuMemAlloc_v2(&mut address, size))?;
            let memory = Self { device: Arc::clone(device), address, bytes, is_own: true };
            check("clearing GPU memory", sys::cuMemsetD8_v2(address, 0, size))?;
            check("clearing GPU memory", sys::cuCtxSynchronize())?;
            Ok(memory)
        }
    }

    /// Memory that somebody else has allocated and will free.
    ///
    /// # Safety
    /// Kernels of the device may read and write `bytes` bytes from `address` on as long as anything uses what is
    /// returned, work that it has put on streams included.
    pub unsafe fn borrowed(device: &Arc<Device>, address: u64, bytes: u64) -> Self {
        Self { device: Arc::clone(device), address, bytes, is_own: false }
    }

    /// Its address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies into it, from `offset` bytes on.
    ///
    /// Panics: beyond its end.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        assert!(offset + data.len() as u64 <= self.bytes, "within the allocation");
        // SAFETY: the range was just checked.
        unsafe { self.device.put(self.address + offset, data) }
    }

    /// Copies out of it, from `offset` bytes on.
    ///
    /// Panics: beyond its end.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<()> {
        assert!(offset + data.len() as u64 <= self.bytes, "within the allocation");
        let _current = self.device.enter()?;
        // SAFETY: as in `write`.
        check("copying from the GPU", unsafe {
            sys::cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), self.address + offset, data.len())
        })
    }

    /// Fills a range with a byte.
    ///
    /// Panics: beyond its end.
    pub fn fill(&self, offset: u64, bytes: u64, value: u8) -> Result<()> {
        assert!(offset + bytes <= self.bytes, "within the allocation");
        let _current = self.device.enter()?;
        // SAFETY: the range was just checked. The call returns before the memory is filled.
        unsafe {
            check("filling GPU memory", sys::cuMemsetD8_v2(self.address + offset, value, bytes as usize))?;
            check("filling GPU memory", sys::cuCtxSynchronize())
        }
    }
}

/// What another process needs to map memory of this one.
pub(super) const HANDLE_BYTES: usize = 64;

impl DeviceMemory {
    /// What another process of this host needs to map it.
    pub(super) fn handle(&self) -> Result<[u8; HANDLE_BYTES]> {
        let _current = self.device.enter()?;
        let mut handle = sys::CUipcMemHandle { reserved: [0; HANDLE_BYTES] };
        // SAFETY: the out parameter is ours; the address is that of an allocation.
        check("sharing GPU memory", unsafe { sys::cuIpcGetMemHandle(&mut handle, self.address) })?;
        Ok(handle.reserved.map(|byte| byte as u8))
    }
}

/// GPU memory of another process of this host, mapped.
pub(super) struct PeerMemory {
    device: Arc<Device>,
    address: u64,
}

impl PeerMemory {
    /// Maps what [`DeviceMemory::handle`] has described.
    pub(super) fn map(device: &Arc<Device>, handle: &[u8; HANDLE_BYTES]) -> Result<Self> {
        let _current = device.enter()?;
        let mut address = 0;
        let handle = sys::CUipcMemHandle { reserved: handle.map(|byte| byte as _) };
        let flags = sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        // SAFETY: the out parameter is ours; the driver checks the handle.
        check("mapping GPU memory of another process", unsafe {
            sys::cuIpcOpenMemHandle_v2(&mut address, handle, flags)
        })?;
        Ok(Self { device: Arc::clone(device), address })
    }

    /// Its address on this process's GPU.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: mapped in `map`, closed once.
            let _ = unsafe { sys::cuIpcCloseMemHandle(self.address) };
        }
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        if self.is_own
            && let Ok(_current) = self.device.enter()
        {
            // SAFETY: allocated in `new`, freed once; freeing waits for kernels that use it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Page-locked memory of the host that the GPU reads and writes in place, cleared.
pub(super) struct HostMemory {
    device: Arc<Device>,
    pointer: *mut u64,
    words: usize,
    address: u64,
}

// SAFETY: plain memory, accessed by volatile reads and writes of whole words.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Allocates and clears.
    pub(super) fn new(device: &Arc<Device>, words: usize) -> Result<Self> {
        let _current = device.enter()?;
        let _relaxed = Relaxed::new()?;
        let (mut pointer, mut address) = (ptr::null_mut::<c_void>(), 0);
        let flags = sys::CU_MEMHOSTALLOC_DEVICEMAP | sys::CU_MEMHOSTALLOC_PORTABLE;
        // SAFETY: out parameters are ours; what is cleared has just been allocated.
        unsafe {
            check("allocating page-locked memory", sys::cuMemHostAlloc(&mut pointer, words * 8, flags))?;
            ptr::write_bytes(pointer.cast::<u64>(), 0, words);
            let mut memory = Self { device: Arc::clone(device), pointer: pointer.cast(), words, address: 0 };
            check("mapping page-locked memory", sys::cuMemHostGetDevicePointer_v2(&mut address, pointer, 0))?;
            memory.address = address;
            Ok(memory)
        }
    }

    /// Its address on the GPU.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Its size in words.
    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Reads a word that the GPU may be writing.
    ///
    /// Panics: beyond its end.
    pub(super) fn load(&self, word: usize) -> u64 {
        assert!(word < self.words, "within the allocation");
        // SAFETY: within the allocation; whole words, whoever else writes.
        unsafe { self.pointer.add(word).read_volatile() }
    }

    /// Writes a word that the GPU may be reading.
    ///
    /// Panics: beyond its end.
    pub(super) fn store(&self, word: usize, value: u64) {
        assert!(word < self.words, "within the allocation");
        // SAFETY: as in `load`.
        unsafe { self.pointer.add(word).write_volatile(value) }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: allocated in `new`, freed once.
            let _ = unsafe { sys::cuMemFreeHost(self.pointer.cast()) };
        }
    }
}

/// A loaded kernel.
pub(super) struct Function {
    device: Arc<Device>,
    module: sys::CUmodule,
    function: sys::CUfunction,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// A grid of thread blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    /// Blocks in x.
    pub(super) x: u32,
    /// Blocks in y.
    pub(super) y: u32,
    /// Threads of a block.
    pub(super) threads: u32,
}

impl Function {
    /// Loads a cubin and finds its kernel.
    pub(super) fn load(device: &Arc<Device>, cubin: &[u8], name: &str) -> Result<Self> {
        let _current = device.enter()?;
        let _relaxed = Relaxed::new()?;
        let missing = |what| CudaError::Call { what, code: format!("the name {name:?} holds a zero byte") };
        let name = CString::new(name).map_err(|_| missing("loading a kernel"))?;
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: out parameters are ours; the driver checks the image, which NVRTC or the cache made.
        unsafe {
            check("loading a kernel", sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()))?;
            let found =
                check("finding a kernel", sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
            if let Err(error) = found {
                let _ = sys::cuModuleUnload(module);
                return Err(error);
            }
        }
        Ok(Self { device: Arc::clone(device), module, function })
    }

    /// How many blocks of `threads` threads a multiprocessor holds at once.
    pub(super) fn resident(&self, threads: u32) -> Result<u32> {
        let _current = self.device.enter()?;
        let mut blocks = 0;
        // SAFETY: the out parameter is ours.
        check("asking for occupancy", unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, self.function, threads as i32, 0)
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    /// Launches with one argument, given as its bytes. `together`: all blocks run at once, or the driver
    /// refuses.
    ///
    /// # Safety
    /// `argument` is what the kernel takes, and what it points to lives until the stream has passed.
    pub(super) unsafe fn launch(
        &self,
        grid: Grid,
        argument: &[u64],
        together: bool,
        stream: &Stream,
    ) -> Result<()> {
        let _current = self.device.enter()?;
        let mut arguments = [argument.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: the driver copies the argument before it returns; the rest is the caller's promise.
        unsafe {
            let result = if together {
                sys::cuLaunchCooperativeKernel(
                    self.function,
                    grid.x,
                    grid.y,
                    1,
                    grid.threads,
                    1,
                    1,
                    0,
                    stream.handle(),
                    arguments.as_mut_ptr(),
                )
            } else {
                sys::cuLaunchKernel(
                    self.function,
                    grid.x,
                    grid.y,
                    1,
                    grid.threads,
                    1,
                    1,
                    0,
                    stream.handle(),
                    arguments.as_mut_ptr(),
                    ptr::null_mut(),
                )
            };
            check("launching a kernel", result)
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: loaded in `load`, unloaded once.
            let _ = unsafe { sys::cuModuleUnload(self.module) };
        }
    }
}
