//! Lathe: a workbench for sparse-attention indexer kernels.
