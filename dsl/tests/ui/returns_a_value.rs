use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn returns_a_value(n: Scalar<i32>) -> Scalar<i32> {
    n + 1
}

fn main() {}
