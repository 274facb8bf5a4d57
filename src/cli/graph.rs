//! `lathe graph`: graphs from files, of Lathe or of any other framework.

mod check;

use super::{Context, Outcome};

/// Check captured graphs for buffers that are used without order
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(check::Args),
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.command {
        Command::Check(args) => check::run(args, context),
    }
}
