use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4, warps = 8)]
fn argument_twice(n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
