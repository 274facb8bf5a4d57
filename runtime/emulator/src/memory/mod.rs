//! The memories of a launch: global (shared by all CTAs) and the map of address windows.

mod global;
mod page;

pub(crate) use global::{Allocation, Cursor, byte_mask};
pub use global::{GlobalMemory, Init, Rights};

/// Generic addresses at and above this belong to the CTA's shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x7e00_0000_0000_0000;
/// Generic addresses at and above this belong to the lane's local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x7d00_0000_0000_0000;
/// Generic addresses at and above this belong to the kernel's parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x7c00_0000_0000_0000;
/// Bytes of each of the three windows.
pub(crate) const WINDOW_BYTES: u64 = 1 << 32;
/// Where module variables (`.global`, `.const`) are mapped, unless the caller mapped them.
pub(crate) const MODULE_BASE: u64 = 0x7a00_0000_0000_0000;
/// Shared addresses start here: the first KiB belongs to the system, as on sm_90 and later.
pub(crate) const SHARED_BASE: u32 = 1024;
