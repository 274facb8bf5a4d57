//! A kernel as the `lathe` program knows it: a name, its source, and the variants that are compiled and checked.

use crate::benchmark::Benchmark;
use crate::contract::{Case, Scale};
use crate::ir::Kernel;
use crate::mutate::Equivalent;
use crate::target::Target;
use crate::trace::TraceErrors;

/// A kernel that the command-line program lists, prints and checks. A crate with kernels of its own hands a slice
/// of these to `lathe::cli::main`.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The name typed on the command line, e.g. `bf16_paged_mqa_logits`.
    pub name: &'static str,
    /// One line: what it computes.
    pub about: &'static str,
    /// The Rust file that holds it, as `file!()` gives it.
    pub file: &'static str,
    /// The text of that file, as `include_str!` gives it, so that the binary can show it far from the sources.
    pub source: &'static str,
    /// Small faults of it that no caller could see; see [`crate::mutate`].
    pub equivalents: &'static [Equivalent],
    /// The variants for one target, each with its comptime parameters fixed.
    pub variants: fn(Target) -> Vec<Variant>,
    /// How it is timed, if it is.
    pub benchmark: Option<Benchmark>,
}

/// One kernel with its comptime parameters fixed.
pub struct Variant {
    /// What tells it from its siblings, e.g. `H=64`; empty for an only one.
    pub label: String,
    /// The traced kernel, or every mistake in it.
    pub kernel: Result<Kernel, TraceErrors>,
    /// Launches with their judges.
    pub cases: Cases,
}

/// Makes the cases of a variant, in a backend's size.
pub type Cases = Box<dyn Fn(Scale) -> Vec<Case> + Send + Sync>;
