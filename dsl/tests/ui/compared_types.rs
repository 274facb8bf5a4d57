use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn compared_types(n: Scalar<i32>, x: Scalar<f32>) {
    if n < x {
        let _ = n;
    }
}

fn main() {}
