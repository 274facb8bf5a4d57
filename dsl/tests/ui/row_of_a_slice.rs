use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn row_of_a_slice(#[read] src: Slice<f32>, n: Scalar<i32>) {
    let _ = src.row(n).load();
}

fn main() {}
