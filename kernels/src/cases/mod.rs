//! Launches for the kernels, each with memory that traps mistakes and a judge that knows the contract.
//!
//! Everything is a function of a seed. What a kernel must not read is unmapped where that is possible and poisoned
//! elsewhere; what it must not write is compared byte by byte.

pub mod fused;
pub mod logits;
pub mod logits_list;
mod memory;
mod noise;
pub mod store;
pub mod topk;

pub use noise::Noise;
