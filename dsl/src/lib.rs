//! The attributes that make an ordinary Rust function a kernel, [`macro@kernel`] and [`macro@device`], and the derive that
//! makes a struct of handles a variable, [`macro@Traced`].
//!
//! The function keeps its body: the attributes rewrite only what Rust does not let a library overload (comparisons,
//! `&&` and `||`, statement `if`, assignment, `let`, range `for`), token by token and in place, so that every error
//! and every editor feature points at what the author wrote. Whatever the rewritten form means is decided by types, in
//! `lathe_codegen::trace::control`; this crate knows nothing of CUDA.
#![warn(missing_docs)]

use proc_macro::TokenStream;

mod attr;
mod check;
mod errors;
mod expand;
mod param;
mod rewrite;
mod traced;

/// Makes a function a kernel.
///
/// ```ignore
/// /// Copies the first `lens[row]` elements of each row.
/// #[kernel(warps = 4, ctas_per_sm = 2)]
/// pub fn copy_rows(
///     #[comptime] width: usize,
///     #[read] src: Rows<f32>,
///     #[read(before_wait)] lens: Slice<i32>,
///     #[write_part] out: Rows<f32>,
///     limit: Scalar<i32>,
/// ) { ... }
/// ```
///
/// becomes `pub fn copy_rows(width: usize) -> Result<Kernel, TraceErrors>`: calling it with the comptime values runs
/// the body once and returns the kernel.
///
/// **Arguments**: `warps = N` (required: warps a CTA), `ctas_per_sm = N` (CTAs that must fit on an SM, default 1),
/// `crate = path` (where Lathe is, default `::lathe`). Values may be expressions over the comptime parameters.
///
/// **Parameters**: `#[comptime]` ones are ordinary Rust values and stay parameters of the function. Pointers declare
/// what the kernel does to their memory: `#[read]`, `#[write_all]`, `#[write_part]` or `#[read_write]`, and
/// `(before_wait)` when the kernel touches it before `pdl::wait()`. Scalars are passed by value, undeclared.
#[proc_macro_attribute]
pub fn kernel(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(args.into(), item.into()).into()
}

/// Makes a function callable from kernels with the language of kernels in its body.
///
/// A helper that only combines handles with operators and methods needs no attribute. One that compares run-time
/// values, branches on them, or declares `let mut` variables does. The function is traced in place at every call.
///
/// **Arguments**: `crate = path` (where Lathe is, default `::lathe`).
#[proc_macro_attribute]
pub fn device(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::device(args.into(), item.into()).into()
}

/// Makes a struct of run-time values one itself: `let mut` and assignment then work on the struct and on its fields.
///
/// ```ignore
/// #[derive(Clone, Copy, Traced)]
/// struct Running {
///     max: Scalar<f32>,
///     sum: Scalar<f32>,
/// }
/// ```
///
/// Every field must be made of run-time values. `#[traced(crate = path)]` says where Lathe is, by default `::lathe`.
#[proc_macro_derive(Traced, attributes(traced))]
pub fn traced(input: TokenStream) -> TokenStream {
    traced::derive(input.into()).into()
}
