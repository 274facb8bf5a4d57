//! The seed failure, end to end: a decode step that corrupts some conversations, only captured, only with more than one
//! request, only in bf16, and never while somebody clones a tensor to catch it.
//!
//! [`layer`] records one layer with the real indexer kernels; [`host`] says where a caching allocator puts its tensors;
//! [`study`] runs it in many orders on a [`backend`] and lets every instrument look; [`seen`] is what
//! they saw, and [`story`] tells it. [`hardware`] replays it as captured graphs on a GPU, and counts.

pub mod backend;
pub mod hardware;
pub mod host;
pub mod kernels;
pub mod layer;
pub mod programs;
pub mod seen;
pub mod story;
pub mod study;
