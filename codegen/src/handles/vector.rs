use std::marker::PhantomData;

use super::Handle;
use crate::ir::ValueId;

/// Consecutive elements held by each lane, in registers.
pub struct Vector<T> {
    id: ValueId,
    of: PhantomData<T>,
}

impl<T> Clone for Vector<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Vector<T> {}

impl<T> Handle for Vector<T> {
    fn id(self) -> ValueId {
        self.id
    }

    fn from_id(id: ValueId) -> Self {
        Vector { id, of: PhantomData }
    }
}
