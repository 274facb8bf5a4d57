//! The structured IR: what a trace builds, the verifier checks, a mutation edits and the printer prints.
//!
//! Every instruction has the same form (operation, operands, attributes, results, nested blocks, source location), so
//! that tools can walk, drop, move and alter instructions without knowing what they mean.

mod attr;
mod display;
mod edit;
mod param;
mod shared;
mod types;
mod verify;

pub use attr::{Attr, Attrs};
pub use edit::Path;
pub use param::{Access, Param, ParamKind, Phase, TensorBox};
pub use shared::{SharedTile, Swizzle, TileId};
pub use types::Type;
pub use verify::VerifyError;

use crate::loc::Loc;
use crate::ops::OpDef;

/// Names a value of one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ValueId(pub(crate) u32);

impl ValueId {
    /// Position in [`Kernel::values`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a value.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its type.
    pub ty: Type,
    /// How it came to be.
    pub origin: Origin,
    /// The author's name for it, from a `let` or a parameter.
    pub name: Option<String>,
    /// Where it was computed.
    pub loc: Loc,
}

/// How a value came to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A kernel parameter; `field` 0 is the pointer or scalar, 1.. its run-time strides.
    Param {
        /// Index into [`Kernel::params`].
        index: usize,
        /// Which of the parameter's CUDA arguments.
        field: usize,
    },
    /// The result of an instruction: never changes.
    Result,
    /// A mutable variable: its value is read by `var.get` and changed by `var.set`.
    Variable,
    /// The index of a `for`.
    Index,
}

/// One operation, applied.
#[derive(Clone, Debug)]
pub struct Inst {
    /// The operation.
    pub op: &'static OpDef,
    /// Values it uses.
    pub operands: Vec<ValueId>,
    /// Constants it is parameterised by.
    pub attrs: Attrs,
    /// Values it defines.
    pub results: Vec<ValueId>,
    /// Nested blocks, for control flow.
    pub blocks: Vec<Block>,
    /// Where the author wrote it.
    pub loc: Loc,
}

/// Instructions run in order, and the values that the enclosing instruction defines for them (a loop's index).
#[derive(Clone, Debug, Default)]
pub struct Block {
    /// Values defined on entry.
    pub params: Vec<ValueId>,
    /// The instructions.
    pub insts: Vec<Inst>,
}

/// A traced kernel: clonable, editable, printable.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The Rust function's name, and the CUDA entry's.
    pub name: String,
    /// The Rust function's documentation.
    pub doc: String,
    /// Warps a CTA.
    pub warps: u32,
    /// CTAs that must fit on an SM at once (the second argument of `__launch_bounds__`).
    pub ctas_per_sm: u32,
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Shared-memory tiles, in order of declaration.
    pub tiles: Vec<SharedTile>,
    /// Every value, by [`ValueId`].
    pub values: Vec<Value>,
    /// The body.
    pub body: Block,
    /// Where the function stands.
    pub loc: Loc,
}

impl Kernel {
    /// Threads a CTA.
    pub const fn threads(&self) -> u32 {
        self.warps * 32
    }

    /// What is known of `id`.
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The type of `id`.
    pub fn ty(&self, id: ValueId) -> Type {
        self.value(id).ty
    }
}
