//! `lathe graph check`: everything that could go wrong in a graph file, with witnesses and fixes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstream::eprintln;
use lathe_graph::file::GraphFile;
use lathe_graph::finding::Report;
use lathe_graph::render::{Sources, Style, render, summary};

use crate::cli::output::{print, println};
use crate::cli::{Context, Outcome};

/// Say which buffers are used without order, how it can go wrong, and what a fix costs
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 nothing found, 1 findings, 2 a file cannot be used.
The file format: docs/graph-format.md")]
pub struct Args {
    /// Graph files (JSON)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The same graph without an instrument: say whether the instrument moved a buffer or ordered two nodes
    #[arg(long, value_name = "FILE")]
    original: Option<PathBuf>,

    /// Print the report as JSON, one object a file
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    let original = args.original.as_deref().map(GraphFile::read).transpose()?;
    let mut clean = true;
    for path in &args.files {
        let file = GraphFile::read(path)?;
        if let Some(description) = file.description.as_ref().filter(|_| args.files.len() == 1 && !args.json) {
            eprintln!("{description}\n");
        }
        clean &= tell(args, path, &file, &file.check()?)?;
        if let Some(original) = &original {
            clean &= tell(args, path, original, &file.differences_from(original)?)?;
        }
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints a report about the rows of `file`; whether it is clean.
fn tell(args: &Args, path: &Path, file: &GraphFile, report: &Report) -> Result<bool, serde_json::Error> {
    if args.json {
        println!("{}", serde_json::to_string(&report.view(&file.pool, &file.placement))?);
    } else if args.files.len() > 1 {
        println!("{}: {}", path.display(), summary(report, &file.pool, &file.placement));
    } else {
        let style = Style { colour: true };
        print!("{}", render(report, &file.pool, &file.placement, &mut Sources::from_disk(), style));
    }
    Ok(report.is_clean())
}
