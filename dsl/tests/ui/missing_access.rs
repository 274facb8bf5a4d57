use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn missing_access(src: Rows<f32>, n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
