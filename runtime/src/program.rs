//! A kernel printed and compiled for one target: what every backend loads.

use std::sync::LazyLock;

use lathe_codegen::cuda::{Cuda, CudaError};
use lathe_codegen::ir::Kernel;
use lathe_codegen::loc::Loc;
use lathe_codegen::target::Target;
use regex::Regex;

use crate::nvrtc::{CompileError, Compiled, Compiler};

/// A kernel with its CUDA text and its machine code.
#[derive(Clone, Debug)]
pub struct Program {
    /// The traced kernel.
    pub kernel: Kernel,
    /// The text it became.
    pub cuda: Cuda,
    /// What the compiler made of the text.
    pub compiled: Compiled,
}

/// Why a traced kernel has no machine code.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The kernel asks for more than the target has.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The compiler is missing, or rejected the text.
    #[error("kernel `{}`: {error}", cuda.entry)]
    Compile {
        /// The text.
        cuda: Box<Cuda>,
        /// The compiler's answer.
        error: CompileError,
    },
}

/// One message of the compiler, at the author's line.
#[derive(Clone, Debug, PartialEq)]
pub struct CompilerMessage {
    /// `error`, `warning` or the like, as the compiler wrote it.
    pub severity: String,
    /// The message.
    pub text: String,
    /// Line of the CUDA source, from 1.
    pub cuda_line: u32,
    /// Where the author wrote what became that line.
    pub rust: Option<Loc>,
}

impl Program {
    /// Prints `kernel` for `target` and compiles it.
    pub fn compile(compiler: &Compiler, kernel: &Kernel, target: Target) -> Result<Program, ProgramError> {
        Self::made(kernel, target, |source| compiler.compile(source, target))
    }

    /// The same without machine code, for the emulator alone.
    pub fn compile_ptx(compiler: &Compiler, kernel: &Kernel, target: Target) -> Result<Program, ProgramError> {
        Self::made(kernel, target, |source| compiler.compile_ptx(source, target))
    }

    fn made(
        kernel: &Kernel,
        target: Target,
        compile: impl FnOnce(&str) -> Result<Compiled, CompileError>,
    ) -> Result<Program, ProgramError> {
        let cuda = kernel.cuda(target)?;
        match compile(&cuda.source) {
            Ok(compiled) => Ok(Program { kernel: kernel.clone(), cuda, compiled }),
            Err(error) => Err(ProgramError::Compile { cuda: Box::new(cuda), error }),
        }
    }

    /// Shared memory of a CTA in bytes, static and dynamic.
    pub fn shared_bytes(&self) -> u32 {
        self.compiled.resources.static_shared + self.cuda.shared_bytes
    }
}

impl ProgramError {
    /// The compiler's messages, each with its place; empty for other errors.
    pub fn messages(&self) -> Vec<CompilerMessage> {
        let ProgramError::Compile { cuda, error: CompileError::Rejected { log, ptx_lines, .. } } = self else {
            return Vec::new();
        };
        static FRONT_END: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^entry\.cu\((\d+)\): (error|warning|catastrophic error)[^:]*: (.*)")
                .expect("a constant pattern")
        });
        static ASSEMBLER: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"^ptxas application ptx input, line (\d+); (\w+)\s*: (.*)").expect("a constant pattern")
        });
        log.lines()
            .filter_map(|row| {
                let (found, is_ptx) = match FRONT_END.captures(row) {
                    Some(found) => (found, false),
                    None => (ASSEMBLER.captures(row)?, true),
                };
                let line: u32 = found[1].parse().ok()?;
                let cuda_line = match is_ptx {
                    true => ptx_lines.iter().find(|(ptx, _)| *ptx == line)?.1,
                    false => line,
                };
                let (severity, text) = match is_ptx {
                    true => (found[2].to_owned(), found[3].to_owned()),
                    false => (found[2].to_owned(), found[3].to_owned()),
                };
                Some(CompilerMessage { severity, text, cuda_line, rust: rust_line(cuda, cuda_line) })
            })
            .collect()
    }
}

/// Where the author wrote what became `line`, from 1, of the text.
pub fn rust_line(cuda: &Cuda, line: u32) -> Option<Loc> {
    *cuda.lines.get(line.checked_sub(1)? as usize)?
}
