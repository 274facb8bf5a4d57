//! A CUDA device as a backend: runs the machine code, and checks what can be seen from outside.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lathe_codegen::contract::{Buffer, Case, POISON, Scale};
use lathe_codegen::target::Target;

use super::arguments::{check, marshal};
use super::{Backend, Finding, FindingKind, Loaded, Run, RunError, Schedule};
use crate::device::{Allocation, Device, DeviceError, Function, GUARD, GUARD_BYTE, LaunchShape};
use crate::program::Program;

/// Runs machine code on a GPU, one launch at a time.
pub struct CudaBackend {
    device: Device,
    one_at_a_time: Mutex<()>,
}

impl CudaBackend {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        Ok(CudaBackend { device: Device::open(ordinal)?, one_at_a_time: Mutex::new(()) })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn scale(&self) -> Scale {
        Scale::Gpu
    }

    fn runs(&self, target: Target) -> bool {
        self.device.info().runs(target)
    }

    fn load<'a>(&'a self, program: &'a Program) -> Result<Box<dyn Loaded + 'a>, RunError> {
        let Program { cuda, compiled, .. } = program;
        let function = self.device.load(&compiled.cubin, &cuda.entry, cuda.shared_bytes)?;
        Ok(Box::new(OnDevice { backend: self, program, function }))
    }
}

struct OnDevice<'a> {
    backend: &'a CudaBackend,
    program: &'a Program,
    function: Function,
}

impl Loaded for OnDevice<'_> {
    fn run(&self, case: &Case, _schedule: Schedule) -> Result<Run, RunError> {
        let Program { kernel, cuda, compiled } = self.program;
        check(kernel, self.program.shared_bytes(), compiled.target, case)?;
        if case.grid.contains(&0) {
            let buffers = case.buffers.clone();
            return Ok(Run { buffers, ..Run::default() });
        }

        let device = &self.backend.device;
        let _guard = self.backend.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let allocations = case.buffers.iter().map(|buffer| upload(device, buffer)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<u64> = allocations.iter().map(Allocation::address).collect();
        let mut arguments = marshal(&case.args, &addresses, |map| device.encode(map))?;
        let shape = LaunchShape { grid: case.grid, threads: cuda.threads, programmatic: true };

        // A programmatic launch orders itself only against kernels, and only from its wait on.
        device.synchronize()?;
        let start = device.record()?;
        // SAFETY: `check` compared the arguments with the parameters that the text was printed from, and the
        // allocations live until after the synchronisation.
        unsafe { device.launch(&self.function, shape, &mut arguments)? };
        let end = device.record()?;
        device.synchronize()?;
        let elapsed = Duration::from_secs_f32(device.elapsed(&start, &end)?.max(0.0) / 1e3);

        let mut findings = Vec::new();
        let mut buffers = case.buffers.clone();
        for (buffer, allocation) in buffers.iter_mut().zip(&allocations) {
            findings.extend(stray_write(allocation, buffer)?.map(|detail| out_of_bounds(&kernel.name, detail)));
            for segment in &mut buffer.segments {
                allocation.read(segment.offset as i64, &mut segment.bytes)?;
            }
        }
        Ok(Run { buffers, findings, elapsed, ..Run::default() })
    }
}

fn upload(device: &Device, buffer: &Buffer) -> Result<Allocation, DeviceError> {
    let mut allocation = device.allocate(&buffer.name, buffer.len)?;
    for segment in &buffer.segments {
        let offset = segment.offset as usize;
        if segment.bytes.iter().all(|byte| *byte == POISON) {
            allocation.fill(offset, POISON, segment.bytes.len())?;
        } else {
            allocation.write(offset, &segment.bytes)?;
        }
    }
    Ok(allocation)
}

fn out_of_bounds(kernel: &str, detail: String) -> Finding {
    Finding {
        kind: FindingKind::OutOfBounds,
        kernel: kernel.to_owned(),
        detail,
        element: None,
        access: None,
        other: None,
        help: Some("the same case on `--backend emulator` names the access".to_owned()),
        count: 1,
    }
}

/// Looks at the guard zones and at the edges of the gaps between segments for bytes that the kernel changed.
fn stray_write(allocation: &Allocation, buffer: &Buffer) -> Result<Option<String>, DeviceError> {
    let mut bytes = vec![0; GUARD];
    for range in unmapped_edges(buffer) {
        let bytes = &mut bytes[..(range.end - range.start) as usize];
        allocation.read(range.start, bytes)?;
        if let Some(at) = bytes.iter().position(|byte| *byte != GUARD_BYTE) {
            let offset = range.start + at as i64;
            return Ok(Some(format!(
                "byte {offset} of `{}`, which no segment maps, was written: it holds {:#04x}",
                buffer.name, bytes[at]
            )));
        }
    }
    Ok(None)
}

/// The bytes next to every segment that belong to no segment, at most [`GUARD`] on each side; both guard zones included.
fn unmapped_edges(buffer: &Buffer) -> Vec<Range<i64>> {
    let guard = GUARD as i64;
    let mut edges = Vec::new();
    let mut end = -guard;
    let starts = buffer.segments.iter().map(|s| (s.offset as i64, s.offset as i64 + s.bytes.len() as i64));
    let past = buffer.len as i64 + guard;
    for (start, next_end) in starts.chain([(past, past)]) {
        match start - end {
            gap if gap <= 0 => {}
            gap if gap <= guard => edges.push(end..start),
            gap => {
                edges.push(end..end + guard.min(gap));
                edges.push(start - guard..start);
            }
        }
        end = next_end;
    }
    edges
}

#[cfg(test)]
mod tests {
    use lathe_codegen::contract::Segment;
    use lathe_codegen::dtype::Dtype;

    use super::*;

    fn edges(len: u64, segments: &[(u64, usize)]) -> Vec<Range<i64>> {
        let segments =
            segments.iter().map(|(offset, n)| Segment { offset: *offset, bytes: vec![0; *n], defined: true });
        unmapped_edges(&Buffer { name: String::new(), dtype: Dtype::U8, len, segments: segments.collect(), racy: 0..0 })
    }

    const G: i64 = GUARD as i64;

    #[test]
    fn a_dense_buffer_has_its_two_guard_zones() {
        assert_eq!(edges(100, &[(0, 100)]), [-G..0, 100..100 + G]);
    }

    #[test]
    fn gaps_are_watched_at_both_ends() {
        assert_eq!(edges(1 << 20, &[(0, 16), (20, 12), (1 << 19, 16)]).len(), 2 + 1 + 2 + 1);
        assert!(edges(1 << 20, &[(0, 16), (20, 12), (1 << 19, 16)]).contains(&(16..20)));
        assert!(edges(1 << 20, &[(0, 16), (20, 12), (1 << 19, 16)]).contains(&(32..32 + G)));
    }

    #[test]
    fn adjacent_segments_have_no_gap() {
        assert_eq!(edges(8, &[(0, 4), (4, 4)]), [-G..0, 8..8 + G]);
    }
}
