//! Machine code, disassembled: what the assembler made of a kernel, counted and checked.

mod flow;
mod parse;

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::process::Command;

use crate::cache;
use crate::toolchain::{ProvisionError, Toolchain};

/// A kernel's machine code.
#[derive(Clone, Debug)]
pub struct Sass {
    /// The listing, with the CUDA line of each run of instructions as `//## File "entry.cu", line N`.
    pub text: String,
    /// The instructions, in address order, without the padding after the last.
    pub instructions: Vec<Instruction>,
}

/// One machine instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Byte offset from the start of the kernel.
    pub offset: u32,
    /// Guard predicate without `@`, e.g. `!P0`.
    pub predicate: Option<String>,
    /// Mnemonic with modifiers, e.g. `LDG.E.128`.
    pub opcode: String,
    /// The operands as written.
    pub operands: String,
    /// The offset that a branch goes to, if it names a label.
    pub branch_to: Option<u32>,
    /// Line of the CUDA source, at the call site of inlined helpers; 0 where the assembler kept none.
    pub line: u32,
}

impl Instruction {
    /// The mnemonic without modifiers, e.g. `LDG`.
    pub fn mnemonic(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Whether it reads global memory: by a plain or generic load, an atomic, or a copy into shared memory.
    pub fn loads_global(&self) -> bool {
        matches!(self.mnemonic(), "LDG" | "LD" | "LDGSTS" | "ATOMG" | "ATOM" | "UBLKCP" | "UTMALDG")
    }
}

/// Why there is no disassembly.
#[derive(Debug, thiserror::Error)]
pub enum SassError {
    /// There is no disassembler.
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    /// The disassembler failed or could not be run.
    #[error("nvdisasm failed: {0}")]
    Nvdisasm(String),
}

impl Sass {
    /// Disassembles a cubin that holds one kernel, or takes the listing from the disk cache.
    pub fn disassemble(toolchain: &Toolchain, cubin: &[u8]) -> Result<Sass, SassError> {
        let nvdisasm = toolchain.nvdisasm()?;
        let folder = toolchain.home().cache();
        if let Some(listing) = cache::load_listing(&folder, cubin, &nvdisasm.version) {
            return Ok(Sass::parse(listing));
        }
        let failed = |error: std::io::Error| SassError::Nvdisasm(error.to_string());
        let mut file = tempfile::Builder::new().suffix(".cubin").tempfile().map_err(failed)?;
        file.write_all(cubin).map_err(failed)?;
        let output = Command::new(&nvdisasm.path)
            .args(["--print-code", "--print-line-info-inline"])
            .arg(file.path())
            .output()
            .map_err(failed)?;
        if !output.status.success() {
            return Err(SassError::Nvdisasm(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
        let listing = String::from_utf8_lossy(&output.stdout).into_owned();
        cache::store_listing(&folder, cubin, &nvdisasm.version, &listing);
        Ok(Sass::parse(listing))
    }

    /// Reads a listing of `nvdisasm --print-code`.
    pub fn parse(text: String) -> Sass {
        let instructions = parse::instructions(&text);
        Sass { text, instructions }
    }

    /// How many instructions have `mnemonic`, e.g. `HMMA`.
    pub fn count(&self, mnemonic: &str) -> usize {
        self.instructions.iter().filter(|i| i.mnemonic() == mnemonic).count()
    }

    /// How many instructions each mnemonic has in `range`, an index range such as [`Sass::main_loop`] gives.
    pub fn counts(&self, range: Range<usize>) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for instruction in self.instructions.get(range).unwrap_or_default() {
            *counts.entry(instruction.mnemonic()).or_default() += 1;
        }
        counts
    }

    /// The loop that does the work: the innermost loop with the most matrix instructions, or, with none anywhere,
    /// the innermost loop with the most instructions. As a range of indices into [`Sass::instructions`].
    pub fn main_loop(&self) -> Option<Range<usize>> {
        flow::main_loop(&self.instructions)
    }

    /// Instructions that read global memory on some path from the entry on which no PDL wait (`ACQBULK`) came
    /// before. Every global load, in a kernel without a wait.
    pub fn global_loads_before_pdl_wait(&self) -> Vec<&Instruction> {
        self.global_loads_before("ACQBULK")
    }

    /// Instructions that read global memory to registers on some path from the entry on which no asynchronous copy
    /// (`LDGSTS`) started before. Every such load, in a kernel without copies.
    pub fn global_loads_before_copies(&self) -> Vec<&Instruction> {
        self.global_loads_before("LDGSTS").into_iter().filter(|load| load.mnemonic() != "LDGSTS").collect()
    }

    fn global_loads_before(&self, mnemonic: &str) -> Vec<&Instruction> {
        flow::reachable_without(&self.instructions, mnemonic)
            .into_iter()
            .map(|index| &self.instructions[index])
            .filter(|instruction| instruction.loads_global())
            .collect()
    }
}
