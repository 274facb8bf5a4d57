//! Something that computes a workload.

use lathe_codegen::benchmark::{Configuration, Memory};
use lathe_codegen::contract::{Arg, Buffer, Case, Verdict};
use lathe_codegen::target::Target;
use lathe_codegen::trace::TraceErrors;

use crate::backend::{ArgumentError, check_arguments, marshal};
use crate::device::{Device, DeviceError, Function, LaunchShape};
use crate::nvrtc::Compiler;
use crate::program::{Program, ProgramError};

/// A kernel on the device with a grid, ready to be launched on a workload's memory.
pub struct Contender {
    /// What it is called in results.
    pub name: String,
    /// CTAs in x, y, z.
    pub grid: [u32; 3],
    threads: u32,
    function: Function,
    /// What it was compiled from, if Lathe knows its parameters.
    program: Option<Program>,
    /// Arguments behind those of the workload.
    extra: Vec<i32>,
}

/// The launch of a kernel that Lathe did not generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContenderShape {
    /// CTAs in x, y, z.
    pub grid: [u32; 3],
    /// Threads a CTA.
    pub threads: u32,
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
}

/// Why a configuration cannot be timed.
#[derive(Debug, thiserror::Error)]
pub enum ContenderError {
    /// The kernel does not trace with these parameters.
    #[error(transparent)]
    Trace(#[from] TraceErrors),
    /// It does not print or compile.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The device does not take it.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Contender {
    /// A configuration of one of Lathe's kernels, compiled for the device's own target and loaded.
    pub fn of_configuration(
        device: &Device,
        compiler: &Compiler,
        target: Target,
        name: String,
        configuration: Configuration,
    ) -> Result<Contender, ContenderError> {
        let program = Program::compile(compiler, &configuration.kernel?, target)?;
        let Program { cuda, compiled, .. } = &program;
        let function = device.load(&compiled.cubin, &cuda.entry, cuda.shared_bytes)?;
        let threads = cuda.threads;
        Ok(Contender { name, grid: configuration.grid, threads, function, program: Some(program), extra: Vec::new() })
    }

    /// Another kernel, whose parameters are those of the workload's kernel, then `extra`.
    pub fn of_cubin(
        device: &Device,
        name: String,
        cubin: &[u8],
        entry: &str,
        shape: ContenderShape,
        extra: Vec<i32>,
    ) -> Result<Contender, DeviceError> {
        let ContenderShape { grid, threads, shared_bytes } = shape;
        let function = device.load(cubin, entry, shared_bytes)?;
        Ok(Contender { name, grid, threads, function, program: None, extra })
    }

    /// How many of its CTAs an SM holds at once.
    pub fn ctas_per_sm(&self, device: &Device) -> Result<u32, DeviceError> {
        device.ctas_per_sm(&self.function, self.threads)
    }

    /// What it was compiled from, if it is one of Lathe's kernels.
    pub fn program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    /// Compares arguments over `memory` with the kernel's parameters, where they are known.
    pub(super) fn check(&self, memory: &[Memory], args: &[Arg]) -> Result<(), ArgumentError> {
        let Some(program) = &self.program else { return Ok(()) };
        let buffers = memory.iter().map(|memory| Buffer {
            name: memory.name.clone(),
            dtype: memory.dtype,
            len: memory.len,
            segments: Vec::new(),
            racy: 0..0,
        });
        let case = Case {
            name: self.name.clone(),
            grid: self.grid,
            buffers: buffers.collect(),
            args: args.to_vec(),
            verify: Box::new(|_| Verdict::default()),
        };
        check_arguments(&program.kernel, program.shared_bytes(), program.compiled.target, &case)
    }

    /// Launches on the device's stream, over memory at `addresses`.
    pub(super) fn launch(
        &self,
        device: &Device,
        args: &[Arg],
        addresses: &[u64],
        programmatic: bool,
    ) -> Result<(), DeviceError> {
        let mut arguments = marshal(args, addresses, |map| device.encode(map))?;
        arguments.extend(self.extra.iter().map(|value| value.to_le_bytes().to_vec()));
        let shape = LaunchShape { grid: self.grid, block: [self.threads, 1, 1], programmatic };
        // SAFETY: `check` compared the arguments of Lathe's own kernels with their parameters; whoever brings another
        // kernel promises that it takes the same, and the `Bench` that launches owns the memory.
        unsafe { device.launch(&self.function, shape, &mut arguments) }
    }
}
