//! What the device's memory gives, measured: the ceiling that times are held against.

use crate::device::{Device, DeviceError, LaunchShape};
use crate::nvrtc::{CompileError, Compiler};

use super::Samples;

/// Bytes a second, medians.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Reading, each byte once.
    pub read: f64,
    /// Copying, bytes read and bytes written together.
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

extern "C" __global__ void __launch_bounds__(512) stream(const uint4* from, uint4* to, long long words, int copies) {
  const long long step = (long long)gridDim.x * blockDim.x;
  unsigned sum = 0;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += 8 * step) {
    uint4 v[8];
    #pragma unroll
    for (int u = 0; u < 8; ++u) if (i + u * step < words) v[u] = load(from + i + u * step);
    #pragma unroll
    for (int u = 0; u < 8; ++u) if (i + u * step < words) {
      if (copies) to[i + u * step] = v[u];
      sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
    }
  }
  if (!copies && sum == 0x12345678u) to[0].x = sum;
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
    let function = device.load(&compiled.cubin, "stream", 0)?;
    let bytes = BYTES.min(device.memory()?.0 as u64 / 4) / 16 * 16;
    let mut from = device.allocate("the bytes read", bytes)?;
    from.fill(0, 0x3c, bytes as usize)?;
    let to = device.allocate("the bytes written", bytes)?;
    let shape = LaunchShape { grid: [4 * device.info().sms, 1, 1], threads: THREADS, programmatic: false };
    let run = |copies: i32| -> Result<f64, DeviceError> {
        let mut arguments = [
            from.address().to_le_bytes().to_vec(),
            to.address().to_le_bytes().to_vec(),
            ((bytes / 16) as i64).to_le_bytes().to_vec(),
            copies.to_le_bytes().to_vec(),
        ];
        let start = device.record()?;
        // SAFETY: the arguments are the parameters of `stream`, and both allocations hold `bytes` bytes.
        unsafe { device.launch(&function, shape, &mut arguments)? };
        let end = device.record()?;
        device.synchronize()?;
        Ok(f64::from(device.elapsed(&start, &end)?) / 1e3)
    };
    let median = |copies| -> Result<f64, DeviceError> {
        run(copies)?;
        let seconds = (0..REPLAYS).map(|_| run(copies)).collect::<Result<Vec<_>, _>>()?;
        Ok(Samples::new(seconds).median())
    };
    Ok(Some(Bandwidth { read: bytes as f64 / median(0)?, copy: 2.0 * bytes as f64 / median(1)? }))
}
