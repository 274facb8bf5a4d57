//! The `lathe` program over one kernel of our own: `cargo run -p own-kernel -- check`.

mod bench;
mod cases;
mod page_max;
mod reference;

use std::process::ExitCode;

fn main() -> ExitCode {
    lathe::cli::main(&[page_max::entry()])
}
