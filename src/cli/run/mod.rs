//! `lathe run`: executes PTX from anywhere on the emulator, with every check, or on a GPU.

mod message;
mod on_device;
mod report;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anstream::eprintln;
use lathe_emulator::{Checks, CpAsync, Error, Finding, Kernel, Module, Options};
use lathe_runtime::launch_file::{BufferAfter, LaunchFile, Outcome as Launched, Prepared, template};

use super::backend::BackendArgs;
use super::diagnostic::Diagnostic;
use super::sources::Sources;
use super::{Context, Outcome, terminal};
use crate::cli::output::print;

/// Run PTX from anywhere on the emulator, with every check, or on a GPU
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The PTX, as nvcc, NVRTC or Triton printed it
    ptx: PathBuf,

    /// How to launch it: a TOML file with the grid, the arguments and the buffers; left out, one to begin with is printed
    #[arg(long, value_name = "FILE.toml")]
    args: Option<PathBuf>,

    #[command(flatten)]
    backend: BackendArgs,

    /// The kernel; only needed where the PTX has several and the launch file names none
    #[arg(long, value_name = "NAME")]
    entry: Option<String>,

    /// Write every buffer that the kernel may have written to FOLDER/NAME.npy
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Run under so many orders of the warps, each with asynchronous copies landing at once and as late as the kernel
    /// allows; on a GPU, so many times. The results are those of the first
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,

    /// Instructions that a warp of one CTA, or all of them together, may execute before the launch counts as endless
    #[arg(long, value_name = "N", default_value_t = 1 << 26)]
    step_limit: u64,

    /// Skip the checks for races, copies in flight and undefined bits
    #[arg(long)]
    fast: bool,

    /// Also count what each access costs: bank conflicts of shared memory and sectors of global memory, by line
    #[arg(long)]
    stats: bool,

    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

const HELP: &str = "The launch file:

  entry = \"scale\"              # where the PTX has several kernels
  grid = [4, 2]                # CTAs along x, y, z
  block = 128                  # threads of a CTA; may be left out where the PTX fixes it
  dynamic_shared = 20480       # bytes
  args = [\"out\", \"x\", { buffer = \"x\", offset = 512 }, { i32 = 256 }, { u64 = 0 }]

  [buffers.x]
  dtype = \"bf16\"               # bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 e4m3 e5m2
  shape = [4, 256]
  fill = { normal = [0, 1], seed = 7 }
  access = \"read\"              # optional: read, write_all, write_part, read_write; checked if given

  [buffers.out]
  dtype = \"f32\"
  shape = [4, 256]             # no fill: undefined until the kernel writes it

  Arguments, one for each parameter: a buffer by name, or { buffer = \"x\", offset = BYTES }; a scalar by its type, such
  as { f32 = 0.5 }; a struct by value, { struct = [\"x\", { i32 = 5 }] }; a tensor map, { tensor = \"x\", box = [64, 128],
  swizzle = 128 }, outermost extent first, with dims, strides (in elements) and offset where the buffer's shape is not it.
  Fills: \"undefined\", \"zeros\", \"iota\", { constant = 1.5 }, { values = [700, 130] }, { uniform = [-1, 1], seed = 7 },
  { normal = [0, 1], seed = 7 }, { file = \"x.npy\" }, { file = \"x.bin\" }. Paths are relative to the launch file.
  bf16 and 8-bit floats stand in .npy files as unsigned integers of their size.

Exit status: 0 if nothing was found, 1 if something was, 2 if the kernel could not be run to its end.

Examples:
  lathe run kernel.ptx > launch.toml                 a launch file to begin with, with a place for every parameter
  lathe run kernel.ptx --args launch.toml            run and check it
  lathe run kernel.ptx --args launch.toml --out out  ... and write its results to out/*.npy
  lathe run kernel.ptx --args launch.toml --stats    ... and say which lines have bank conflicts or waste sectors
  lathe run kernel.ptx --args launch.toml --seeds 20 --json > result.json
  lathe run kernel.ptx --args launch.toml --backend cuda --compare
                                                     on a GPU, and how far its results are from the emulator's
  compute-sanitizer lathe run kernel.ptx --args launch.toml --backend cuda --bare";

/// Why nothing was run, where no file's text is to blame.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error("`{}` cannot be read", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is not UTF-8 text; a launch file is TOML", .path.display())]
    NotText { path: PathBuf },
    #[error("`{}` has several kernels: name one of {} with `--entry`, or as `entry` in the launch file", .path.display(), .names.join(", "))]
    SeveralEntries { path: PathBuf, names: Vec<String> },
    #[error("`{}` has no kernel: there is no `.entry` in it", .path.display())]
    NoEntry { path: PathBuf },
    #[error("`{}` cannot be written", .folder.display())]
    Write { folder: PathBuf, source: io::Error },
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let on_device = args.backend.on_device(args.stats)?;
    let sources = Sources::new(context.entries);
    let refuse = |diagnostic: Diagnostic| {
        eprintln!("{}", diagnostic.render(&sources));
        Ok(ExitCode::from(2))
    };
    let read = |path: &Path| std::fs::read(path).map_err(|source| RunError::Read { path: path.into(), source });
    let ptx = read(&args.ptx)?;
    let module = match Module::parse(&ptx) {
        Ok(module) => module,
        Err(error) => return refuse(message::of_error(&error, &args.ptx)),
    };
    let Some(path) = &args.args else {
        return match entry(&module, args, None)? {
            Ok(kernel) => {
                print!("{}", template(&kernel));
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => refuse(message::of_error(&error, &args.ptx)),
        };
    };
    let text = String::from_utf8(read(path)?).map_err(|_| RunError::NotText { path: path.clone() })?;
    let file = match LaunchFile::parse(&text) {
        Ok(file) => file,
        Err(error) => return refuse(message::of_launch_file(&error, path, &text)),
    };
    let kernel = match entry(&module, args, file.entry.as_deref())? {
        Ok(kernel) => kernel,
        Err(error) => return refuse(message::of_error(&error, &args.ptx)),
    };
    let prepared = match file.prepare(&kernel, path.parent().unwrap_or(Path::new(""))) {
        Ok(prepared) => prepared,
        Err(error) => return refuse(message::of_launch_file(&error, path, &text)),
    };
    if on_device {
        return on_device::run(args, &String::from_utf8_lossy(&ptx), &module, &prepared, &sources);
    }
    let result = match launch(&prepared, args) {
        Ok(result) => result,
        Err(error) => return refuse(message::of_error(&error, &args.ptx)),
    };

    let saved = save(&result.first.buffers, args)?;
    let report =
        report::Report { ptx: &args.ptx, target: module.target(), prepared: &prepared, result: &result, saved: &saved };
    if args.json {
        report.json();
    } else {
        report.messages(&sources);
        report.tables(args.stats);
    }
    Ok(if result.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the results to the folder that was asked for, if one was.
fn save(buffers: &[BufferAfter], args: &Args) -> Result<Vec<PathBuf>, RunError> {
    let Some(folder) = &args.out else { return Ok(Vec::new()) };
    let write =
        |buffer: &BufferAfter| buffer.save(folder).map_err(|source| RunError::Write { folder: folder.clone(), source });
    buffers.iter().map(write).collect()
}

/// The kernel that the command line names, or else the launch file, or else the only one.
fn entry(module: &Module, args: &Args, named: Option<&str>) -> Result<lathe_emulator::Result<Kernel>, RunError> {
    let names: Vec<String> = module.entries().map(str::to_owned).collect();
    let name = match (args.entry.as_deref().or(named), &names[..]) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, []) => return Err(RunError::NoEntry { path: args.ptx.clone() }),
        (None, _) => return Err(RunError::SeveralEntries { path: args.ptx.clone(), names }),
    };
    Ok(module.entry(name))
}

/// What all launches found, and what the first one left.
pub struct Launches {
    pub first: Launched,
    pub findings: Vec<Finding>,
    /// Buffers whose bytes depend on the order of the warps.
    pub varying: Vec<String>,
    pub seconds: f64,
    pub launches: u64,
}

fn launch(prepared: &Prepared, args: &Args) -> Result<Launches, Error> {
    let schedules: Vec<(u64, CpAsync)> =
        (0..args.seeds).flat_map(|seed| [(seed, CpAsync::Eager), (seed, CpAsync::Late)]).collect();
    let bar = terminal::bar(schedules.len());
    bar.set_message(prepared.kernel().name().to_owned());
    let mut all = Launches {
        first: Launched { report: Default::default(), buffers: Vec::new() },
        findings: Vec::new(),
        varying: Vec::new(),
        seconds: 0.0,
        launches: schedules.len() as u64,
    };
    for (index, (seed, cp_async)) in schedules.into_iter().enumerate() {
        let options = Options {
            seed,
            cp_async,
            checks: if args.fast { Checks::NONE } else { Checks::ALL },
            step_limit: args.step_limit,
            traffic: args.stats && index == 0,
            ..Options::default()
        };
        let start = Instant::now();
        let mut outcome = prepared.run(&options)?;
        all.seconds += start.elapsed().as_secs_f64();
        merge(&mut all.findings, std::mem::take(&mut outcome.report.findings));
        if index == 0 {
            all.first = outcome;
        } else {
            vary(&mut all.varying, &all.first.buffers, &outcome.buffers);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    all.first.buffers.retain(|buffer| prepared.is_result(buffer));
    Ok(all)
}

/// Adds the names of buffers whose bytes differ between two launches.
fn vary(names: &mut Vec<String>, first: &[BufferAfter], later: &[BufferAfter]) {
    for (first, later) in first.iter().zip(later) {
        if first.bytes != later.bytes && !names.contains(&first.name) {
            names.push(first.name.clone());
        }
    }
}

/// Adds findings, counting those of a cause already there: the same fault at the same lines, in whichever order they came.
fn merge(findings: &mut Vec<Finding>, new: Vec<Finding>) {
    let lines = |finding: &Finding| {
        let other = finding.other.as_ref().map_or(0, |other| other.ptx_line);
        (finding.access.ptx_line.min(other), finding.access.ptx_line.max(other))
    };
    for finding in new {
        match findings.iter_mut().find(|known| known.kind == finding.kind && lines(known) == lines(&finding)) {
            Some(known) => known.count += finding.count,
            None => findings.push(finding),
        }
    }
}
