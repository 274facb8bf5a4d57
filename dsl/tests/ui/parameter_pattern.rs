use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn parameter_pattern((n, m): (Scalar<i32>, Scalar<i32>)) {
    let _ = n + m;
}

fn main() {}
