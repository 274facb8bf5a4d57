//! What a kernel is launched with and what it must produce: plain data that joins kernels (which make it),
//! backends (which run it) and the `check` command (which judges it). No backend is known here.

use std::ops::Range;

use crate::dtype::Dtype;
use crate::ir::TensorBox;

/// Memory a case gives to a kernel: `len` bytes, of which only the segments are mapped.
///
/// Touching an unmapped byte is an error wherever the backend can see it. That makes sparse address spaces
/// (pages past 2^31 bytes) cheap and turns "must never be read" into a fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// The kernel argument this memory backs, for messages.
    pub name: String,
    /// Element type, for messages and for poison patterns.
    pub dtype: Dtype,
    /// Extent of the address range in bytes.
    pub len: u64,
    /// Mapped parts, ascending and disjoint.
    pub segments: Vec<Segment>,
    /// Bytes that CTAs of the launch may write without order, such as a dummy page that padding goes to; mostly none.
    pub racy: Range<u64>,
}

/// A mapped part of a [`Buffer`].
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// Offset of the first byte from the start of the buffer.
    pub offset: u64,
    /// The bytes, before the launch or after it.
    pub bytes: Vec<u8>,
    /// Whether the bytes are defined before the launch. Undefined ones hold a poison pattern, which a kernel may
    /// overwrite but must never let reach an address, a predicate or an output.
    pub defined: bool,
}

impl Buffer {
    /// A fully mapped, defined buffer.
    pub fn from_bytes(name: impl Into<String>, dtype: Dtype, bytes: Vec<u8>) -> Self {
        Buffer::whole(name.into(), dtype, bytes, true)
    }

    /// A fully mapped buffer of `len` bytes that hold poison until written.
    pub fn poisoned(name: impl Into<String>, dtype: Dtype, len: usize) -> Self {
        Buffer::whole(name.into(), dtype, vec![POISON; len], false)
    }

    /// One segment, or none where there is nothing to map.
    fn whole(name: String, dtype: Dtype, bytes: Vec<u8>, defined: bool) -> Self {
        let len = bytes.len() as u64;
        let segments = if len == 0 { Vec::new() } else { vec![Segment { offset: 0, bytes, defined }] };
        Buffer { name, dtype, len, segments, racy: 0..0 }
    }

    /// The `len` bytes at `offset`, if one segment holds them all.
    pub fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let after = self.segments.partition_point(|s| s.offset <= offset);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        let start = usize::try_from(offset - segment.offset).ok()?;
        segment.bytes.get(start..start.checked_add(len)?)
    }
}

/// The byte that fills undefined memory: as bf16, f32 and e4m3 it reads as a NaN, as an index as far out of range.
pub const POISON: u8 = 0xff;

/// One argument of a launch, in the order of the kernel's parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// A pointer into `buffers[buffer]`, `offset` bytes in; `strides` are in elements, outermost first, one for
    /// every run-time stride that the parameter's handle has (none for a slice, one for rows).
    Pointer {
        /// Index into [`Case::buffers`].
        buffer: usize,
        /// Bytes from the start of the buffer.
        offset: u64,
        /// Run-time strides in elements.
        strides: Vec<i64>,
    },
    /// A scalar by value.
    Scalar(ScalarValue),
    /// A tensor map by value.
    Tensor(Tensor),
}

/// A tensor in a buffer, and what a copy moves of it: what a tensor map is made from. Dimensions are listed outermost
/// first; elements along the last one lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Index into [`Case::buffers`].
    pub buffer: usize,
    /// Bytes from the start of the buffer to the first element.
    pub offset: u64,
    /// Element type.
    pub dtype: Dtype,
    /// Elements along each dimension.
    pub dims: Vec<u64>,
    /// Elements from one to the next along each dimension but the last.
    pub strides: Vec<u64>,
    /// The box that the kernel's copies move: rows and columns along the last two dimensions, and the tile's permutation.
    pub tensor_box: TensorBox,
}

/// A scalar argument.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum ScalarValue {
    Bool(bool),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    F32(f32),
}

impl ScalarValue {
    /// Its element type.
    pub const fn dtype(self) -> Dtype {
        match self {
            ScalarValue::Bool(_) => Dtype::Bool,
            ScalarValue::I32(_) => Dtype::I32,
            ScalarValue::U32(_) => Dtype::U32,
            ScalarValue::I64(_) => Dtype::I64,
            ScalarValue::U64(_) => Dtype::U64,
            ScalarValue::F32(_) => Dtype::F32,
        }
    }
}

/// One launch with everything it needs and a judge for what it leaves.
pub struct Case {
    /// What distinguishes the case, e.g. `B=4 next_n=2 lens=edges seed=7`.
    pub name: String,
    /// CTAs in x, y, z. A zero launches nothing.
    pub grid: [u32; 3],
    /// Memory, before the launch.
    pub buffers: Vec<Buffer>,
    /// Arguments, in the order of the kernel's parameters.
    pub args: Vec<Arg>,
    /// Judges the same buffers after the launch.
    pub verify: Judge,
}

/// Judges buffers after a launch.
pub type Judge = Box<dyn Fn(&[Buffer]) -> Verdict + Send + Sync>;

/// What a case's judge says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Largest `calc_diff` over the rows of the output, for outputs compared within a tolerance; 0 for exact ones.
    pub worst_row_diff: f64,
    /// What is wrong, each with element, value and expectation; empty means right.
    pub failures: Vec<String>,
}

/// How much a case list should ask of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scale {
    /// A few seconds on two cores through the emulator.
    Emulator,
    /// The peers' own sizes, on a GPU.
    Gpu,
}
