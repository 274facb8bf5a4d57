use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn access_in_the_type(out: Rows<f32, WritePart>, n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
