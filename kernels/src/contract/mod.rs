//! What the kernels accept: shapes, dtypes, strides, lengths and slots, each refused with an error that names it.
//!
//! A caller describes its tensors as [`Tensor`]s; [`logits::LogitsShape::of`], [`store::ScatterShape::of`] and their
//! like turn them into facts that the launch rules work from. Device-side contents (lengths, slots) are checked
//! separately, where the caller has them on the host.

mod error;
pub mod logits;
pub mod rules;
pub mod store;
mod tensor;
pub mod topk;

pub use error::ContractError;
pub use tensor::Tensor;

use lathe_codegen::dtype::Dtype;

/// Slots of an index-K page.
pub const PAGE_SLOTS: usize = 64;

/// Width of an index key.
pub const HEAD_DIM: usize = 128;

/// Dimensions of a key that rotate with the position: the last 64.
pub const ROPE_DIMS: usize = 64;

/// Head counts of the models that exist.
pub const HEADS: [usize; 3] = [16, 32, 64];

/// Most query tokens a request brings to a step (multi-token prediction).
pub const MAX_NEXT_N: usize = 6;

/// Where the 64 fp32 scales of an fp8 page begin, in bytes.
pub const SCALES_OFFSET: usize = PAGE_SLOTS * HEAD_DIM;

/// How index keys are stored, and q with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// `[64, 128]` bf16 a page.
    Bf16,
    /// Planar: `[64, 128]` e4m3, then 64 fp32 scales.
    Fp8,
}

impl KeyFormat {
    /// Element type of q and of the keys.
    pub const fn dtype(self) -> Dtype {
        match self {
            KeyFormat::Bf16 => Dtype::Bf16,
            KeyFormat::Fp8 => Dtype::E4m3,
        }
    }

    /// Element type of a pool of pages: planar fp8 pages hold two types, so they are bytes.
    pub const fn pool_dtype(self) -> Dtype {
        match self {
            KeyFormat::Bf16 => Dtype::Bf16,
            KeyFormat::Fp8 => Dtype::U8,
        }
    }

    /// Bytes of an element of a key.
    pub const fn element_bytes(self) -> usize {
        self.dtype().size()
    }

    /// Bytes of a page that lies tight: 16,384 in bf16, 8,448 in fp8.
    pub const fn page_bytes(self) -> usize {
        match self {
            KeyFormat::Bf16 => PAGE_SLOTS * HEAD_DIM * 2,
            KeyFormat::Fp8 => SCALES_OFFSET + PAGE_SLOTS * 4,
        }
    }

    /// The name in kernel and case names.
    pub const fn name(self) -> &'static str {
        match self {
            KeyFormat::Bf16 => "bf16",
            KeyFormat::Fp8 => "fp8",
        }
    }
}
