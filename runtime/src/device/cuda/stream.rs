//! Streams, what is captured of them, and events on them.

use super::driver::{Device, Result, check};
use cudarc::driver::sys;
use std::ptr;
use std::sync::Arc;

/// A stream of the device: of its own, which does not wait for the legacy one, or somebody else's.
pub struct Stream {
    device: Arc<Device>,
    handle: sys::CUstream,
    is_own: bool,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// Makes a stream.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the out parameter is ours.
        check("making a stream", unsafe { sys::cuStreamCreate(&mut handle, flags) })?;
        Ok(Self { device: Arc::clone(device), handle, is_own: true })
    }

    /// A stream that somebody else has made and will destroy; 0 and 1 are the legacy one, and 2 is that of the
    /// calling thread.
    ///
    /// # Safety
    /// The handle is a stream of the device's primary context, or one of these numbers, as long as anything uses
    /// what is returned.
    pub unsafe fn borrowed(device: &Arc<Device>, handle: usize) -> Self {
        Self { device: Arc::clone(device), handle: handle as sys::CUstream, is_own: false }
    }

    /// Waits until everything on the stream is done.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: the stream lives.
        check("waiting for a stream", unsafe { sys::cuStreamSynchronize(self.handle) })
    }

    /// Whether what is put on the stream is being captured into a graph.
    pub fn is_capturing(&self) -> Result<bool> {
        Ok(self.capture_id()?.is_some())
    }

    /// The capture that what is put on the stream becomes part of, if there is one.
    pub(super) fn capture_id(&self) -> Result<Option<u64>> {
        let _current = self.device.enter()?;
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut id = 0;
        // SAFETY: the stream lives; the out parameters are ours, and null where nothing is asked for.
        let asked = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                self.handle,
                &mut status,
                &mut id,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        match asked {
            // The legacy stream while another one is captured: it is not part of that.
            sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Ok(None),
            other => check("asking a stream", other).map(|()| {
                (status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE).then_some(id)
            }),
        }
    }

    /// The driver's handle.
    pub(super) fn handle(&self) -> sys::CUstream {
        self.handle
    }

    /// What tells it from every other stream of the process, those that are gone among them. The stream of the
    /// calling thread is another for every thread.
    pub(super) fn id(&self) -> Result<u64> {
        let _current = self.device.enter()?;
        let mut id = 0;
        // SAFETY: the stream lives; the out parameter is ours.
        check("asking a stream", unsafe { sys::cuStreamGetId(self.handle, &mut id) })?;
        Ok(id)
    }

    /// Lets what is put on the stream from now on wait for an event that was recorded.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: both live; the driver keeps what it needs of the event.
        check("waiting for an event", unsafe { sys::cuStreamWaitEvent(self.handle, event.handle, 0) })
    }

    /// Whether everything on the stream is done.
    pub fn is_done(&self) -> Result<bool> {
        let _current = self.device.enter()?;
        // SAFETY: the stream lives.
        match unsafe { sys::cuStreamQuery(self.handle) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("asking a stream", other).map(|()| true),
        }
    }

    /// Captures what `work` puts on the stream into a graph.
    pub fn capture(&self, work: impl FnOnce(&Self) -> Result<()>) -> Result<Graph> {
        let _current = self.device.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let (mut graph, mut instance) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the stream lives; out parameters are ours; every capture begun is ended.
        unsafe {
            check("beginning a capture", sys::cuStreamBeginCapture_v2(self.handle, mode))?;
            let worked = work(self);
            check("ending a capture", sys::cuStreamEndCapture(self.handle, &mut graph))?;
            if let Err(error) = worked {
                let _ = sys::cuGraphDestroy(graph);
                return Err(error);
            }
            let made = check("making a graph", sys::cuGraphInstantiateWithFlags(&mut instance, graph, 0));
            let _ = sys::cuGraphDestroy(graph);
            made?;
        }
        Ok(Graph { device: Arc::clone(&self.device), instance })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_own
            && let Ok(_current) = self.device.enter()
        {
            // SAFETY: made in `new`, destroyed once; work on it goes on.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

/// A captured graph, ready to be launched.
pub struct Graph {
    device: Arc<Device>,
    instance: sys::CUgraphExec,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Graph {}

impl Graph {
    /// Launches it.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: both live.
        check("launching a graph", unsafe { sys::cuGraphLaunch(self.instance, stream.handle) })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: instantiated once, destroyed once.
            let _ = unsafe { sys::cuGraphExecDestroy(self.instance) };
        }
    }
}

/// A point in a stream, with its time.
pub struct Event {
    device: Arc<Device>,
    handle: sys::CUevent,
}

// SAFETY: the driver's handles may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Makes an event.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        // SAFETY: the out parameter is ours.
        check("making an event", unsafe { sys::cuEventCreate(&mut handle, 0) })?;
        Ok(Self { device: Arc::clone(device), handle })
    }

    /// Makes an event that only orders streams, and keeps no time.
    pub(super) fn untimed(device: &Arc<Device>) -> Result<Self> {
        let _current = device.enter()?;
        let mut handle = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the out parameter is ours.
        check("making an event", unsafe { sys::cuEventCreate(&mut handle, flags) })?;
        Ok(Self { device: Arc::clone(device), handle })
    }

    /// Marks the stream's present end.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        let _current = self.device.enter()?;
        // SAFETY: both live.
        check("recording an event", unsafe { sys::cuEventRecord(self.handle, stream.handle) })
    }

    /// Seconds from `earlier` to this, both passed.
    pub fn seconds_since(&self, earlier: &Self) -> Result<f64> {
        let _current = self.device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the out parameter is ours; both events live.
        check("comparing events", unsafe {
            sys::cuEventElapsedTime_v2(&mut milliseconds, earlier.handle, self.handle)
        })?;
        Ok(f64::from(milliseconds) * 1e-3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_current) = self.device.enter() {
            // SAFETY: made in `new`, destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}
