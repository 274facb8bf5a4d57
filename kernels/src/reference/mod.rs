//! What the kernels must compute, in plain f64 loops over the contract.
//!
//! Nothing here is shared with the kernels or with the emulator, the conversions of bf16 and e4m3 included: an
//! error would have to be made twice, independently, to go unseen.

pub mod bounds;
pub mod convert;
pub mod logits;
pub mod store;
pub mod topk;
