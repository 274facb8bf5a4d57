//! Launches captured once and replayed as a whole.

use cudarc::driver::{CudaGraph, sys};

use super::error::During;
use super::{Device, DeviceError};

/// Launches that the driver starts as one.
pub struct Graph(CudaGraph);

impl Device {
    /// Captures what `record` puts on the device's stream, without running it.
    ///
    /// What the launches point at must outlive the graph. An empty capture is a graph that does nothing.
    pub fn capture<E: From<DeviceError>>(&self, record: impl FnOnce() -> Result<(), E>) -> Result<Option<Graph>, E> {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).during("cuStreamBeginCapture")?;
        let recorded = record();
        // Also after an error: the stream must leave the capture.
        let flags = sys::CUgraphInstantiate_flags(0);
        let graph = self.stream.end_capture(flags).during("cuStreamEndCapture");
        recorded?;
        Ok(graph?.map(Graph))
    }
}

impl Graph {
    /// Replays it on the device's stream.
    pub fn launch(&self) -> Result<(), DeviceError> {
        self.0.launch().during("cuGraphLaunch")
    }
}
