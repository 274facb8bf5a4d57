use std::fmt;

use crate::dtype::Dtype;
use crate::loc::Loc;

/// Names a shared-memory tile of one kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TileId(pub(crate) u16);

impl TileId {
    /// Position in [`super::Kernel::tiles`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a tile's elements are permuted in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Swizzle {
    /// Row-major as declared.
    #[default]
    None,
    /// The 16-byte chunk `c` of row `r` lies at chunk `c ^ (r & 7)`: `ldmatrix` and row-wise copies are free of bank conflicts.
    Xor16,
}

impl Swizzle {
    /// The name used in Rust source, messages and the text form of the IR.
    pub const fn name(self) -> &'static str {
        match self {
            Swizzle::None => "none",
            Swizzle::Xor16 => "xor16",
        }
    }
}

impl fmt::Display for Swizzle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tile in shared memory, laid out.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedTile {
    /// The author's name for it.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Rows of one stage.
    pub rows: u32,
    /// Columns.
    pub cols: u32,
    /// Number of stages of a ring, which follow one another in memory; none for a plain tile.
    pub stages: Option<u32>,
    /// Number of copies, one a warp; 1 for a tile that the CTA shares.
    pub copies: u32,
    /// Permutation of the elements.
    pub swizzle: Swizzle,
    /// Bytes from the start of the CTA's dynamic shared memory.
    pub offset: u32,
    /// Where it is declared.
    pub loc: Loc,
}

impl SharedTile {
    /// Bytes of a row. Sizes that no memory has stop at `u32::MAX`.
    pub const fn row_bytes(&self) -> u32 {
        self.cols.saturating_mul(self.dtype.size() as u32)
    }

    /// Bytes of a stage.
    pub const fn stage_bytes(&self) -> u32 {
        self.rows.saturating_mul(self.row_bytes())
    }

    /// Number of stages, 1 for a plain tile.
    pub const fn stages_or_one(&self) -> u32 {
        match self.stages {
            Some(stages) => stages,
            None => 1,
        }
    }

    /// Bytes of a warp's copy, all stages.
    pub const fn copy_bytes(&self) -> u32 {
        self.stages_or_one().saturating_mul(self.stage_bytes())
    }

    /// Bytes in all.
    pub const fn bytes(&self) -> u32 {
        self.copies.saturating_mul(self.copy_bytes())
    }

    /// Bytes in all as declared, also if no memory has so many.
    pub fn declared_bytes(&self) -> u64 {
        let extents = [self.rows, self.cols, self.stages_or_one(), self.copies, self.dtype.size() as u32];
        extents.into_iter().fold(1, |bytes: u64, extent| bytes.saturating_mul(extent.into()))
    }

    /// What it is and what it takes, for messages.
    pub fn summary(&self) -> String {
        let SharedTile { name, dtype, rows, cols, .. } = self;
        let stages = self.stages.map_or_else(String::new, |n| format!("{n} stages of "));
        let copies = if self.copies > 1 { format!(" for each of {} warps", self.copies) } else { String::new() };
        format!("`{name}`, {stages}{dtype} [{rows}, {cols}]{copies}: {} bytes", self.declared_bytes())
    }

    /// Which element lies at `byte` from the tile's start: copy, stage, row, column; the inverse of the layout.
    pub fn element_at(&self, byte: u32) -> Option<[u32; 4]> {
        if byte >= self.bytes() {
            return None;
        }
        let (copy, byte) = (byte / self.copy_bytes(), byte % self.copy_bytes());
        let (stage, byte) = (byte / self.stage_bytes(), byte % self.stage_bytes());
        let (row, byte) = (byte / self.row_bytes(), byte % self.row_bytes());
        let byte = match self.swizzle {
            Swizzle::None => byte,
            Swizzle::Xor16 => byte ^ ((row & 7) * 16),
        };
        Some([copy, stage, row, byte / self.dtype.size() as u32])
    }
}
