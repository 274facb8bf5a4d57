//! `lathe graph`: graphs from files, of Lathe or of any other framework.

mod check;
mod draw;
mod explore;
mod placed;
mod plan;

use super::{Context, Outcome};

/// Check, plan, draw and explore graphs with shared buffers
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Check(check::Args),
    Plan(plan::Args),
    Draw(draw::Args),
    Explore(explore::Args),
}

pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.command {
        Command::Check(args) => check::run(args, context),
        Command::Plan(args) => plan::run(args, context),
        Command::Draw(args) => draw::run(args, context),
        Command::Explore(args) => explore::run(args, context),
    }
}
