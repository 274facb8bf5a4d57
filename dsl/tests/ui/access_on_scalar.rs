use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn access_on_scalar(#[read] n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
