//! A CUDA device as a backend: runs the machine code, and checks what can be seen from outside.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lathe_codegen::contract::{Arg, Case, Scale};
use lathe_codegen::ir::{Kernel, ParamKind};
use lathe_codegen::target::Target;

use super::arguments::{check, marshal};
use super::device_memory::{Rest, stray_write, upload};
use super::{Backend, Finding, FindingKind, Loaded, Run, RunError, Schedule};
use crate::device::{Allocation, Device, DeviceError, Function, LaunchShape};
use crate::program::Program;

/// Runs machine code on a GPU, one launch at a time.
pub struct CudaBackend {
    device: Device,
    one_at_a_time: Mutex<()>,
    scale: Scale,
    bare: bool,
}

impl CudaBackend {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self, DeviceError> {
        let device = Device::open(ordinal)?;
        Ok(CudaBackend { device, one_at_a_time: Mutex::new(()), scale: Scale::Gpu, bare: false })
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
        // SAFETY: `check` compared the arguments with the parameters that the text was printed from, and the
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

/// Whether an argument through which the kernel may write points into the buffer with this index.
fn may_write(kernel: &Kernel, case: &Case, index: usize) -> bool {
    kernel.params.iter().zip(&case.args).any(|(param, arg)| match (param.kind, arg) {
        (ParamKind::Pointer { access, .. }, Arg::Pointer { buffer, .. }) => *buffer == index && access.writes(),
        _ => false,
    })
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
