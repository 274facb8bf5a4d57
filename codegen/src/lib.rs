//! Typed handles, structured IR, op catalogue, CUDA C++ printer and static cost of Lathe.
#![warn(missing_docs)]

pub mod contract;
pub mod cost;
pub mod cuda;
pub mod dtype;
pub mod entry;
pub mod handles;
pub mod ir;
pub mod loc;
pub mod ops;
pub mod prelude;
pub mod target;
pub mod trace;
