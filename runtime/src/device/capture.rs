//! The driver's graphs: captured from streams, made executable, replayed.

use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};

use super::error::During;
use super::stream::Stream;
use super::{Device, DeviceError};

/// A captured graph, kept beside what was made of it: an executable one cannot be read back.
pub struct DriverGraph {
    pub(super) graph: sys::CUgraph,
    context: Arc<CudaContext>,
}

/// A graph ready to be replayed.
pub struct Executable {
    executable: sys::CUgraphExec,
    context: Arc<CudaContext>,
}

/// A capture in progress. Dropped before its end, it is abandoned, and the streams are usable again.
pub struct Capture {
    origin: Option<Stream>,
    context: Arc<CudaContext>,
}

impl Device {
    /// Begins to capture what is put on `origin`, and on every stream that waits for captured work.
    ///
    /// While it lasts, calls that could not be captured (an allocation, a synchronisation, work on the legacy stream) are
    /// refused from every thread, and break the capture.
    pub fn begin_capture(&self, origin: &Stream) -> Result<Capture, DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        // SAFETY: the stream is alive.
        unsafe { result::stream::begin_capture(origin.raw(), mode) }.during("cuStreamBeginCapture")?;
        Ok(Capture { origin: Some(origin.clone()), context: self.context.clone() })
    }
}

impl Capture {
    /// What was captured.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] if something broke the capture, or a stream that took part was not joined.
    pub fn end(mut self) -> Result<DriverGraph, DeviceError> {
        let origin = self.origin.take().expect("taken only here and in drop");
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: the stream is alive, and its capture was begun by this thread.
        let graph = unsafe { result::stream::end_capture(origin.raw()) }.during("cuStreamEndCapture")?;
        Ok(DriverGraph { graph, context: self.context.clone() })
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let Some(origin) = self.origin.take() else { return };
        // SAFETY: as in `end`; a capture that broke gives no graph, and an error that says so.
        if let Ok(graph) = unsafe { result::stream::end_capture(origin.raw()) }
            && !graph.is_null()
        {
            drop(DriverGraph { graph, context: self.context.clone() });
        }
    }
}

impl DriverGraph {
    /// Makes it ready to be replayed.
    pub fn instantiate(&self) -> Result<Executable, DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mut executable = std::ptr::null_mut();
        // SAFETY: the graph is alive, and the pointer is valid for the call.
        unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, self.graph, 0) }
            .result()
            .during("cuGraphInstantiate")?;
        Ok(Executable { executable, context: self.context.clone() })
    }
}

impl Executable {
    /// Replays it on `stream`.
    pub fn launch(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: both are alive.
        unsafe { result::graph::launch(self.executable, stream.raw()) }.during("cuGraphLaunch")
    }

    /// Gives its nodes the parameters of `graph`. False if the two differ in more than parameters.
    pub fn update(&mut self, graph: &DriverGraph) -> Result<bool, DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // The structure of three words; its first is an enumeration that a newer driver may extend.
        let mut info = std::mem::MaybeUninit::<sys::CUgraphExecUpdateResultInfo>::zeroed();
        // SAFETY: both are alive, and the pointer is valid for the call.
        match unsafe { sys::cuGraphExecUpdate_v2(self.executable, graph.graph, info.as_mut_ptr()) } {
            sys::CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE => Ok(false),
            other => other.result().during("cuGraphExecUpdate").map(|()| true),
        }
    }
}

impl Drop for DriverGraph {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: made by the driver, destroyed once.
        self.context.record_err(unsafe { result::graph::destroy(self.graph) });
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: made by the driver, destroyed once; it waits for replays in flight by itself.
        self.context.record_err(unsafe { result::graph::exec_destroy(self.executable) });
    }
}
