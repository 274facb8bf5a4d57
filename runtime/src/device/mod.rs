//! The CUDA device, through cudarc, found at run time: no driver is needed to build or to start.

mod capture;
mod error;
mod graph;
mod memory;
mod module;
mod query;
mod read;
mod stream;
mod symbols;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};
use lathe_emulator::{TensorMap, TensorSwizzle};

pub use capture::{Capture, DriverGraph, Executable};
pub use error::DeviceError;
use error::During;
pub use graph::Graph;
pub use memory::{Allocation, GUARD, GUARD_BYTE};
pub use module::Function;
pub use query::{DeviceInfo, driver_version, list};
pub use stream::{Event, Stream};
pub use symbols::{GRAPH_SYMBOLS, require};

/// A GPU with a context and a stream of its own.
pub struct Device {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    info: DeviceInfo,
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// CTAs in x, y, z; none zero.
    pub grid: [u32; 3],
    /// Threads of a CTA in x, y, z; none zero.
    pub block: [u32; 3],
    /// Whether the kernel may start before the one ahead of it in the stream has ended; it waits for the results
    /// itself (`griddepcontrol.wait`).
    pub programmatic: bool,
}

impl Device {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let devices = list()?;
        let Some(info) = devices.get(ordinal).cloned() else {
            return Err(DeviceError::NoDevice { ordinal, count: devices.len() });
        };
        Self::with(CudaContext::new(ordinal).during("cuDevicePrimaryCtxRetain")?, info)
    }

    /// The same device in a context of its own: memory, streams and graphs of one cannot be used in the other.
    pub fn in_another_context(&self) -> Result<Self, DeviceError> {
        let context = CudaContext::new_non_primary(self.context.ordinal(), 0).during("cuCtxCreate")?;
        Self::with(context, self.info.clone())
    }

    fn with(context: Arc<CudaContext>, info: DeviceInfo) -> Result<Self, DeviceError> {
        // SAFETY: the allocations here are ordered by the one stream and by explicit synchronisation. Tracking would
        // add waits and records to every launch.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().during("cuStreamCreate")?;
        Ok(Device { context, stream, info })
    }

    /// What device it is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Free and total memory in bytes.
    pub fn memory(&self) -> Result<(usize, usize), DeviceError> {
        self.context.mem_get_info().during("cuMemGetInfo")
    }

    /// The stream that launches and copies use, unless another is named.
    pub fn stream(&self) -> Stream {
        Stream(self.stream.clone())
    }

    /// Whether `memory` belongs to this device's context.
    pub fn owns(&self, memory: &Allocation) -> bool {
        memory.is_of(&self.context)
    }

    /// The context, as a number that differs from every other's.
    pub(crate) fn context_address(&self) -> usize {
        self.context.cu_ctx().addr()
    }

    /// Asks the driver for functions before their first use.
    ///
    /// # Errors
    /// [`DeviceError::MissingSymbol`] with the first that it lacks.
    pub fn require(&self, symbols: &[&str]) -> Result<(), DeviceError> {
        // SAFETY: the library is loaded: the device is open.
        require(unsafe { sys::culib() }, symbols)
    }

    /// Launches on the device's stream. `arguments` are the bytes of each kernel parameter, in order.
    ///
    /// # Safety
    /// The arguments must match the kernel's parameters in number and size, and every pointer among them must lie in
    /// memory that outlives the launch.
    pub unsafe fn launch(
        &self,
        function: &Function,
        shape: LaunchShape,
        arguments: &mut [Vec<u8>],
    ) -> Result<(), DeviceError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_on(&self.stream(), function, shape, arguments) }
    }

    /// The same on `stream`.
    ///
    /// # Safety
    /// As for [`Device::launch`].
    pub unsafe fn launch_on(
        &self,
        stream: &Stream,
        function: &Function,
        shape: LaunchShape,
        arguments: &mut [Vec<u8>],
    ) -> Result<(), DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mut attributes = [sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        }];
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (shape.grid, shape.block);
        let config = sys::CUlaunchConfig {
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: function.shared_bytes(),
            hStream: stream.raw(),
            attrs: attributes.as_mut_ptr(),
            numAttrs: u32::from(shape.programmatic),
        };
        let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(|a| a.as_mut_ptr().cast()).collect();
        let function = function.raw();
        // SAFETY: the driver copies the arguments during the call; the rest is the caller's promise.
        unsafe { sys::cuLaunchKernelEx(&config, function, pointers.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
            .during("cuLaunchKernelEx")
    }

    /// The 128 bytes that stand for a tensor map in a kernel's parameter.
    pub fn encode(&self, map: &TensorMap) -> Result<[u8; 128], DeviceError> {
        use sys::{
            CUtensorMapDataType_enum as Element, CUtensorMapFloatOOBfill_enum as Fill,
            CUtensorMapInterleave_enum as Interleave, CUtensorMapL2promotion_enum as Promotion,
            CUtensorMapSwizzle_enum as Swizzle,
        };
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // Elements outside the tensor are zeros whatever their type, so that only the size matters.
        let element = match map.element_bytes {
            1 => Element::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            2 => Element::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            4 => Element::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            _ => Element::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        };
        let swizzle = match map.swizzle {
            TensorSwizzle::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            TensorSwizzle::B32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            TensorSwizzle::B64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            TensorSwizzle::B128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        };
        let rank = map.dims.len();
        // One more than there are strides, since no pointer may be null.
        let strides: Vec<u64> = map.strides.iter().copied().chain([0]).collect();
        let steps = vec![1u32; rank];
        let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: the driver reads `rank` dimensions, box sizes and steps and one stride less, all of which are there, and
        // writes `encoded`; the address is only stored.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut encoded,
                element,
                rank as u32,
                map.address as *mut c_void,
                map.dims.as_ptr(),
                strides.as_ptr(),
                map.box_dims.as_ptr(),
                steps.as_ptr(),
                Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                Promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()
        .during("cuTensorMapEncodeTiled")?;
        let mut bytes = [0; 128];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(encoded.opaque) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        Ok(bytes)
    }

    /// Copies `bytes` bytes of device memory on `stream`.
    ///
    /// # Safety
    /// Both ranges must lie in memory that outlives the copy, and must not overlap.
    pub(crate) unsafe fn copy_on(&self, stream: &Stream, to: u64, from: u64, bytes: u64) -> Result<(), DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtod_async(to, from, bytes as usize, stream.raw()) }.during("cuMemcpyDtoDAsync")
    }

    /// Writes device memory on the device's stream.
    ///
    /// # Safety
    /// The range must lie in memory that outlives the copy.
    pub(crate) unsafe fn write_at(&self, to: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: the caller's promise; pageable memory is copied before the call returns.
        unsafe { result::memcpy_htod_async(to, bytes, self.stream.cu_stream()) }.during("cuMemcpyHtoD")
    }

    /// Fills `bytes` bytes of device memory on `stream`.
    ///
    /// # Safety
    /// The range must lie in memory that outlives the fill.
    pub(crate) unsafe fn fill_on(&self, stream: &Stream, to: u64, byte: u8, bytes: u64) -> Result<(), DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(to, byte, bytes as usize, stream.raw()) }.during("cuMemsetD8Async")
    }

    /// Waits for everything on the device's stream; errors of the kernels surface here.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.stream.synchronize().during("cuStreamSynchronize")
    }

    /// Marks a moment on the device's stream.
    pub fn record(&self) -> Result<CudaEvent, DeviceError> {
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT;
        let event = self.context.new_event(Some(flags)).during("cuEventCreate")?;
        event.record(&self.stream).during("cuEventRecord")?;
        Ok(event)
    }

    /// Milliseconds of device time between two moments; waits for the second.
    pub fn elapsed(&self, start: &CudaEvent, end: &CudaEvent) -> Result<f32, DeviceError> {
        start.elapsed_ms(end).during("cuEventElapsedTime")
    }
}
