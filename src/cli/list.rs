//! `lathe list`: the kernels of this program.

use std::process::ExitCode;

use anstream::println;

use super::{Context, Outcome};

/// List the kernels
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args, context: &Context) -> Outcome {
    let width = context.entries.iter().map(|e| e.name.len()).max().unwrap_or(0);
    for entry in context.entries {
        println!("\x1b[1m{:width$}\x1b[0m  {}", entry.name, entry.about);
    }
    Ok(ExitCode::SUCCESS)
}
