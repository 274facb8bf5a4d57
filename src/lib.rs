//! Lathe: a workbench for sparse-attention indexer kernels.

pub mod cli;
