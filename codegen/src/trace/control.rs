//! Control flow of traced kernels: what the `#[kernel]` macro rewrites `if`, `for`, `let` and assignments into.
