//! `lathe list`: the kernels of this program.

use std::process::ExitCode;

use lathe_codegen::target::Target;
use serde::Serialize;

use super::{Context, Outcome};
use crate::cli::output::println;

/// List the kernels with their variants
#[derive(clap::Args)]
pub struct Args {
    /// The architecture whose variants to list
    #[arg(long, default_value = "sm_120a")]
    target: Target,

    /// Print the list as one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listed<'a> {
    kernel: &'a str,
    about: &'a str,
    file: &'a str,
    variants: Vec<String>,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let listed: Vec<Listed> = context
        .entries
        .iter()
        .map(|entry| Listed {
            kernel: entry.name,
            about: entry.about,
            file: entry.file,
            variants: (entry.variants)(args.target).into_iter().map(|variant| variant.label).collect(),
        })
        .collect();
    if args.json {
        let json = serde_json::json!({ "target": args.target.name(), "kernels": listed });
        println!("{}", serde_json::to_string_pretty(&json)?);
        return Ok(ExitCode::SUCCESS);
    }
    for Listed { kernel, about, variants, .. } in listed {
        println!("\x1b[1m{kernel}\x1b[0m  {about}");
        let labels: Vec<_> = variants.into_iter().filter(|label| !label.is_empty()).collect();
        if !labels.is_empty() {
            println!("  --variant {}", labels.join(" | "));
        }
    }
    Ok(ExitCode::SUCCESS)
}
