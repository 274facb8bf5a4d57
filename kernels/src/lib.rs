//! The sparse-attention indexer kernels, their contracts and their f64 reference.
#![warn(missing_docs)]

pub mod cases;
pub mod contract;
pub mod launch;
pub mod reference;
