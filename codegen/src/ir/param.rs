use std::fmt;

use super::shared::Swizzle;
use crate::dtype::Dtype;
use crate::loc::Loc;

/// What a kernel does to the memory behind a pointer argument. The emulator verifies it, the graph checker relies on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Reads only.
    Read,
    /// Writes every byte of what the launch covers, reads none.
    WriteAll,
    /// Writes some bytes and leaves the others as they were, reads none.
    WritePart,
    /// Reads and writes.
    ReadWrite,
}

impl Access {
    /// Whether loads are allowed.
    pub const fn reads(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite)
    }

    /// Whether stores are allowed.
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read)
    }

    /// The name used in Rust source, messages and the text form of the IR.
    pub const fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::WriteAll => "write_all",
            Access::WritePart => "write_part",
            Access::ReadWrite => "read_write",
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether a kernel may touch an argument's memory before its PDL wait, that is, while earlier kernels still run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    /// Also before the wait: the graph must prove that no earlier kernel in flight writes it.
    BeforeWait,
    /// Only after the wait.
    #[default]
    AfterWait,
}

impl Phase {
    /// The name used in messages and the text form of the IR.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::BeforeWait => "before_wait",
            Phase::AfterWait => "after_wait",
        }
    }
}

/// A parameter of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// The author's name for it.
    pub name: String,
    /// What is passed.
    pub kind: ParamKind,
    /// Where it is declared.
    pub loc: Loc,
}

/// What is passed for a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParamKind {
    /// A pointer to global memory, followed by `strides` run-time strides (`long long`, in elements, outermost first).
    Pointer {
        /// Element type.
        dtype: Dtype,
        /// Number of run-time strides: 0 for a slice, 1 for rows.
        strides: usize,
        /// What the kernel does to the memory.
        access: Access,
        /// When it does it.
        phase: Phase,
    },
    /// A scalar by value.
    Scalar(Dtype),
    /// A tensor map by value: a tensor in global memory.
    Tensor {
        /// Element type.
        dtype: Dtype,
        /// Dimensions of the tensor, 1 to 5.
        rank: u8,
        /// What a copy moves.
        tensor_box: TensorBox,
        /// What the kernel does to the memory.
        access: Access,
        /// When it does it.
        phase: Phase,
    },
}

/// The part of a tensor that a copy moves into a tile, or out of it: `rows x cols` elements along the two innermost dimensions, one
/// along any others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TensorBox {
    /// Rows and columns of the tile; none as long as no copy is known.
    pub tile: [u32; 2],
    /// How the tile's elements are permuted.
    pub swizzle: Swizzle,
}

impl fmt::Display for TensorBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, cols] = self.tile;
        write!(f, "{rows} x {cols}")?;
        if self.swizzle == Swizzle::None { Ok(()) } else { write!(f, ", {}", self.swizzle) }
    }
}
