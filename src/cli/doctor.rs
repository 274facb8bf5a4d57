//! `lathe doctor`: what is installed here, in which version, and how to get the rest.

use std::process::ExitCode;

use lathe_codegen::target::Target;
use lathe_runtime::device;
use lathe_runtime::toolchain::{Toolchain, Wheel};
use serde::Serialize;

use super::{Context, Outcome, terminal};
use crate::cli::output::println;

/// Say which tools and devices are here, in which version, and how to get the rest
#[derive(clap::Args)]
pub struct Args {
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// One thing that Lathe can use.
#[derive(Serialize)]
struct Part {
    part: &'static str,
    here: bool,
    /// Its version and place, or how to get it.
    detail: String,
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    let parts = parts(&terminal::toolchain(context.offline));
    if args.json {
        println!("{}", serde_json::to_string_pretty(&serde_json::json!({ "parts": parts }))?);
        return Ok(ExitCode::SUCCESS);
    }
    for Part { part, here, detail } in parts {
        let mark = if here { "\x1b[32mok\x1b[0m" } else { "\x1b[33m--\x1b[0m" };
        println!("{mark} {part:<9} {detail}");
    }
    Ok(ExitCode::SUCCESS)
}

fn parts(toolchain: &Toolchain) -> Vec<Part> {
    let here = |part, detail| Part { part, here: true, detail };
    let missing = |part, detail| Part { part, here: false, detail };
    let mut parts = vec![
        match toolchain.find_nvrtc() {
            Some(found) => {
                let (major, minor) = found.version;
                here("nvrtc", format!("{major}.{minor} ({}, {})", found.origin, found.path.display()))
            }
            None => {
                missing("nvrtc", format!("`lathe setup` installs {}; the first compilation does, too", Wheel::NVRTC))
            }
        },
        match toolchain.find_nvdisasm() {
            Some(found) => here("nvdisasm", format!("{} ({})", found.version, found.path.display())),
            None => missing("nvdisasm", format!("`lathe setup` installs {}; needed for machine code", Wheel::NVDISASM)),
        },
        match device::driver_version() {
            Ok((major, minor)) => here("driver", format!("CUDA {major}.{minor}")),
            Err(error) => missing("driver", error.to_string()),
        },
    ];
    match device::list() {
        Ok(devices) if devices.is_empty() => parts.push(missing("gpu", "none; `--backend emulator` needs none".into())),
        Ok(devices) => parts.extend(devices.iter().map(|gpu| here("gpu", gpu.to_string()))),
        Err(_) => parts.push(missing("gpu", "none without a driver; `--backend emulator` needs none".into())),
    }
    let targets: Vec<_> = Target::ALL.iter().map(|target| target.name()).collect();
    parts.push(here("targets", targets.join(", ")));
    parts.push(here("home", toolchain.home().path().display().to_string()));
    parts
}
