use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;

/// Why no CUDA device can be used, or what went wrong on it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// `libcuda.so` cannot be loaded.
    #[error("no NVIDIA driver: libcuda.so cannot be loaded; `--backend emulator` needs none")]
    NoDriver,
    /// The driver is older than the code needs.
    #[error("the driver supports CUDA {}.{}, and Lathe needs 12.0 or later: update it", .0.0, .0.1)]
    OldDriver((u32, u32)),
    /// The driver lacks a function.
    #[error("the driver has no `{symbol}`, which captured graphs need: update it to one for CUDA 12.4 or later")]
    MissingSymbol {
        /// The function.
        symbol: String,
    },
    /// There is no such device.
    #[error("there is no CUDA device {ordinal}: the driver lists {count}; `--backend emulator` needs none")]
    NoDevice {
        /// The device asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The device cannot hold what a launch needs.
    #[error("buffer `{buffer}` needs {needed} bytes of device memory and {free} are free")]
    OutOfMemory {
        /// The buffer that did not fit.
        buffer: String,
        /// Its size with guard zones.
        needed: u64,
        /// What was free.
        free: u64,
    },
    /// The driver does not assemble the PTX.
    #[error("the driver's assembler refuses the PTX:\n{log}")]
    Assembler {
        /// What it says.
        log: String,
    },
    /// A kernel's fault took the context with it.
    #[error(
        "not run: {during} left the device unusable to this process; leave it out, or see what it does on `--backend emulator`"
    )]
    Lost {
        /// What the device did then.
        during: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {error}{}", advice(*error))]
    Driver {
        /// The driver function.
        call: &'static str,
        /// What it returned.
        error: DriverError,
    },
}

impl DeviceError {
    /// Whether the context is lost: every later call fails, whatever it does.
    pub fn is_sticky(&self) -> bool {
        let DeviceError::Driver { error, .. } = self else { return false };
        matches!(
            error.0,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
                | CUresult::CUDA_ERROR_LAUNCH_FAILED
                | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
                | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
                | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
                | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
                | CUresult::CUDA_ERROR_INVALID_PC
                | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
                | CUresult::CUDA_ERROR_ASSERT
        )
    }
}

fn advice(error: DriverError) -> &'static str {
    match error.0 {
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS => {
            "; the same case on `--backend emulator` names the access"
        }
        CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU => "; the kernel was compiled for another architecture, see `--target`",
        _ => "",
    }
}

/// Says which driver call an error came from.
pub(super) trait During<T> {
    fn during(self, call: &'static str) -> Result<T, DeviceError>;
}

impl<T> During<T> for Result<T, DriverError> {
    fn during(self, call: &'static str) -> Result<T, DeviceError> {
        self.map_err(|error| DeviceError::Driver { call, error })
    }
}
