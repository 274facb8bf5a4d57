//! One way to run a kernel, whatever runs it: the emulator, which sees everything, or a CUDA device, which is fast.

mod arguments;
mod cuda;
pub(crate) mod device_memory;
mod emulator;
mod finding;

use std::time::Duration;

use lathe_codegen::contract::{Buffer, Case, Scale};
use lathe_codegen::loc::Loc;
use lathe_codegen::target::Target;

pub use arguments::ArgumentError;
pub(crate) use arguments::{check as check_arguments, marshal};
pub use cuda::CudaBackend;
pub use emulator::EmulatorBackend;
pub use finding::{Access, Finding, FindingKind, merge as merge_findings};

use crate::device::DeviceError;
use crate::program::Program;

/// Something that runs kernels.
pub trait Backend: Sync {
    /// `emulator` or `cuda`.
    fn name(&self) -> &'static str;

    /// How much a list of cases may ask of it.
    fn scale(&self) -> Scale;

    /// Whether machine code for `target` runs here.
    fn runs(&self, target: Target) -> bool;

    /// Makes a program ready to run, once for all its cases.
    fn load<'a>(&'a self, program: &'a Program) -> Result<Box<dyn Loaded + 'a>, RunError>;
}

/// A program on a backend.
pub trait Loaded: Sync {
    /// Checks the arguments of `case`, launches, waits, and gives back its buffers as the kernel left them.
    ///
    /// A grid with a zero launches nothing. The judge of the case is not asked.
    fn run(&self, case: &Case, schedule: Schedule) -> Result<Run, RunError>;
}

/// What a launch may vary without changing the result of a correct kernel. A device does as it likes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Chooses the order of warps; 0 runs each as far as it goes, in order.
    pub seed: u64,
    /// Whether asynchronous copies land as late as the program allows, instead of at once.
    pub late_copies: bool,
}

/// What a launch left.
#[derive(Debug, Default)]
pub struct Run {
    /// The case's buffers, after the launch.
    pub buffers: Vec<Buffer>,
    /// What was wrong on the way, one for each cause.
    pub findings: Vec<Finding>,
    /// Lane-instructions executed; 0 where nobody counts them.
    pub lane_instructions: u64,
    /// How long the launch took, without copies: on the device by its own clock.
    pub elapsed: Duration,
    /// What each access cost, where that was counted.
    pub traffic: Vec<Traffic>,
}

/// What the accesses of one instruction cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Traffic {
    /// Where the author wrote it.
    pub rust: Option<Loc>,
    /// Line of the PTX.
    pub ptx_line: u32,
    /// PTX opcode.
    pub opcode: String,
    /// Sums over the launch.
    pub counts: lathe_emulator::Counts,
}

/// Why a launch did not happen or did not end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The arguments do not fit the kernel.
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    /// The kernel does not come to an end.
    #[error(
        "CTA ({}, {}, {}) has executed {limit} instructions without reaching the end, the last at {at}: an endless loop?",
        .cta[0], .cta[1], .cta[2]
    )]
    Endless {
        /// The CTA.
        cta: [u32; 3],
        /// Warp instructions that it may execute.
        limit: u64,
        /// Where the author wrote the last one.
        at: Loc,
    },
    /// The emulator refused or gave up.
    #[error(transparent)]
    Emulator(#[from] lathe_emulator::Error),
    /// The device refused or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
