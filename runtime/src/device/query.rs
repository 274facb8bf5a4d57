//! What the driver says of itself and of its devices, before any is opened.

use std::fmt;

use cudarc::driver::{result, sys};
use lathe_codegen::target::Target;

use super::DeviceError;
use super::error::During;
use crate::toolchain::Version;

/// A device as the driver describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Marketing name.
    pub name: String,
    /// Compute capability.
    pub capability: Version,
    /// Memory in bytes.
    pub memory: usize,
    /// Streaming multiprocessors.
    pub sms: u32,
}

impl DeviceInfo {
    /// Whether machine code for `target` runs here.
    pub fn runs(&self, target: Target) -> bool {
        match target {
            Target::Sm90a => self.capability == (9, 0),
            Target::Sm120a => self.capability == (12, 0),
            Target::Sm120f => self.capability.0 == 12,
        }
    }

    /// Whether the driver can assemble PTX with this `.target` for the device: PTX for one architecture alone (`sm_90a`)
    /// only there, for a family (`sm_120f`) in the family, and any other on what is newer, too.
    pub fn assembles(&self, ptx_target: &str) -> bool {
        let (major, minor) = self.capability;
        let here = major * 10 + minor;
        let number = ptx_target.strip_prefix("sm_").unwrap_or(ptx_target);
        let of = |digits: &str| digits.parse::<u32>().ok();
        match (number.strip_suffix('a'), number.strip_suffix('f')) {
            (Some(exact), _) => of(exact) == Some(here),
            (_, Some(family)) => of(family).is_some_and(|least| least / 10 == major && least <= here),
            _ => of(number).is_some_and(|least| least <= here),
        }
    }

    /// The target to compile for: the exact one if there is one, else the family's.
    pub fn target(&self) -> Option<Target> {
        Target::ALL.into_iter().find(|target| self.runs(*target))
    }
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.capability;
        let gib = self.memory as f64 / f64::from(1 << 30);
        write!(f, "{}, sm_{major}{minor}, {} SMs, {gib:.0} GiB", self.name, self.sms)
    }
}

/// The oldest driver that has every function used here.
const MIN_DRIVER: Version = (12, 0);

/// The CUDA version that the installed driver supports.
pub fn driver_version() -> Result<Version, DeviceError> {
    // cudarc panics at first use when the library is missing.
    // SAFETY: loading NVIDIA's library runs only its own initialisers.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver);
    }
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().during("cuDriverGetVersion")?;
    let version = version.unsigned_abs();
    Ok((version / 1000, version % 1000 / 10))
}

/// Every device of the driver, by ordinal.
pub fn list() -> Result<Vec<DeviceInfo>, DeviceError> {
    let version = driver_version()?;
    if version < MIN_DRIVER {
        return Err(DeviceError::OldDriver(version));
    }
    match result::init() {
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => return Ok(Vec::new()),
        outcome => outcome.during("cuInit")?,
    }
    let count = result::device::get_count().during("cuDeviceGetCount")?;
    (0..count).map(describe).collect()
}

fn describe(ordinal: i32) -> Result<DeviceInfo, DeviceError> {
    use sys::CUdevice_attribute_enum as Attribute;
    let device = result::device::get(ordinal).during("cuDeviceGet")?;
    // SAFETY: `device` comes from `cuDeviceGet`.
    let attribute = |which| {
        let value = unsafe { result::device::get_attribute(device, which) };
        value.during("cuDeviceGetAttribute").map(i32::unsigned_abs)
    };
    Ok(DeviceInfo {
        name: result::device::get_name(device).during("cuDeviceGetName")?,
        capability: (
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        // SAFETY: as above.
        memory: unsafe { result::device::total_mem(device) }.during("cuDeviceTotalMem")?,
        sms: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(capability: Version) -> DeviceInfo {
        DeviceInfo { name: String::new(), capability, memory: 0, sms: 0 }
    }

    #[test]
    fn a_device_gets_its_exact_target_or_that_of_its_family() {
        assert_eq!(device((9, 0)).target(), Some(Target::Sm90a));
        assert_eq!(device((12, 0)).target(), Some(Target::Sm120a));
        assert_eq!(device((12, 1)).target(), Some(Target::Sm120f));
        assert_eq!(device((8, 0)).target(), None);
    }

    #[test]
    fn ptx_is_assembled_for_what_its_target_allows() {
        let on = |capability| move |target: &str| device(capability).assembles(target);
        assert_eq!(["sm_80", "sm_90", "sm_90a", "sm_100", "sm_120a"].map(on((9, 0))), [true, true, true, false, false]);
        assert_eq!(["sm_120f", "sm_120a", "sm_121a", "sm_100f"].map(on((12, 1))), [true, false, true, false]);
        assert_eq!(["", "sm_", "sm_x"].map(on((9, 0))), [false; 3]);
    }

    #[test]
    fn machine_code_for_an_exact_target_does_not_run_on_its_sibling() {
        assert!(!device((12, 1)).runs(Target::Sm120a));
        assert!(device((12, 0)).runs(Target::Sm120f));
    }
}
