//! Lathe: a workbench for sparse-attention indexer kernels.
//!
//! Write a kernel in Rust, read the CUDA C++ it becomes, prove on the CPU that it is right, capture it in a graph
//! without fear for its buffers, and measure it. `docs/authoring.md` writes a kernel from nothing.
//!
//! ```
//! use lathe::prelude::*;
//!
//! /// Copies the first `lens[r]` elements of row r.
//! #[kernel(warps = 4)]
//! fn copy_rows(#[read] src: Rows<f32>, #[read] lens: Slice<i32>, #[write_part] out: Rows<f32>) {
//!     let row = cta::x();
//!     pdl::wait();
//!     let len = lens.at(row).load();
//!     for i in (thread::id()..len).step_by(128) {
//!         out.row(row).at(i).store(src.row(row).at(i).load());
//!     }
//! }
//!
//! let kernel = copy_rows().expect("traces");
//! let cuda = kernel.cuda(lathe::target::Target::Sm120a).expect("prints");
//! assert!(cuda.source.contains("const int len = load(lens + row);"));
//! ```

// What `#[kernel]` expands to names this crate.
extern crate self as lathe;

pub mod cli;
pub mod gpu_test;
pub mod stress;

pub use lathe_codegen::{benchmark, contract, dtype, entry, handles, ir, loc, target, trace};
pub use lathe_dsl::{Traced, device, kernel};
pub use lathe_graph as graph;
pub use lathe_kernels as kernels;
pub use lathe_runtime as runtime;

#[doc = include_str!("../docs/language.md")]
pub mod language {}

/// What the source of a kernel uses: `use lathe::prelude::*;`.
pub mod prelude {
    pub use lathe_codegen::prelude::*;
    pub use lathe_dsl::{Traced, device, kernel};
}
