//! What a kernel's source uses: handles, and the operations that are not methods of one.

pub use crate::handles::{
    Acc, Arithmetic, ByValue, Cols, Element, Float, Integer, Lanes, MBarriers, Mask, MmaA, MmaB, Place, Read,
    ReadWrite, Ring, RowSums, Rows, Scalar, SharedTile, Slice, Span, TensorMap, Vector, WriteAll, WritePart, bf16,
    e4m3, f16,
};
pub use crate::ir::Swizzle::Xor16;
pub use crate::ops::bulk::{commit_bulk, wait_bulk_all_but};
pub use crate::ops::control::section;
pub use crate::ops::cp_async::{commit, wait_all_but};
pub use crate::ops::mbarrier::{MBarrier, PipelineState, mbarriers};
pub use crate::ops::mma::mma_abt;
pub use crate::ops::reduce::below;
pub use crate::ops::shared::shared;
pub use crate::ops::tile::relu;

/// The CTA (thread block) and its place in the grid.
pub mod cta {
    pub use crate::ops::barrier::{cta_sync as sync, named_arrive as arrive_warps, named_sync as sync_warps};
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
    pub use crate::ops::role::{give_registers, role, take_registers};
}

/// The group of four warps that multiply together, and its place in the CTA.
pub mod warpgroup {
    pub use crate::ops::index::{warp_of_group as warp, warpgroup_id as id};
}

/// The lane and its place in the warp.
pub mod lane {
    pub use crate::ops::index::lane_id as id;
}

/// The thread and its place in the CTA.
pub mod thread {
    pub use crate::ops::index::thread_id as id;
}

/// Fences between proxies.
pub mod fence {
    pub use crate::ops::fence::{async_proxy, mbarrier_init};
}

/// Matrix products of a warpgroup.
pub mod wgmma {
    pub use crate::ops::wgmma::{Pending, commit, product};
}

/// Programmatic dependent launch.
pub mod pdl {
    pub use crate::ops::pdl::{launch_dependents, wait};
}
