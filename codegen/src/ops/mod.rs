//! The op catalogue. Everything that concerns an op stands in the one file of its family: signature, effects, CUDA
//! text, cost, documentation, the methods that authors call, tests.

pub mod arith;
pub mod barrier;
pub mod control;
pub mod global;
pub mod index;
pub mod pdl;

use crate::cuda::Emit;
use crate::ir::{Attrs, Type};

/// The definition of an operation.
pub struct OpDef {
    /// Name in the text form: `family.op`.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// Types of the results, or why the operands are refused.
    pub signature: fn(&Signature<'_>) -> Result<Vec<Type>, String>,
    /// Lowest compute capability (major * 10 + minor) that has it.
    pub min_capability: u32,
    /// What it does beyond computing its results; empty means pure.
    pub effects: &'static [Effect],
    /// How it is written in CUDA.
    pub emit: Emit,
}

impl OpDef {
    /// Whether it only computes its results from its operands.
    pub const fn is_pure(&self) -> bool {
        self.effects.is_empty()
    }
}

impl std::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// What an op does beyond computing its results.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Effect {
    /// Opens nested blocks.
    Control,
    /// Reads a mutable variable.
    ReadVariable,
    /// Changes a mutable variable.
    WriteVariable,
    /// Reads memory.
    Read(Space),
    /// Writes memory.
    Write(Space),
    /// Waits for other lanes, and orders memory with theirs.
    Barrier(Scope),
    /// Waits for, or releases, another kernel.
    GridDependency,
}

/// A memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Space {
    /// Global memory, behind kernel arguments.
    Global,
    /// The CTA's shared memory.
    Shared,
}

/// Who takes part in something.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scope {
    /// The lanes of a warp.
    Warp,
    /// Some warps of a CTA.
    Warps,
    /// The CTA.
    Cta,
}

/// What an op's signature sees.
pub struct Signature<'a> {
    /// Operand types.
    pub operands: &'a [Type],
    /// Attributes.
    pub attrs: &'a Attrs,
    /// Number of nested blocks.
    pub blocks: usize,
}

impl Signature<'_> {
    /// Refuses any other number of operands.
    pub fn count(&self, expected: usize) -> Result<(), String> {
        match self.operands.len() {
            n if n == expected => Ok(()),
            n => Err(format!("expected {expected} operands, found {n}")),
        }
    }
}
