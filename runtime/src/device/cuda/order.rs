//! The order of a communicator's launches on several streams.
//!
//! Launches share counters, so each begins when the one before it has ended, whatever stream that was on. Ranks make
//! calls in one order, so nobody waits for ever. A launch that is captured waits for those of its capture only: who
//! replays a graph orders it with what is not part of it.

use super::{CudaError, Device, Event, Stream};
use std::sync::Arc;

/// The launches so far.
#[derive(Default)]
pub(super) struct Order {
    /// Those that run when they are made.
    now: Chain,
    /// Those of the last capture, with its number.
    captured: (u64, Chain),
}

/// Launches of which each waits for the one before.
#[derive(Default)]
struct Chain {
    /// The last one's stream: what tells it from others, and its handle.
    last: Option<(u64, usize)>,
    /// Recorded after every launch once there have been two streams: most communicators have one, whose launches
    /// need no event between them.
    end: Option<Event>,
}

impl Order {
    /// Lets the next launch wait for the last one.
    pub(super) fn before(&mut self, device: &Arc<Device>, stream: &Stream) -> Result<(), CudaError> {
        let capture = stream.capture_id()?;
        let chain = self.chain(capture);
        let here = (stream.id()?, stream.handle() as usize);
        let Some(last) = chain.last.replace(here) else { return Ok(()) };
        if last.0 == here.0 {
            return Ok(());
        }
        if let Some(end) = &chain.end {
            return stream.wait_for(end);
        }
        let end = chain.end.insert(Event::untimed(device)?);
        if capture.is_none() {
            // The other stream may be gone, so nothing can be recorded there now: this once the host waits.
            return device.synchronize();
        }
        // SAFETY: a stream of the capture that is under way is still there.
        let other = unsafe { Stream::borrowed(device, last.1) };
        end.record(&other)?;
        stream.wait_for(end)
    }

    /// Remembers the end of a launch.
    pub(super) fn after(&mut self, stream: &Stream) -> Result<(), CudaError> {
        if self.now.end.is_none() && self.captured.1.end.is_none() {
            return Ok(());
        }
        let capture = stream.capture_id()?;
        self.chain(capture).end.as_ref().map_or(Ok(()), |end| end.record(stream))
    }

    fn chain(&mut self, capture: Option<u64>) -> &mut Chain {
        let Some(capture) = capture else { return &mut self.now };
        if self.captured.0 != capture {
            self.captured = (capture, Chain::default());
        }
        &mut self.captured.1
    }
}
