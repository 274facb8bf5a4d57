use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn closure_without_a_type(n: Scalar<i32>) {
    let twice = |x| x.to::<i64>() * 2i64;
    let _ = twice(n);
}

fn main() {}
