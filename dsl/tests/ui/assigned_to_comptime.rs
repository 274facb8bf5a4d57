use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn assigned_to_comptime(n: Scalar<i32>) {
    let mut best = 0;
    best = best + 1;
    best = n;
    let _ = best;
}

fn main() {}
