//! Streams and events beside the device's own stream.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream, sys};

use super::error::During;
use super::{Device, DeviceError};

/// A stream that waits for no other unless told to.
#[derive(Clone)]
pub struct Stream(pub(super) Arc<CudaStream>);

/// A point of a stream, for other streams to wait for. It keeps no time.
pub struct Event(CudaEvent);

impl Device {
    /// A new stream.
    pub fn new_stream(&self) -> Result<Stream, DeviceError> {
        Ok(Stream(self.context.new_stream().during("cuStreamCreate")?))
    }

    /// A new event, not recorded yet.
    pub fn new_event(&self) -> Result<Event, DeviceError> {
        Ok(Event(self.context.new_event(None).during("cuEventCreate")?))
    }
}

impl Stream {
    /// Marks everything on the stream so far.
    pub fn record(&self, event: &Event) -> Result<(), DeviceError> {
        event.0.record(&self.0).during("cuEventRecord")
    }

    /// What follows on the stream waits for `event`.
    pub fn wait(&self, event: &Event) -> Result<(), DeviceError> {
        self.0.wait(&event.0).during("cuStreamWaitEvent")
    }

    /// Waits for everything on the stream; errors of its kernels surface here.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.0.synchronize().during("cuStreamSynchronize")
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.0.cu_stream()
    }

    pub(crate) fn is(&self, other: &Stream) -> bool {
        self.raw() == other.raw()
    }
}

impl Event {
    /// Whether everything before it has ended. An event that was never recorded has nothing before it.
    pub fn is_done(&self) -> Result<bool, DeviceError> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { sys::cuEventQuery(self.0.cu_event()) } {
            sys::CUresult::CUDA_SUCCESS => Ok(true),
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => other.result().during("cuEventQuery").map(|()| false),
        }
    }
}
