//! The sparse-attention indexer kernels, their contracts and their f64 reference.
