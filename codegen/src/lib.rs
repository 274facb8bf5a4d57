//! Typed handles, structured IR, op catalogue, CUDA C++ printer and static cost of Lathe.
//!
//! A kernel is an ordinary Rust function over [`handles`]. Running it once inside [`trace::trace`] records a
//! [`ir::Kernel`]: structured, clonable, editable, checked by [`ir::Kernel::verify`]. [`ir::Kernel::cuda`] prints it as
//! header-free CUDA C++, and [`ir::Kernel::cost`] says what it asks of the machine.
//!
//! | to find | look in |
//! |---|---|
//! | an operation: types, effects, CUDA text, cost, example, the method that authors call | its family's file in [`ops`] |
//! | what a kernel's source names | [`prelude`] |
//! | how `if`, `for`, `let mut` and comparisons of the author become IR | [`trace::control`] |
//! | when a value gets a statement of its own, and its name | `cuda/plan.rs`, `cuda/names.rs` |
//! | the plain data shared with backends and kernels | [`contract`], [`benchmark`], [`entry`], [`dtype`], [`target`], [`loc`] |
//!
//! Adding an operation touches its family's file; a new family is a line of [`ops::CATALOGUE`] more.
#![warn(missing_docs)]

pub mod benchmark;
pub mod contract;
pub mod cost;
pub mod cuda;
pub mod dtype;
pub mod entry;
pub mod handles;
pub mod ir;
pub mod loc;
pub mod mutate;
pub mod ops;
pub mod prelude;
pub mod target;
pub mod trace;
