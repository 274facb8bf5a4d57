use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn added_float_to_integer(n: Scalar<i32>) {
    let mut x = n;
    x += 0.5;
}

fn main() {}
