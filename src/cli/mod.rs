//! The command-line program, for any list of kernels.
//!
//! ```no_run
//! fn main() -> std::process::ExitCode {
//!     lathe::cli::main(&[/* entries of your own kernels */])
//! }
//! ```
//!
//! A command is a module here with an `Args` for clap and `run(&Args, &Context) -> Outcome`. Its result goes to
//! standard output, what it is busy with to standard error, and a failed check is `Ok(ExitCode::FAILURE)`.

mod backend;
mod bench;
mod check;
mod diagnostic;
mod doctor;
mod emit;
mod gpu_test;
mod graph;
mod list;
mod mutate;
mod output;
mod run;
mod select;
mod setup;
mod shard;
mod sources;
mod stress;
mod table;
mod terminal;
mod torch;
mod traffic;
mod tune;

use std::error::Error;
use std::process::ExitCode;

use anstream::eprintln;
use clap::{ColorChoice, Parser, Subcommand};
use lathe_codegen::entry::Entry;

/// What a command returns: an exit status, or an error printed with its causes and status 2.
pub type Outcome = Result<ExitCode, Box<dyn Error + Send + Sync>>;

/// What every command is given besides its own arguments.
pub struct Context<'a> {
    /// The kernels of this program.
    pub entries: &'a [Entry],
    /// `--offline`: nothing may be downloaded.
    pub offline: bool,
}

#[derive(Parser)]
#[command(
    name = "lathe",
    version,
    about = "Write sparse-attention indexer kernels in Rust, read their CUDA, prove them on the CPU",
    after_help = "Examples:
  lathe check                          compile every kernel, run every case, one table
  lathe emit bf16_paged_mqa_logits     the CUDA C++ a kernel becomes
  lathe run kernel.ptx                 run and check PTX from anywhere
  lathe bench                          time them, or without a GPU say what their machine code costs
  lathe doctor                         what is installed here, and how to get the rest",
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// Download nothing: fail, and say what to do, if a tool is missing
    #[arg(long, global = true)]
    offline: bool,

    /// When to colour the output
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
}

#[derive(Subcommand)]
enum Command {
    Check(check::Args),
    Emit(emit::Args),
    Bench(bench::Args),
    Run(run::Args),
    Tune(tune::Args),
    Mutate(mutate::Args),
    List(list::Args),
    Doctor(doctor::Args),
    Setup(setup::Args),
    Graph(graph::Args),
    GpuTest(gpu_test::Args),
    Stress(stress::Args),
    Torch(torch::Args),
}

/// Runs the program over `entries` with the process's arguments.
pub fn main(entries: &[Entry]) -> ExitCode {
    let cli = Cli::parse();
    match cli.color {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();

    let context = Context { entries, offline: cli.offline };
    let run = || match &cli.command {
        Command::Check(args) => check::run(args, &context),
        Command::Emit(args) => emit::run(args, &context),
        Command::Bench(args) => bench::run(args, &context),
        Command::Run(args) => run::run(args, &context),
        Command::Tune(args) => tune::run(args, &context),
        Command::Mutate(args) => mutate::run(args, &context),
        Command::Doctor(args) => doctor::run(args, &context),
        Command::Setup(args) => setup::run(args, &context),
        Command::List(args) => list::run(args, &context),
        Command::Graph(args) => graph::run(args, &context),
        Command::GpuTest(args) => gpu_test::run(args, &context),
        Command::Stress(args) => stress::run(args, &context),
        Command::Torch(args) => torch::run(args, &context),
    };
    let outcome = select::distinct(entries).map_err(Into::into).and_then(|()| run());
    output::flush();
    outcome.unwrap_or_else(|error| {
        eprintln!("\x1b[1;31merror\x1b[0m\x1b[1m: {error}\x1b[0m");
        let mut cause = error.source();
        while let Some(inner) = cause {
            eprintln!("  caused by: {inner}");
            cause = inner.source();
        }
        ExitCode::from(2)
    })
}
