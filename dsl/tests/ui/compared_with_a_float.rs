use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn compared_with_a_float(n: Scalar<i32>) {
    if n == 0.5 {
        let _ = n;
    }
}

fn main() {}
