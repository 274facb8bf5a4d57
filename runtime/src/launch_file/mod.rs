//! Launch files: how to launch a kernel that Lathe did not generate, in TOML.
//!
//! ```toml
//! entry = "scale"              # may be left out where the PTX has one kernel
//! grid = [4, 2]                # CTAs along x, y, z; a single number is x
//! block = 128                  # threads of a CTA; may be left out where the PTX fixes it (.reqntid)
//! dynamic_shared = 20480       # bytes; 0 if left out
//! args = ["out", "x", { buffer = "x", offset = 512 }, { i32 = 256 }, { f32 = 0.5 }]
//!
//! [buffers.x]
//! dtype = "bf16"               # bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 e4m3 e5m2
//! shape = [4, 256]
//! fill = { normal = [0.0, 1.0], seed = 7 }
//! access = "read"              # optional: read, write_all, write_part or read_write; checked if given
//!
//! [buffers.out]
//! dtype = "f32"
//! shape = [4, 256]             # no fill: undefined until the kernel writes it
//! access = "write_all"
//! ```
//!
//! # Arguments
//! One for each parameter of the kernel, in order: a buffer by name; `{ buffer = "x", offset = 512 }`, with an offset
//! in bytes; a scalar by its type; `{ struct = [..] }`, a C struct passed by value, of any of these; a tensor map. A null
//! pointer is `{ u64 = 0 }`.
//!
//! A tensor map is `{ tensor = "x", box = [64, 128], swizzle = 128 }`: the box that a copy moves, outermost extent first,
//! and 32, 64 or 128 for the bytes whose 16-byte chunks are permuted, 0 for none. The tensor is the buffer as its shape
//! says; `dims` and `strides` (in elements, one for each dimension but the last), and an `offset` in bytes, say otherwise.
//!
//! # Contents of a buffer
//! | fill | contents |
//! |---|---|
//! | left out, or `"undefined"` | nothing: using it before the kernel writes it is a finding |
//! | `"zeros"` | zeros |
//! | `"iota"` | 0, 1, 2, … |
//! | `{ constant = 1.5 }` | one value |
//! | `{ values = [700, 130] }` | these values, as many as the shape says |
//! | `{ uniform = [-1, 1], seed = 7 }` | random between the two; for integers both ends are possible |
//! | `{ normal = [0, 1], seed = 7 }` | random with this mean and standard deviation; floats only |
//! | `{ file = "x.npy" }` | a NumPy array of the same type; bf16 and 8-bit floats as unsigned integers of their size |
//! | `{ file = "x.bin" }` | raw little-endian bytes |
//!
//! Paths are relative to the launch file. `shape` may be left out for a `.npy` file. `before_wait = true` says, of a
//! buffer with an `access`, that it may be touched before `griddepcontrol.wait`.

mod contents;
mod element;
mod error;
mod npy;
mod on_device;
mod prepared;
mod read;
mod template;

use std::ops::Range;
use std::path::{Path, PathBuf};

use lathe_emulator::{Effect, TensorSwizzle};

pub use element::{Element, Number};
pub use error::{LaunchFileError, Problem};
pub use on_device::{DeviceLaunchError, DeviceOutcome, Difference};
pub use prepared::{BufferAfter, Outcome, Prepared};
pub use template::template;

/// How to launch a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchFile {
    /// The kernel's name; none for the only one.
    pub entry: Option<String>,
    /// CTAs along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a CTA along x, y, z; none for what the PTX says.
    pub block: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// Arguments, in the order of the kernel's parameters.
    pub args: Vec<Argument>,
    /// Where `args` stand in the text.
    pub args_span: Option<Range<usize>>,
    /// Memory, in the order of the names.
    pub buffers: Vec<Buffer>,
}

/// An argument, with its place in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// What is passed.
    pub value: Value,
    /// Bytes of the file's text.
    pub span: Range<usize>,
}

/// What an argument passes.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// The address of a byte of a buffer.
    Buffer {
        /// Index into [`LaunchFile::buffers`].
        buffer: usize,
        /// Bytes from its start.
        offset: u64,
    },
    /// A number.
    Scalar {
        /// Its type.
        element: Element,
        /// Its value.
        number: Number,
    },
    /// A C struct by value.
    Struct(Vec<Argument>),
    /// A tensor map by value.
    Tensor(Tensor),
}

/// A tensor in a buffer and the box that a copy moves, outermost dimension first.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Index into [`LaunchFile::buffers`].
    pub buffer: usize,
    /// Bytes from its start.
    pub offset: u64,
    /// Elements along each dimension; none for the buffer's shape.
    pub dims: Option<Vec<u64>>,
    /// Elements from one to the next along each dimension but the last; none for one behind the other.
    pub strides: Option<Vec<u64>>,
    /// Elements of the box along each dimension.
    pub box_dims: Vec<u32>,
    /// How the box lies in shared memory.
    pub swizzle: TensorSwizzle,
}

/// Memory that is there before the launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub element: Element,
    /// Extents, outermost first; none where a `.npy` file says it.
    pub shape: Option<Vec<u64>>,
    /// What it holds.
    pub fill: Fill,
    /// What the kernel does with it.
    pub access: Option<Effect>,
    /// Whether it may be touched before `griddepcontrol.wait`.
    pub before_wait: bool,
    /// Bytes of the file's text that describe it.
    pub span: Range<usize>,
}

/// What a buffer holds before the launch.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub enum Fill {
    Undefined,
    Constant(Number),
    Iota,
    Values(Vec<Number>),
    Uniform { least: Number, most: Number, seed: u64 },
    Normal { mean: f64, deviation: f64, seed: u64 },
    File(PathBuf),
}

impl LaunchFile {
    /// Reads the text of a launch file.
    ///
    /// # Errors
    /// A [`LaunchFileError`] that names the key, the value and what is accepted, with its place in the text.
    pub fn parse(text: &str) -> Result<Self, LaunchFileError> {
        read::file(text)
    }

    /// Fills the buffers and fits the arguments to `kernel`. Files are looked for in `folder`.
    ///
    /// # Errors
    /// A [`LaunchFileError`], as in [`LaunchFile::parse`].
    pub fn prepare(self, kernel: &lathe_emulator::Kernel, folder: &Path) -> Result<Prepared, LaunchFileError> {
        Prepared::new(self, kernel.clone(), folder)
    }
}
