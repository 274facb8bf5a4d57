use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn run_time_value_if(n: Scalar<i32>) {
    let x = if n > 3 { n } else { n + 1 };
    let _ = x;
}

fn main() {}
