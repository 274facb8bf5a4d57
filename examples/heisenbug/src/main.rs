//! `cargo run --release -p heisenbug`: the story, told from what was seen.

use std::path::PathBuf;
use std::process::ExitCode;

use anstream::{eprintln, print, println};
use clap::Parser;
use heisenbug::backend::{Backend, Emulator};
use heisenbug::programs::Programs;
use heisenbug::{hardware, story, study};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lathe::gpu_test::Gpu;
use lathe::runtime::device::Device;
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;

/// A decode step that corrupts some conversations: only captured, only with a batch, only in bf16, and never while
/// somebody clones a tensor to catch it
#[derive(Parser)]
#[command(after_help = "\
Examples:
  heisenbug                        the whole story
  heisenbug --orders 200           with tighter intervals
  heisenbug --svg map.svg          and a memory map of the layer
  heisenbug --json | jq .cells     what was seen, for programs
  heisenbug --backend cuda         how often replays of captured graphs go wrong on a GPU")]
struct Args {
    /// Where it runs: every kernel in chosen orders, or captured graphs as they come
    #[arg(long, value_enum, default_value_t = On::Emulator)]
    backend: On,

    /// On a GPU: replays of each variant
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    replays: u64,

    /// Random orders of each variant
    #[arg(long, value_name = "N", default_value_t = study::Options::default().orders)]
    orders: u64,

    /// Seed of the first random order
    #[arg(long, value_name = "SEED", default_value_t = study::Options::default().seed)]
    seed: u64,

    /// What to compile the kernels for
    #[arg(long, value_name = "ARCH", default_value = "sm_120a")]
    target: Target,

    /// Write a memory map of the layer
    #[arg(long, value_name = "SVG")]
    svg: Option<PathBuf>,

    /// Print what was seen as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum On {
    /// The PTX on this machine's CPU
    Emulator,
    /// Captured graphs on a GPU
    Cuda,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.backend {
        On::Emulator => tell(&args),
        On::Cuda => count(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\x1b[1;31merror\x1b[0m: {error}");
            ExitCode::from(2)
        }
    }
}

fn tell(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let backend = Emulator { target: args.target };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    bar.set_message("compiling");
    let programs = Programs::compile(backend.target())?;
    let options = study::Options { orders: args.orders, seed: args.seed };
    let seen = study::run(&backend, &programs, options, &mut |stage| bar.set_message(stage.to_owned()))?;
    bar.finish_and_clear();
    if let Some(path) = &args.svg {
        std::fs::write(path, &seen.picture).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&seen)?);
    } else {
        print!("{}", story::tell(&seen));
    }
    Ok(())
}

fn count(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::open(0)?;
    let target = device.info().target().ok_or("the device runs no target that Lathe generates code for")?;
    let toolchain = Toolchain::new(false, |_| {});
    let compiler = Compiler::load(&toolchain)?;
    let gpu = Gpu { device: &device, compiler: &compiler, target, dumps: None };
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(std::time::Duration::from_millis(120));
    bar.set_message("compiling");
    let programs = Programs::compile(target)?;
    let seen = hardware::run(&gpu, &programs, args.replays, &mut |stage| bar.set_message(stage.to_owned()));
    let seen = seen.map_err(|error| error as Box<dyn std::error::Error>)?;
    bar.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&seen)?);
    } else {
        print!("{}", hardware::tell(&seen));
    }
    Ok(())
}
