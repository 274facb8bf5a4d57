//! What can be wrong with a launch file.

use std::ops::Range;
use std::path::PathBuf;

/// Why a launch file does not say how to launch a kernel, and where in its text.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct LaunchFileError {
    /// What is wrong.
    pub problem: Box<Problem>,
    /// Bytes of the file's text; none where something is missing from all of it.
    pub span: Option<Range<usize>>,
}

/// What is wrong with a launch file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Problem {
    #[error("the launch file is not TOML: {message}")]
    Toml { message: String },
    #[error("unknown key `{key}` in {place}; it takes {known}")]
    UnknownKey { key: String, place: String, known: String },
    #[error("{place} lacks `{key}`: {why}")]
    Missing { place: String, key: &'static str, why: &'static str },
    #[error("{place} is {given}; accepted: {accepted}")]
    Value { place: String, given: String, accepted: String },
    #[error("there is no buffer `{name}`; there are {known}")]
    NoBuffer { name: String, known: String },
    #[error("`{given}` does not fit {place}: {element} holds {accepted}")]
    DoesNotFit { place: String, given: String, element: &'static str, accepted: String },
    #[error("buffer `{buffer}`: {what}")]
    Contents { buffer: String, what: String },
    #[error("buffer `{buffer}`: `{path}` cannot be read")]
    Read {
        buffer: String,
        path: PathBuf,
        #[source]
        error: std::io::Error,
    },
    #[error("the buffers take {bytes} bytes by `{buffer}`; a launch file may ask for {most}")]
    TooLarge { buffer: String, bytes: u128, most: u64 },
    #[error(
        "buffer `{buffer}` declares no access, and another does; declare `access` for all of them or for none, since \
         declared accesses are checked against every access of the kernel"
    )]
    Undeclared { buffer: String },
    #[error("kernel `{kernel}` takes {expected} arguments ({params}), and the launch file gives {given}")]
    ArgumentCount { kernel: String, expected: usize, params: String, given: usize },
    #[error("argument {index} (`{name}`) of kernel `{kernel}` is `{expected}`, and the launch file gives {given}")]
    ArgumentType { kernel: String, index: usize, name: String, expected: String, given: String },
    #[error("argument {index} (`{name}`): {reason}")]
    Tensor { index: usize, name: String, reason: lathe_emulator::Error },
    #[error("argument {index} (`{name}`) starts {offset} bytes into buffer `{buffer}`, which has {len}")]
    Offset { index: usize, name: String, offset: u64, buffer: String, len: u64 },
}

impl Problem {
    pub(super) fn at(self, span: Range<usize>) -> LaunchFileError {
        LaunchFileError { problem: Box::new(self), span: Some(span) }
    }
}
