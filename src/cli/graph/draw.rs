//! `lathe graph draw`: a memory map of a graph file.

use std::path::PathBuf;
use std::process::ExitCode;

use anstream::eprintln;
use lathe_graph::check::check;
use lathe_graph::draw::memory_map;

use super::placed::{Input, name};
use crate::cli::{Context, Outcome};

/// Draw who lives on which bytes, and when, as SVG
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// File to write
    #[arg(short, long, value_name = "SVG")]
    output: PathBuf,
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    let (file, placement) = args.input.read()?;
    let report = check(&file.pool, Some(&placement))?;
    let title = file.description.clone().unwrap_or_else(|| name(&args.input.file));
    let picture = memory_map(&file.pool, &report, &placement, &title);
    std::fs::write(&args.output, picture).map_err(|error| format!("{}: {error}", args.output.display()))?;
    eprintln!("wrote {}", args.output.display());
    Ok(ExitCode::SUCCESS)
}
