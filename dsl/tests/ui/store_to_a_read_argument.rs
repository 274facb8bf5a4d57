use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn store_to_a_read_argument(#[read] src: Slice<f32>, n: Scalar<i32>) {
    src.at(n).store(1.0);
}

fn main() {}
