use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn arithmetic_on_bf16(#[read] src: Slice<bf16>, n: Scalar<i32>) {
    let x = src.at(n).load();
    let _ = x + x;
}

fn main() {}
