//! NVRTC, emulator and CUDA backends, graph capture and instruments of Lathe.
#![warn(missing_docs)]

pub mod backend;
pub mod bench;
mod cache;
pub mod device;
pub mod instrument;
pub mod launch_file;
pub mod mutation;
pub mod nvrtc;
pub mod program;
pub mod ptxas;
pub mod replay;
pub mod sass;
pub mod toolchain;
