use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn stored_type(#[write_all] out: Slice<f32>, n: Scalar<i32>) {
    out.at(n).store(n);
}

fn main() {}
