//! What the device's memory gives, measured: the ceiling that times are held against.

use crate::device::{Device, DeviceError, LaunchShape};
use crate::nvrtc::{CompileError, Compiler};

use super::Samples;

/// Bytes a second, medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Reading, each byte once.
    pub read: f64,
    /// Copying by the driver, bytes read and bytes written together.
    pub copy: f64,
}

/// Why the bandwidth is not known.
#[derive(Debug, thiserror::Error)]
pub enum BandwidthError {
    /// The kernels did not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The device failed, or runs no target of Lathe's.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A grid-stride loop over 16-byte words, 8 in flight a thread; the sum keeps the compiler from dropping the loads.
const SOURCE: &str = r#"
__device__ __forceinline__ uint4 load(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

extern "C" __global__ void __launch_bounds__(512) read(const uint4* from, unsigned* out, long long words) {
  const long long step = (long long)gridDim.x * blockDim.x;
  unsigned sum = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += 8 * step) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) if (i + u * step < words) {
      const uint4 v = load(from + i + u * step);
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (sum == 0x12345678u) *out = sum;
}
"#;

const THREADS: u32 = 512;

/// Bytes that are read: many times the L2, and quick to allocate.
const BYTES: u64 = 2 << 30;

const REPLAYS: usize = 9;

/// Measures `device`, whose own target it must have.
pub fn bandwidth(device: &Device, compiler: &Compiler) -> Result<Option<Bandwidth>, BandwidthError> {
    let Some(target) = device.info().target() else { return Ok(None) };
    let compiled = compiler.compile(SOURCE, target)?;
    let function = device.load(&compiled.cubin, "read", 0)?;
    let bytes = BYTES.min(device.memory()?.0 as u64 / 4) / 16 * 16;
    let mut from = device.allocate("the bytes read", bytes)?;
    from.fill(0, 0x3c, bytes as usize)?;
    let mut to = device.allocate("the bytes written", bytes)?;
    let shape = LaunchShape { grid: [4 * device.info().sms, 1, 1], block: [THREADS, 1, 1], programmatic: false };
    let mut arguments = [from.address(), to.address(), bytes / 16].map(|value| value.to_le_bytes().to_vec());
    // SAFETY: the arguments are the parameters of `read`, and both allocations outlive the launches.
    let read = median(device, || unsafe { device.launch(&function, shape, &mut arguments) })?;
    let copy = median(device, || to.copy(&from))?;
    Ok(Some(Bandwidth { read: bytes as f64 / read, copy: 2.0 * bytes as f64 / copy }))
}

/// Seconds that `work` takes on the device's stream.
fn median(device: &Device, mut work: impl FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
    let mut run = || -> Result<f64, DeviceError> {
        let start = device.record()?;
        work()?;
        let end = device.record()?;
        device.synchronize()?;
        Ok(f64::from(device.elapsed(&start, &end)?) / 1e3)
    };
    run()?;
    let seconds = (0..REPLAYS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    Ok(Samples::new(seconds).median())
}
