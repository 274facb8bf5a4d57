//! What kernel code computes with: `Copy` names of traced values, typed as the author thinks of them.
//!
//! The operations on them stand in the op families under [`crate::ops`].

mod element;
mod scalar;

pub use element::{Arithmetic, Element, Float, Integer, bf16, e4m3, f16};
pub use scalar::{Mask, Scalar};

use crate::ir::ValueId;

/// Anything that names one traced value.
pub trait Handle: Copy {
    /// The value.
    fn id(self) -> ValueId;

    /// The handle of a value that is known to have this type.
    fn from_id(id: ValueId) -> Self;
}
