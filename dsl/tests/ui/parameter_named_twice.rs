use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn parameter_named_twice(n: Scalar<i32>, n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
