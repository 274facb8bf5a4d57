//! NVRTC, emulator and CUDA backends, graph capture and instruments of Lathe.
