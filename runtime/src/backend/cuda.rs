//! A CUDA device as a backend: runs the machine code, and checks what can be seen from outside.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lathe_codegen::contract::{Case, Scale};
use lathe_codegen::target::Target;

use super::arguments::{check, marshal, may_write};
use super::device_memory::{Rest, stray_write, upload};
use super::{Backend, Finding, FindingKind, Loaded, Run, RunError, Schedule};
use crate::device::{Allocation, Device, DeviceError, Function, LaunchShape};
use crate::program::Program;

/// Runs machine code on a GPU, one launch at a time.
pub struct CudaBackend {
    device: Device,
    turns: Turns,
    scale: Scale,
    bare: bool,
}

impl CudaBackend {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let device = Device::open(ordinal)?;
        Ok(CudaBackend { device, turns: Turns::default(), scale: Scale::Gpu, bare: false })
    }

    /// The same with cases of another scale.
    pub fn with_scale(self, scale: Scale) -> Self {
        CudaBackend { scale, ..self }
    }

    /// The same with memory that ends where a buffer ends, and in which undefined bytes that the kernel only reads were
    /// never written, so that compute-sanitizer sees what guard zones and poison would hide from it.
    pub fn with_bare_memory(self) -> Self {
        CudaBackend { bare: true, ..self }
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
        self.scale
    }

    fn runs(&self, target: Target) -> bool {
        self.device.info().runs(target)
    }

    fn load<'a>(&'a self, program: &'a Program) -> Result<Box<dyn Loaded + 'a>, RunError> {
        let Program { cuda, compiled, .. } = program;
        let load = || self.device.load(&compiled.cubin, &cuda.entry, cuda.shared_bytes);
        let function = self.turns.take(|| format!("loading `{}`", cuda.entry), load)?;
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
        let Program { kernel, compiled, .. } = self.program;
        check(kernel, self.program.shared_bytes(), compiled.target, case)?;
        if case.grid.contains(&0) {
            let buffers = case.buffers.clone();
            return Ok(Run { buffers, ..Run::default() });
        }

        let what = || format!("case `{}` of `{}`", case.name, kernel.name);
        Ok(self.backend.turns.take(what, || self.launch(case))?)
    }
}

impl OnDevice<'_> {
    /// Runs a case whose arguments fit the kernel.
    fn launch(&self, case: &Case) -> Result<Run, DeviceError> {
        let Program { kernel, cuda, .. } = self.program;
        let device = &self.backend.device;
        let bare = self.backend.bare;
        let rests: Vec<Rest> =
            (0..case.buffers.len()).map(|index| Rest::of(bare, may_write(kernel, case, index))).collect();
        let uploads = case.buffers.iter().zip(&rests).map(|(buffer, rest)| upload(device, buffer, *rest));
        let allocations = uploads.collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<u64> = allocations.iter().map(Allocation::address).collect();
        let mut arguments = marshal(&case.args, &addresses, |map| device.encode(map))?;
        let shape = LaunchShape { grid: case.grid, block: [cuda.threads, 1, 1], programmatic: true };

        // A programmatic launch orders itself only against kernels, and only from its wait on.
        device.synchronize()?;
        let start = device.record()?;
        // SAFETY: the caller compared the arguments with the parameters that the text was printed from, and the
        // allocations live until after the synchronisation.
        unsafe { device.launch(&self.function, shape, &mut arguments)? };
        let end = device.record()?;
        device.synchronize()?;
        let elapsed = Duration::from_secs_f32(device.elapsed(&start, &end)?.max(0.0) / 1e3);

        let mut findings = Vec::new();
        let mut buffers = case.buffers.clone();
        for ((buffer, allocation), rest) in buffers.iter_mut().zip(&allocations).zip(rests) {
            if !bare {
                findings.extend(stray_write(allocation, buffer)?.map(|detail| out_of_bounds(&kernel.name, detail)));
            }
            for segment in buffer.segments.iter_mut().filter(|segment| rest.writes(segment)) {
                allocation.read(segment.offset as i64, &mut segment.bytes)?;
            }
        }
        Ok(Run { buffers, findings, elapsed, ..Run::default() })
    }
}

/// One launch at a time, and none once the context is lost.
#[derive(Default)]
struct Turns {
    /// During what it was lost.
    lost: Mutex<Option<String>>,
}

impl Turns {
    fn take<T>(
        &self,
        what: impl FnOnce() -> String,
        run: impl FnOnce() -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(during) = &*lost {
            return Err(DeviceError::Lost { during: during.clone() });
        }
        let done = run();
        if done.as_ref().is_err_and(DeviceError::is_sticky) {
            *lost = Some(what());
        }
        done
    }
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

#[cfg(test)]
mod tests {
    use cudarc::driver::DriverError;
    use cudarc::driver::sys::CUresult;

    use super::*;

    #[test]
    fn what_follows_a_fault_is_not_run_and_names_it() {
        let fails =
            |with| move || Err::<(), _>(DeviceError::Driver { call: "cuCtxSynchronize", error: DriverError(with) });
        let turns = Turns::default();
        let refused = turns.take(|| "case `a`".into(), fails(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        assert!(matches!(refused, Err(DeviceError::Driver { .. })));
        assert!(turns.take(|| "case `b`".into(), || Ok(())).is_ok(), "a device that is full can be used again");
        let fault = turns.take(|| "case `c`".into(), fails(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert!(matches!(fault, Err(DeviceError::Driver { .. })));
        let after = turns.take(|| "case `d`".into(), || -> Result<(), _> { panic!("the context is lost") });
        let message = after.unwrap_err().to_string();
        assert!(message.starts_with("not run: case `c` left the device unusable to this process"), "{message}");
    }
}
