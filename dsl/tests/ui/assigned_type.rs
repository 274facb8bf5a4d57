use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn assigned_type(n: Scalar<i32>) {
    let mut x = n;
    x = 0.5;
    let _ = x;
}

fn main() {}
