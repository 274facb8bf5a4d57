use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn run_time_match(n: Scalar<i32>) {
    match n {
        0 => {}
        _ => {}
    }
}

fn main() {}
