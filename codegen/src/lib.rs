//! Typed handles, structured IR, op catalogue, CUDA C++ printer and static cost of Lathe.
#![warn(missing_docs)]

pub mod contract;
pub mod dtype;
pub mod entry;
pub mod loc;
pub mod target;
