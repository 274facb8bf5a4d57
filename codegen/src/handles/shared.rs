use std::marker::PhantomData;

use super::Handle;
use crate::ir::ValueId;

/// A tile in shared memory: of the CTA, or of each warp.
pub struct SharedTile<T> {
    id: ValueId,
    of: PhantomData<T>,
}

/// A tile in shared memory that is there several times, for copies in flight: a stage is filled while others are read.
pub struct Ring<T> {
    id: ValueId,
    of: PhantomData<T>,
}

macro_rules! handles {
    ($($handle:ident)*) => {$(
        impl<T> Clone for $handle<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $handle<T> {}

        impl<T> Handle for $handle<T> {
            fn id(self) -> ValueId {
                self.id
            }

            fn from_id(id: ValueId) -> Self {
                $handle { id, of: PhantomData }
            }
        }
    )*};
}

handles! { SharedTile Ring }

/// mbarriers in shared memory: of the CTA, or of each warp.
#[derive(Clone, Copy)]
pub struct MBarriers {
    id: ValueId,
}

impl Handle for MBarriers {
    fn id(self) -> ValueId {
        self.id
    }

    fn from_id(id: ValueId) -> Self {
        MBarriers { id }
    }
}
