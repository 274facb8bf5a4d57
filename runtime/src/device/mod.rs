//! The CUDA device, through cudarc, found at run time.

use cudarc::driver::{DriverError, result, sys};

/// Why no CUDA device can be used, or what went wrong on it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// `libcuda.so` cannot be loaded.
    #[error("no NVIDIA driver: libcuda.so cannot be loaded; `--backend emulator` needs none")]
    NoDriver,
    /// A driver call failed.
    #[error("{call} failed: {error}")]
    Driver {
        /// The driver function.
        call: &'static str,
        /// What it returned.
        error: DriverError,
    },
}

/// The CUDA version that the installed driver supports, as (major, minor).
pub fn driver_version() -> Result<(u32, u32), DeviceError> {
    // cudarc panics at first use when the library is missing.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    result::init().map_err(|error| DeviceError::Driver { call: "cuInit", error })?;
    let mut version = 0;
    unsafe { sys::cuDriverGetVersion(&mut version) }
        .result()
        .map_err(|error| DeviceError::Driver { call: "cuDriverGetVersion", error })?;
    Ok((version as u32 / 1000, version as u32 % 1000 / 10))
}
