//! `lathe doctor`: what is installed here, in which version, and how to get the rest.

use std::process::ExitCode;

use anstream::println;
use lathe_codegen::target::Target;
use lathe_runtime::device;
use lathe_runtime::toolchain::Wheel;

use super::{Context, Outcome, terminal};

/// Say which tools and devices are here, in which version, and how to get the rest
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args, context: &Context) -> Outcome {
    let toolchain = terminal::toolchain(context.offline);
    match toolchain.find_nvrtc() {
        Some(found) => {
            let (major, minor) = found.version;
            here("nvrtc", &format!("{major}.{minor} ({}, {})", found.origin, found.path.display()));
        }
        None => missing("nvrtc", &format!("`lathe setup` installs {}; the first compilation does, too", Wheel::NVRTC)),
    }
    match toolchain.find_nvdisasm() {
        Some(found) => here("nvdisasm", &format!("{} ({})", found.version, found.path.display())),
        None => missing("nvdisasm", &format!("`lathe setup` installs {}; needed for machine code", Wheel::NVDISASM)),
    }
    match device::driver_version() {
        Ok((major, minor)) => here("driver", &format!("CUDA {major}.{minor}")),
        Err(error) => missing("driver", &error.to_string()),
    }
    match device::list() {
        Ok(devices) if devices.is_empty() => missing("gpu", "none; `--backend emulator` needs none"),
        Ok(devices) => devices.iter().for_each(|gpu| here("gpu", &gpu.to_string())),
        Err(_) => missing("gpu", "none without a driver; `--backend emulator` needs none"),
    }
    let targets: Vec<_> = Target::ALL.iter().map(|target| target.name()).collect();
    here("targets", &targets.join(", "));
    here("home", &toolchain.home().path().display().to_string());
    Ok(ExitCode::SUCCESS)
}

fn here(what: &str, text: &str) {
    println!("\x1b[32mok\x1b[0m {what:<9} {text}");
}

fn missing(what: &str, text: &str) {
    println!("\x1b[33m--\x1b[0m {what:<9} {text}");
}
