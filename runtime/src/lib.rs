//! NVRTC, emulator and CUDA backends, graph capture and instruments of Lathe.
#![warn(missing_docs)]

mod cache;
pub mod device;
pub mod nvrtc;
pub mod ptxas;
pub mod sass;
pub mod toolchain;
