use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn comptime_undeclared(stages: usize, n: Scalar<i32>) {
    let _ = n + stages as i32;
}

fn main() {}
