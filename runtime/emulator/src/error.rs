//! What can be wrong before a kernel runs, or stop it while it runs.

use crate::finding::SourceLocation;

/// Why PTX could not be read, a kernel could not be decoded, or a launch could not be made or finished.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes are not UTF-8 text.
    #[error(
        "the PTX is not UTF-8: the first bad byte is on line {line}; PTX is plain text, was a cubin passed instead?"
    )]
    NotUtf8 {
        /// Line of the first bad byte, from 1.
        line: u32,
    },
    /// The text is not PTX, or ends too early.
    #[error("line {line} of the PTX cannot be read: {what}")]
    Syntax {
        /// Line, from 1.
        line: u32,
        /// What was found and what was expected.
        what: String,
    },
    /// `.version` or `.target` is missing or not one that the emulator knows.
    #[error("line {line} of the PTX: {what}")]
    Header {
        /// Line, from 1.
        line: u32,
        /// What is wrong and what is accepted.
        what: String,
    },
    /// An opcode without a row in the instruction table.
    #[error("line {line} of the PTX: the emulator has no opcode `{opcode}`")]
    UnknownOpcode {
        /// Line, from 1.
        line: u32,
        /// The opcode with all its modifiers.
        opcode: String,
    },
    /// A known opcode in a form that the emulator does not run.
    #[error("line {line} of the PTX: `{opcode}`: {what}")]
    Unsupported {
        /// Line, from 1.
        line: u32,
        /// The opcode with all its modifiers.
        opcode: String,
        /// The modifier or operand that is not supported, and what is.
        what: String,
    },
    /// A tensor map that the driver would refuse too.
    #[error("tensor map: `{field}` is {value}, and {accepted} is accepted")]
    TensorMap {
        /// Field of the description.
        field: &'static str,
        /// Its value.
        value: String,
        /// What is accepted.
        accepted: String,
    },
    /// No such kernel in the module.
    #[error("the PTX has no entry `{name}`; it has {}", list(.available))]
    MissingEntry {
        /// The name asked for.
        name: String,
        /// The entries that exist.
        available: Vec<String>,
    },
    /// The number of launch arguments differs from the kernel's parameters.
    #[error("kernel `{kernel}` takes {expected} arguments, {given} were given")]
    ArgumentCount {
        /// Kernel name.
        kernel: String,
        /// Parameters of the entry.
        expected: usize,
        /// Arguments of the launch.
        given: usize,
    },
    /// An argument has the wrong number of bytes.
    #[error("argument {index} (`{name}`) of kernel `{kernel}` takes {expected} bytes, {given} were given")]
    ArgumentSize {
        /// Kernel name.
        kernel: String,
        /// Position, from 0.
        index: usize,
        /// The parameter's name in the PTX.
        name: String,
        /// Bytes of the parameter.
        expected: usize,
        /// Bytes of the argument.
        given: usize,
    },
    /// A launch that no device accepts.
    #[error("kernel `{kernel}` cannot be launched: {what}")]
    Launch {
        /// Kernel name.
        kernel: String,
        /// The limit that is broken, with the value.
        what: String,
    },
    /// A CTA ran longer than [`Options::step_limit`](crate::Options::step_limit).
    #[error(
        "kernel `{kernel}`, CTA ({}, {}, {}): {limit} instructions without reaching the end, the last on line {line} of the PTX; \
         an endless loop? Raise the step limit if the work is really that long", .cta[0], .cta[1], .cta[2]
    )]
    StepLimit {
        /// Kernel name.
        kernel: String,
        /// CTA index.
        cta: [u32; 3],
        /// The limit, in warp instructions a CTA.
        limit: u64,
        /// Where the last instruction stands.
        line: u32,
        /// Its place in the CUDA text, the innermost first. Empty without `-lineinfo`.
        sources: Vec<SourceLocation>,
    },
    /// Memory could not be mapped as asked.
    #[error("buffer `{name}` cannot be mapped at {address:#x} with {len} bytes: {what}")]
    Map {
        /// Name of the buffer.
        name: String,
        /// First byte.
        address: u64,
        /// Bytes.
        len: u64,
        /// What stands in the way.
        what: String,
    },
    /// Host access to memory that is not mapped.
    #[error("{len} bytes at {address:#x} are not inside one mapped buffer")]
    NotMapped {
        /// First byte.
        address: u64,
        /// Bytes.
        len: u64,
    },
}

impl Error {
    /// The line of the PTX that the error is about, where it is about one.
    pub fn line(&self) -> Option<u32> {
        match self {
            Self::NotUtf8 { line }
            | Self::Syntax { line, .. }
            | Self::Header { line, .. }
            | Self::UnknownOpcode { line, .. }
            | Self::Unsupported { line, .. }
            | Self::StepLimit { line, .. } => Some(*line),
            _ => None,
        }
    }
}

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ") }
}
