//! `lathe torch`: graphs that PyTorch captured, dumped by `tools/lathe_dump.py`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::eprintln;
use lathe_graph::torch::{self, Certainty, Checked, Dump, Imported, Rules};

use super::{Context, Outcome};
use crate::cli::output::{print, println};

/// Check graphs that PyTorch captured (SGLang, vLLM, TensorRT-LLM)
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(CheckArgs),
    Rules,
}

/// Say which tensors share bytes across streams without order, how it goes wrong, and what a fix costs
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 nothing found, 1 findings, 2 a file cannot be used.
From capture to fix: docs/check-your-captured-graph.md. The file format: docs/torch-dump-format.md")]
struct CheckArgs {
    /// Dumps made with tools/lathe_dump.py
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Rules for kernels of your own, tried before the built-in ones (`lathe torch rules` prints those)
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// Print the report as JSON, one object a file
    #[arg(long)]
    json: bool,

    /// Draw every finding into this folder: the two lanes and the memory map
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,

    /// The weakest finding that fails the check
    #[arg(long, value_name = "HOW_SURE", default_value = "assumed")]
    fail_on: Threshold,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Threshold {
    /// Only what the driver states or the GPU showed
    Certain,
    /// Also what rules, PTX, operator schemas and C++ signatures say
    Ruled,
    /// Also what is assumed of unknown kernels
    Assumed,
}

impl From<Threshold> for Certainty {
    fn from(threshold: Threshold) -> Certainty {
        match threshold {
            Threshold::Certain => Certainty::Certain,
            Threshold::Ruled => Certainty::Ruled,
            Threshold::Assumed => Certainty::Assumed,
        }
    }
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    match &args.command {
        Command::Check(args) => check(args),
        Command::Rules => {
            print!("{}", Rules::BUILTIN);
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check(args: &CheckArgs) -> Outcome {
    let rules = match &args.rules {
        Some(path) => Rules::with_file(path)?,
        None => Rules::builtin(),
    };
    let mut failed = false;
    for path in &args.files {
        let checked = torch::check(Imported::of(Dump::load(path)?, &rules))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        failed |= checked.surest() >= Some(args.fail_on.into());
        if args.json {
            println!("{}", serde_json::to_string(&checked.view())?);
        } else if args.files.len() > 1 {
            println!("{}: {}", path.display(), checked.summary());
        } else {
            print!("{}", checked.text(true));
        }
        if let Some(folder) = &args.svg {
            draw(&checked, path, folder)?;
        }
    }
    for unused in rules.unused() {
        eprintln!(
            "\x1b[1;33mnote\x1b[0m: rule \"{unused}\" fits no kernel of these dumps: names are matched demangled, as --json prints them"
        );
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn draw(checked: &Checked, dump: &Path, folder: &Path) -> Result<(), String> {
    let fail = |error: std::io::Error| format!("cannot draw into {}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(fail)?;
    let stem = dump.file_stem().unwrap_or_default().to_string_lossy();
    for (index, finding) in checked.findings.iter().enumerate() {
        let path = folder.join(format!("{stem}-{}-{}.svg", index + 1, finding.code));
        std::fs::write(&path, checked.picture(finding)).map_err(fail)?;
        eprintln!("drew {}", path.display());
    }
    Ok(())
}
