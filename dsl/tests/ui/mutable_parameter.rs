use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn mutable_parameter(#[read] mut src: Slice<i32>, n: Scalar<i32>) {
    src = src;
    let _ = src.at(n);
}

fn main() {}
