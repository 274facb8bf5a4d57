//! What kernel code computes with: `Copy` names of traced values, typed as the author thinks of them.
//!
//! The operations on them stand in the op families under [`crate::ops`].

mod access;
mod element;
mod global;
mod lanes;
mod register;
mod scalar;
mod shared;
mod vector;

pub use access::{AccessMode, Read, ReadWrite, Readable, Writable, WriteAll, WritePart};
pub use element::{Arithmetic, ByValue, Element, Float, Integer, bf16, e4m3, f16};
pub use global::{Argument, Place, Rows, Slice, TensorMap};
pub use lanes::{Lanes, Span};
pub use register::{Acc, Cols, MmaA, MmaB, RowSums};
pub use scalar::{Mask, Scalar, Stored};
pub use shared::{MBarriers, Ring, SharedTile};
pub use vector::Vector;

use crate::ir::ValueId;

/// Anything that names one traced value.
pub trait Handle: Copy {
    /// The value.
    fn id(self) -> ValueId;

    /// The handle of a value that is known to have this type.
    fn from_id(id: ValueId) -> Self;
}
