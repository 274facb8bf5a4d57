//! `lathe list`: the kernels of this program.

use std::process::ExitCode;

use anstream::println;
use lathe_codegen::target::Target;

use super::{Context, Outcome};

/// List the kernels with their variants
#[derive(clap::Args)]
pub struct Args {
    /// The architecture whose variants to list
    #[arg(long, default_value = "sm_120a")]
    target: Target,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    for entry in context.entries {
        println!("\x1b[1m{}\x1b[0m  {}", entry.name, entry.about);
        let variants = (entry.variants)(args.target);
        let labels: Vec<_> = variants.iter().map(|v| v.label.as_str()).filter(|label| !label.is_empty()).collect();
        if !labels.is_empty() {
            println!("  --variant {}", labels.join(" | "));
        }
    }
    Ok(ExitCode::SUCCESS)
}
