//! `lathe setup`: installs the pinned compiler and disassembler into the project.

use std::process::ExitCode;

use lathe_runtime::toolchain::Wheel;

use super::{Context, Outcome, terminal};
use crate::cli::output::println;

/// Install the pinned compiler and disassembler into the project
#[derive(clap::Args)]
#[command(
    after_help = "The first command that needs a tool also installs it, so this is for machines that will lose their
network. The folder is .lathe in the project, or $LATHE_HOME."
)]
pub struct Args {}

pub fn run(_args: &Args, context: &Context) -> Outcome {
    let toolchain = terminal::toolchain(context.offline);
    for wheel in &Wheel::ALL {
        let folder = toolchain.install(wheel)?;
        println!("{wheel} in {}", folder.display());
    }
    Ok(ExitCode::SUCCESS)
}
