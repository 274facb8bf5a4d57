//! Kernels on the device: machine code as it is, or PTX that the driver assembles.

use std::ffi::{CString, c_void};
use std::sync::Arc;

use cudarc::driver::{CudaContext, result, sys};

use super::error::During;
use super::{Device, DeviceError};

/// Bytes for what the assembler says of PTX that it refuses.
const LOG_BYTES: usize = 16 << 10;

/// A kernel on the device, with the module that holds it.
pub struct Function {
    context: Arc<CudaContext>,
    module: sys::CUmodule,
    function: sys::CUfunction,
    /// Dynamic shared memory that every launch gets.
    shared_bytes: u32,
}

// SAFETY: the handles are names for the driver, which serialises what threads ask of it.
unsafe impl Send for Function {}
// SAFETY: as above; nothing here changes through a shared reference.
unsafe impl Sync for Function {}

impl Device {
    /// Loads `entry` of a cubin and reserves `shared_bytes` of dynamic shared memory for its launches.
    pub fn load(&self, cubin: &[u8], entry: &str, shared_bytes: u32) -> Result<Function, DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        // SAFETY: a cubin says itself how long it is.
        let module = unsafe { result::module::load_data(cubin.as_ptr().cast()) }.during("cuModuleLoadData")?;
        self.function(module, entry, shared_bytes)
    }

    /// The same of PTX, which the driver assembles for this device, with the lines of its source.
    ///
    /// # Errors
    /// [`DeviceError::Assembler`] with the assembler's own words where it refuses the text.
    pub fn load_ptx(&self, ptx: &str, entry: &str, shared_bytes: u32) -> Result<Function, DeviceError> {
        use sys::CUjit_option as Jit;
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let text = CString::new(ptx).map_err(|_| DeviceError::Assembler { log: "it holds a NUL byte".into() })?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options =
            [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, Jit::CU_JIT_GENERATE_LINE_INFO];
        // Numbers travel in the place of pointers.
        let number = |value: usize| value as *mut c_void;
        let mut values = [log.as_mut_ptr().cast(), number(LOG_BYTES), number(1)];
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends in zero; there are as many values as options, and the log has the room that they say.
        let outcome = unsafe {
            sys::cuModuleLoadDataEx(
                &mut module,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if let Err(error) = outcome.result() {
            let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
            let said = String::from_utf8_lossy(said).trim().to_owned();
            return match said.is_empty() {
                true => Err(DeviceError::Driver { call: "cuModuleLoadDataEx", error }),
                false => Err(DeviceError::Assembler { log: said }),
            };
        }
        self.function(module, entry, shared_bytes)
    }

    /// Finds `entry` in a module, which the function then owns.
    fn function(&self, module: sys::CUmodule, entry: &str, shared_bytes: u32) -> Result<Function, DeviceError> {
        let mut found =
            Function { context: self.context.clone(), module, function: std::ptr::null_mut(), shared_bytes };
        let name = CString::new(entry).unwrap_or_default();
        // SAFETY: the module is loaded.
        found.function = unsafe { result::module::get_function(module, name) }.during("cuModuleGetFunction")?;
        // More than 48 KB of dynamic shared memory is given only to those who ask.
        let most = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the function was found just now.
        unsafe { result::function::set_function_attribute(found.function, most, shared_bytes as i32) }
            .during("cuFuncSetAttribute")?;
        Ok(found)
    }

    /// How many CTAs of `threads` threads an SM holds at once.
    pub fn ctas_per_sm(&self, function: &Function, threads: u32) -> Result<u32, DeviceError> {
        self.context.bind_to_thread().during("cuCtxSetCurrent")?;
        let mut count = 0;
        // SAFETY: the function is alive, and the pointer is valid for the call.
        unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut count,
                function.function,
                threads as i32,
                function.shared_bytes as usize,
            )
        }
        .result()
        .during("cuOccupancyMaxActiveBlocksPerMultiprocessor")?;
        Ok(count.unsigned_abs())
    }
}

impl Function {
    /// The bytes of each parameter, in order.
    pub fn parameter_sizes(&self) -> Vec<usize> {
        parameter_sizes(self.function)
    }

    pub(super) fn raw(&self) -> sys::CUfunction {
        self.function
    }

    pub(super) fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: loaded once, unloaded once.
        self.context.record_err(unsafe { result::module::unload(self.module) });
    }
}

/// The driver counts the parameters of a function by refusing the one past the last.
pub(super) fn parameter_sizes(function: sys::CUfunction) -> Vec<usize> {
    let size = |index| {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the function is alive, and the pointers are valid for the call.
        let answer = unsafe { sys::cuFuncGetParamInfo(function, index, &mut offset, &mut size) };
        answer.result().ok().map(|()| size)
    };
    (0..).map_while(size).collect()
}
