//! `lathe doctor`: what is installed here, in which version, and how to get the rest.

use std::process::ExitCode;

use anstream::println;
use lathe_runtime::device;

use super::{Context, Outcome};

/// Say which tools and devices are here, in which version, and how to get the rest
#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: &Args, _context: &Context) -> Outcome {
    match device::driver_version() {
        Ok((major, minor)) => line("driver", true, &format!("CUDA {major}.{minor}")),
        Err(error) => line("driver", false, &error.to_string()),
    }
    Ok(ExitCode::SUCCESS)
}

fn line(what: &str, present: bool, text: &str) {
    let (mark, colour) = if present { ("ok", "\x1b[32m") } else { ("--", "\x1b[33m") };
    println!("{colour}{mark}\x1b[0m {what:<12} {text}");
}
