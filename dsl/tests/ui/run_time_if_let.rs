use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn run_time_if_let(n: Scalar<i32>) {
    if let 3 = n {
        let _ = n;
    }
}

fn main() {}
