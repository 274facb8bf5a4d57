//! Names for the rows of a pool's tables.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// The row's index.
            pub fn index(self) -> usize {
                self.0 as usize
            }

            /// The id of row `index`.
            pub(crate) fn at(index: usize) -> Self {
                Self(u32::try_from(index).expect("a pool holds fewer than 2^32 rows"))
            }
        }
    )*};
}

id! {
    /// A captured graph of the pool.
    GraphId
    /// A node of any graph of the pool, or a piece of eager work.
    NodeId
    /// A buffer of the pool.
    BufferId
    /// A stream that work was recorded on.
    StreamId
    /// An event that was recorded and waited for.
    EventId
}
