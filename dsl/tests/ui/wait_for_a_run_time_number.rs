use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn wait_for_a_run_time_number(n: Scalar<i32>) {
    wait_all_but(n);
}

fn main() {}
