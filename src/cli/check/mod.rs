//! `lathe check`: compiles every kernel for every target, runs every case, and judges the results.

mod agree;
mod report;
pub(super) mod row;

use std::process::ExitCode;
use std::time::Instant;

use anstream::eprintln;
use lathe_codegen::contract::Scale;
use lathe_codegen::target::Target;
use lathe_runtime::backend::{Backend, CudaBackend, EmulatorBackend};
use lathe_runtime::nvrtc::Compiler;

use super::backend::{BackendArgs, BackendError};
use super::sources::Sources;
use super::{Context, Outcome, select, terminal};
use row::Checker;

/// Compile the kernels, run their cases, and judge the results
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 if everything passed, 1 if a kernel failed, 2 if the check could not be made.

Examples:
  lathe check                                        every kernel, on the emulator
  lathe check --kernel bf16_index_k_store            one kernel
  lathe check --filter 'next_n=4' --seeds 20         some cases, under 20 warp orders
  lathe check --kernel bf16_index_k_store --stats    with bank conflicts and sectors, by line
  lathe check --backend cuda --json > result.json    on the GPU, for a program to read")]
pub struct Args {
    #[command(flatten)]
    backend: BackendArgs,

    /// On a GPU: run the emulator's small cases instead of the peers' own sizes
    #[arg(long)]
    small: bool,

    /// Only this target (may be given several times); all of them, or on a GPU its own, if left out
    #[arg(long)]
    target: Vec<Target>,

    /// Only this kernel (may be given several times)
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,

    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,

    /// Run each case under so many orders of its warps, each with asynchronous copies landing at once and as late as
    /// the kernel allows; on a GPU, so many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,

    /// Skip the checks for races and for copies in flight
    #[arg(long)]
    fast: bool,

    /// On the emulator: also count what each access costs, by the line of the Rust source: bank conflicts of shared
    /// memory and sectors of global memory
    #[arg(long)]
    stats: bool,
}

/// Why nothing was checked.
#[derive(Debug, thiserror::Error)]
pub(super) enum CheckError {
    #[error("the device runs no target that Lathe generates code for (sm_90a, sm_120a, sm_120f); see `lathe doctor`")]
    NoTarget,
    #[error("the device does not run machine code for {target}; leave `--target` out to use its own")]
    ForeignTarget { target: Target },
    #[error("no case's name contains `{filter}`")]
    NoCase { filter: String },
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let start = Instant::now();
    let on_device = args.backend.on_device(args.stats)?;
    if args.small && !on_device {
        return Err(BackendError::OnlyOnDevice { argument: "--small" }.into());
    }
    let entries = select::entries(context.entries, &args.kernel)?;
    let (backend, default_targets): (Box<dyn Backend>, Vec<Target>) = match on_device {
        false => (Box::new(EmulatorBackend { fast: args.fast, traffic: args.stats }), Target::ALL.to_vec()),
        true => {
            let mut backend = CudaBackend::open(0)?;
            let own = backend.device().info().target();
            if args.small {
                backend = backend.with_scale(Scale::Emulator);
            }
            if args.backend.bare {
                backend = backend.with_bare_memory();
            }
            (Box::new(backend), own.into_iter().collect())
        }
    };
    let mut targets = if args.target.is_empty() { default_targets } else { args.target.clone() };
    targets.sort_unstable();
    targets.dedup();
    if targets.is_empty() {
        return Err(CheckError::NoTarget.into());
    }
    if let Some(target) = targets.iter().copied().find(|target| !backend.runs(*target)) {
        return Err(CheckError::ForeignTarget { target }.into());
    }
    // Only now: what cannot run needs no compiler.
    let toolchain = terminal::toolchain(context.offline);
    let compiler = Compiler::load(&toolchain)?;

    let disassembler = toolchain.nvdisasm();
    if let Err(error) = &disassembler {
        eprintln!("\x1b[1;33mwarning\x1b[0m: the machine code is not looked at for loads above the PDL wait: {error}");
    }
    let checker = Checker {
        backend: &*backend,
        compiler: &compiler,
        toolchain: &toolchain,
        disassembles: disassembler.is_ok(),
        targets: &targets,
        filter: &args.filter,
        seeds: args.seeds,
        compare: args.backend.compare.then(EmulatorBackend::default),
    };
    let rows = checker.check(&entries)?;
    let failed = rows.iter().any(|row| !row.passed());
    if !failed && rows.iter().all(|row| row.outcome.cases == 0) {
        return Err(CheckError::NoCase { filter: args.filter.clone() }.into());
    }
    if args.json {
        report::json(&rows);
    } else {
        report::diagnostics(&rows, &Sources::new(context.entries));
        report::table(&rows);
        report::agreements(&rows);
        report::traffic(&rows);
        report::summary(&rows, start.elapsed(), compiler.library().version);
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
