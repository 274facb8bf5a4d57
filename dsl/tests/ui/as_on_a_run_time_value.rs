use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn as_on_a_run_time_value(n: Scalar<i32>) {
    let x = n as f32;
    let _ = x;
}

fn main() {}
