//! Why a dump could not be read.

use super::VERSION;
use std::path::PathBuf;

/// Why a dump could not be read. Every message names the file, the value and what to do.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The JSON stops in the middle.
    #[error(
        "{}: truncated: the JSON ends at line {line}, column {column}, inside a value; the capture process probably stopped while writing. Dump again \
         (lathe_dump writes to a temporary file and renames it, so a whole file is never half)",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Line of the end.
        line: usize,
        /// Column of the end.
        column: usize,
    },
    /// The text is not JSON, or a field has the wrong type.
    #[error("{}:{line}:{column}: not a torch dump: {message}; the fields are listed in docs/torch-dump-format.md", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Line of the first wrong token.
        line: usize,
        /// Its column.
        column: usize,
        /// What the parser expected.
        message: String,
    },
    /// Some other JSON document.
    #[error("{}: `format` is {found:?}, expected \"lathe-torch-dump\"; make the file with tools/lathe_dump.py", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What `format` says.
        found: String,
    },
    /// A schema from the future.
    #[error(
        "{}: schema version {found} is unknown: this build reads versions 0 to {VERSION}. Update lathe, or dump with the lathe_dump.py that came with it",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What `version` says.
        found: u64,
    },
    /// The fields parse but contradict each other.
    #[error("{}: graph `{graph}`: {message}", path.display())]
    Inconsistent {
        /// The file.
        path: PathBuf,
        /// The graph's name.
        graph: String,
        /// Which field, which value, what is accepted.
        message: String,
    },
    /// A file without a graph.
    #[error("{}: `graphs` is empty: nothing was captured before the dump was written", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}
