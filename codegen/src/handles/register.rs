//! Register tiles, spread over a warp in the fragment layouts of `mma.m16n8k16`. With `g = lane / 4`, `t = lane % 4`:
//! an accumulator's lane holds rows `g` and `g + 8`, columns `2t` and `2t + 1` of every 16 x 8 block.

use std::marker::PhantomData;

use super::Handle;
use crate::ir::ValueId;

/// The left operand of a matrix product, `rows x depth`, in registers.
pub struct MmaA<T> {
    id: ValueId,
    of: PhantomData<T>,
}

/// The right operand of a matrix product, `cols x depth` (that is, transposed), in registers.
pub struct MmaB<T> {
    id: ValueId,
    of: PhantomData<T>,
}

/// The result of a matrix product, `rows x cols` of f32, in registers.
#[derive(Clone, Copy, Debug)]
pub struct Acc {
    id: ValueId,
}

/// One f32 a column of an [`Acc`], held by the lanes that hold elements of the column.
#[derive(Clone, Copy, Debug)]
pub struct Cols {
    id: ValueId,
}

/// One f32 a row of an [`Acc`]; each row's is held by one lane, or by a few that hold the same.
#[derive(Clone, Copy, Debug)]
pub struct RowSums {
    id: ValueId,
}

impl<T> Clone for MmaA<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MmaA<T> {}

impl<T> Clone for MmaB<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MmaB<T> {}

impl<T> Handle for MmaA<T> {
    fn id(self) -> ValueId {
        self.id
    }

    fn from_id(id: ValueId) -> Self {
        MmaA { id, of: PhantomData }
    }
}

impl<T> Handle for MmaB<T> {
    fn id(self) -> ValueId {
        self.id
    }

    fn from_id(id: ValueId) -> Self {
        MmaB { id, of: PhantomData }
    }
}

macro_rules! handles {
    ($($handle:ident)*) => {$(
        impl Handle for $handle {
            fn id(self) -> ValueId {
                self.id
            }

            fn from_id(id: ValueId) -> Self {
                $handle { id }
            }
        }
    )*};
}

handles! { Acc Cols RowSums }
