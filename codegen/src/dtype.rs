//! Element types of buffers, tiles and scalars.

use std::fmt;

/// An element type, as it lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Dtype {
    Bool,
    I32,
    U32,
    I64,
    U64,
    F32,
    /// bfloat16: 8 exponent bits, 7 mantissa bits.
    Bf16,
    /// IEEE half.
    F16,
    /// 8-bit float, 4 exponent bits, 3 mantissa bits, no infinities, largest finite 448.
    E4m3,
    U8,
}

impl Dtype {
    /// Bytes an element takes in memory.
    pub const fn size(self) -> usize {
        match self {
            Dtype::I64 | Dtype::U64 => 8,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
            Dtype::Bool | Dtype::E4m3 | Dtype::U8 => 1,
        }
    }

    /// The name used in Rust source, messages and the text form of the IR.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::I32 => "i32",
            Dtype::U32 => "u32",
            Dtype::I64 => "i64",
            Dtype::U64 => "u64",
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
            Dtype::E4m3 => "e4m3",
            Dtype::U8 => "u8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
