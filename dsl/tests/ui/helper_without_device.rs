use lathe::prelude::*;
use lathe_dsl::kernel;

fn below(x: Scalar<i32>, limit: Scalar<i32>) -> Mask {
    x < limit
}

#[kernel(warps = 4)]
fn helper_without_device(n: Scalar<i32>) {
    if below(n, n + 1) {
        let _ = n;
    }
}

fn main() {}
