//! NVRTC, emulator and CUDA backends, graph capture and instruments of Lathe.
#![warn(missing_docs)]

pub mod device;
