//! Standard output, in colour where that is wanted. A reader that has gone away or a full disk ends the program with
//! status 2; it is not a panic.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process::exit;

/// As the standard library's, to standard output.
macro_rules! print {
    ($($part:tt)*) => { $crate::cli::output::write(format_args!($($part)*)) };
}

/// As the standard library's, to standard output.
macro_rules! println {
    ($($part:tt)*) => { $crate::cli::output::write(format_args!("{}\n", format_args!($($part)*))) };
}

pub(super) use {print, println};

/// Writes to standard output.
pub(super) fn write(text: Arguments) {
    unless_ended(anstream::stdout().write_fmt(text));
}

/// Writes what is still held back.
pub(super) fn flush() {
    unless_ended(io::stdout().flush());
}

fn unless_ended(written: io::Result<()>) {
    let Err(error) = written else { return };
    // `lathe list | head -1` has what it wanted.
    if error.kind() != ErrorKind::BrokenPipe {
        anstream::eprintln!("\x1b[1;31merror\x1b[0m\x1b[1m: standard output: {error}\x1b[0m");
    }
    exit(2)
}
