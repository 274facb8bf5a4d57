//! The `lathe` program: every command over the kernels that ship with Lathe.

use std::process::ExitCode;

fn main() -> ExitCode {
    lathe::cli::main(&lathe_kernels::entries())
}
