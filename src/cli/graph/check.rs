//! `lathe graph check`: everything that could go wrong in a graph file, with witnesses and fixes.

use std::path::PathBuf;
use std::process::ExitCode;

use anstream::{eprintln, print, println};
use lathe_graph::file::GraphFile;
use lathe_graph::render::{Sources, Style, render, summary};

use crate::cli::{Context, Outcome};

/// Say which buffers are used without order, how it can go wrong, and what a fix costs
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0 nothing found, 1 findings, 2 a file cannot be used.
The file format: docs/graph-format.md")]
pub struct Args {
    /// Graph files (JSON)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print the report as JSON, one object a file
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, _context: &Context) -> Outcome {
    let mut clean = true;
    for path in &args.files {
        let file = GraphFile::read(path)?;
        let report = file.check()?;
        clean &= report.is_clean();
        if args.json {
            let view = report.view(&file.pool, &file.placement);
            println!("{}", serde_json::to_string(&view)?);
            continue;
        }
        if let Some(description) = file.description.as_ref().filter(|_| args.files.len() == 1) {
            eprintln!("{description}\n");
        }
        if args.files.len() > 1 {
            println!("{}: {}", path.display(), summary(&report, &file.pool, &file.placement));
        } else {
            let style = Style { colour: true };
            print!("{}", render(&report, &file.pool, &file.placement, &mut Sources::from_disk(), style));
        }
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
