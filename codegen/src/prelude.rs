//! What a kernel's source uses: handles, and the operations that are not methods of one.

pub use crate::handles::{
    Arithmetic, Element, Float, Integer, Mask, Place, Read, ReadWrite, Rows, Scalar, Slice, Vector, WriteAll,
    WritePart, bf16, e4m3, f16,
};

/// The CTA (thread block) and its place in the grid.
pub mod cta {
    pub use crate::ops::barrier::{cta_sync as sync, named_sync as sync_warps};
    pub use crate::ops::index::{cta_x as x, cta_y as y, cta_z as z};
}

/// The grid of CTAs.
pub mod grid {
    pub use crate::ops::index::{grid_x as x, grid_y as y, grid_z as z};
}

/// The warp and its place in the CTA.
pub mod warp {
    pub use crate::ops::barrier::warp_sync as sync;
    pub use crate::ops::index::warp_id as id;
}

/// The lane and its place in the warp.
pub mod lane {
    pub use crate::ops::index::lane_id as id;
}

/// The thread and its place in the CTA.
pub mod thread {
    pub use crate::ops::index::thread_id as id;
}

/// Programmatic dependent launch.
pub mod pdl {
    pub use crate::ops::pdl::{launch_dependents, wait};
}
