use std::fmt;

use super::shared::TileId;
use crate::dtype::Dtype;

/// The type of a value. Register tiles are spread over a warp's 32 lanes in the fragment layouts of `mma.m16n8k16`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Type {
    /// Stands for the result of an instruction that was refused, so that one mistake gives one message.
    Error,
    /// One element a lane.
    Scalar(Dtype),
    /// A global-memory address a lane, of elements of this type.
    Global(Dtype),
    /// A tensor map, of elements of this type.
    TensorMap {
        /// Element type.
        dtype: Dtype,
        /// Dimensions of the tensor.
        rank: u8,
    },
    /// `len` consecutive elements a lane, in registers.
    Vector {
        /// Element type.
        dtype: Dtype,
        /// Elements a lane.
        len: u32,
    },
    /// A tile in shared memory; `staged` until a stage is chosen.
    Shared {
        /// Which tile.
        tile: TileId,
        /// Whether it still stands for all stages.
        staged: bool,
    },
    /// MMA operand A: `rows x depth`.
    A {
        /// Element type.
        dtype: Dtype,
        /// Rows (M).
        rows: u32,
        /// Columns (K).
        depth: u32,
    },
    /// MMA operand B: `cols x depth`, that is, transposed.
    B {
        /// Element type.
        dtype: Dtype,
        /// Columns (N).
        cols: u32,
        /// Rows (K).
        depth: u32,
    },
    /// MMA accumulator: `rows x cols` of f32.
    Acc {
        /// Rows (M).
        rows: u32,
        /// Columns (N).
        cols: u32,
    },
    /// One f32 a column of an accumulator, held by every lane that holds elements of the column.
    Cols {
        /// Columns (N).
        cols: u32,
    },
    /// One f32 a row of an accumulator, scattered: each row is held by one lane of its quad.
    RowSums {
        /// Rows (M).
        rows: u32,
    },
}

impl Type {
    /// Element type of scalars, vectors, pointers and register tiles.
    pub fn dtype(self) -> Option<Dtype> {
        match self {
            Type::Scalar(dtype) | Type::Global(dtype) => Some(dtype),
            Type::Vector { dtype, .. } | Type::A { dtype, .. } | Type::B { dtype, .. } => Some(dtype),
            Type::Acc { .. } | Type::Cols { .. } | Type::RowSums { .. } => Some(Dtype::F32),
            Type::Error | Type::Shared { .. } | Type::TensorMap { .. } => None,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Type::Error => f.write_str("error"),
            Type::Scalar(dtype) => write!(f, "{dtype}"),
            Type::Global(dtype) => write!(f, "*{dtype}"),
            Type::TensorMap { dtype, rank } => write!(f, "tensor<{dtype} {rank}d>"),
            Type::Vector { dtype, len } => write!(f, "{dtype}x{len}"),
            Type::Shared { tile, staged } => write!(f, "shared{}{}", tile.index(), if staged { "[]" } else { "" }),
            Type::A { dtype, rows, depth } => write!(f, "a<{dtype} {rows}x{depth}>"),
            Type::B { dtype, cols, depth } => write!(f, "b<{dtype} {cols}x{depth}>"),
            Type::Acc { rows, cols } => write!(f, "acc<{rows}x{cols}>"),
            Type::Cols { cols } => write!(f, "cols<{cols}>"),
            Type::RowSums { rows } => write!(f, "row_sums<{rows}>"),
        }
    }
}
