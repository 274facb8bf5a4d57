use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn added_types(n: Scalar<i32>, x: Scalar<f32>) {
    let _ = n + x;
}

fn main() {}
