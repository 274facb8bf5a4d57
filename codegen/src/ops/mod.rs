//! The op catalogue. Everything that concerns an op stands in the one file of its family: signature, effects, CUDA
//! text, cost, documentation, the methods that authors call, tests.

pub mod arith;
pub mod barrier;
pub mod bits;
pub mod bulk;
pub mod cast;
pub mod compare;
pub mod control;
pub mod cp_async;
pub mod example;
pub mod fence;
pub mod float;
pub mod global;
pub mod index;
pub mod ldmatrix;
pub mod mbarrier;
pub mod mma;
pub mod pdl;
pub mod reduce;
#[cfg(test)]
mod reference;
pub mod role;
pub mod row_max;
pub mod shared;
pub mod shared_element;
pub mod shared_vector;
pub mod shuffle;
pub mod tensor;
pub mod tile;
pub mod vector;
pub mod vote;
pub mod wgmma;

use crate::cost::{Cost, Costing};
use crate::cuda::Emit;
use crate::dtype::Dtype;
use crate::ir::{Attrs, SharedTile, Type};

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
    /// What it costs each time a warp executes it.
    pub cost: fn(&Costing<'_>) -> Cost,
    /// The shortest kernel body that shows it: its CUDA is the op's documentation and its first test.
    pub example: fn(),
}

impl OpDef {
    /// Whether it only computes its results from its operands.
    pub fn is_pure(&self) -> bool {
        self.effects.iter().all(|effect| matches!(effect, Effect::Partial(_)))
    }
}

impl std::fmt::Debug for OpDef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The ops of one file.
pub struct Family {
    /// The file's name without `.rs`.
    pub name: &'static str,
    /// Its text.
    pub source: &'static str,
    /// What it defines.
    pub ops: &'static [&'static OpDef],
}

/// Every op there is, by family. The verifier refuses any other.
pub static CATALOGUE: &[&Family] = &[
    &arith::FAMILY,
    &barrier::FAMILY,
    &bits::FAMILY,
    &bulk::FAMILY,
    &cast::FAMILY,
    &compare::FAMILY,
    &control::FAMILY,
    &cp_async::FAMILY,
    &fence::FAMILY,
    &float::FAMILY,
    &global::FAMILY,
    &index::FAMILY,
    &ldmatrix::FAMILY,
    &mbarrier::FAMILY,
    &mma::FAMILY,
    &pdl::FAMILY,
    &reduce::FAMILY,
    &role::FAMILY,
    &row_max::FAMILY,
    &shared::FAMILY,
    &shared_element::FAMILY,
    &shared_vector::FAMILY,
    &shuffle::FAMILY,
    &tensor::FAMILY,
    &tile::FAMILY,
    &vector::FAMILY,
    &wgmma::FAMILY,
    &vote::FAMILY,
];

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
    /// Tells others that wait, and does not wait itself.
    Arrive,
    /// Orders memory accesses of different proxies.
    Fence,
    /// Starts copies that complete later.
    AsyncCopy,
    /// Waits for copies started before.
    AsyncWait,
    /// Exchanges values with other lanes of the warp, all of which take part.
    Exchange,
    /// Waits for, or releases, another kernel.
    GridDependency,
    /// Has no defined meaning unless its last operand lies in a domain: it runs only where the author wrote it.
    Partial(Domain),
}

/// What an operand must be for an op to have a meaning. Floats always are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Domain {
    /// Not zero; and not -1, by which the least signed integer has no quotient.
    Divisor,
    /// From zero up to, without, the number of bits.
    ShiftCount,
}

impl Domain {
    /// Whether an operand of this type is certainly in the domain; `literal` is its value if that is known.
    pub fn holds(self, dtype: Dtype, literal: Option<i64>) -> bool {
        let signed = matches!(dtype, Dtype::I32 | Dtype::I64);
        match (self, literal) {
            _ if dtype == Dtype::F32 => true,
            (_, None) => false,
            (Domain::Divisor, Some(divisor)) => divisor != 0 && !(signed && divisor == -1),
            (Domain::ShiftCount, Some(count)) => (0..dtype.size() as i64 * 8).contains(&count),
        }
    }
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
    /// The kernel's shared-memory tiles.
    pub tiles: &'a [SharedTile],
    /// Warps a CTA.
    pub warps: u32,
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

impl Signature<'_> {
    /// The tile that an operand names, one stage of it.
    pub fn tile(&self, operand: usize) -> Result<&SharedTile, String> {
        match self.operands.get(operand) {
            Some(Type::Shared { tile, staged: false }) => {
                self.tiles.get(tile.index()).ok_or_else(|| format!("there is no tile {}", tile.index()))
            }
            Some(Type::Shared { staged: true, .. }) => {
                Err("choose a stage of the ring first: `ring.stage(index)`".to_owned())
            }
            Some(other) => Err(format!("expected a tile in shared memory, found {other}")),
            None => Err("an operand is missing".to_owned()),
        }
    }
}
