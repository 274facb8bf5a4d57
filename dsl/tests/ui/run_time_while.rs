use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn run_time_while(n: Scalar<i32>) {
    let mut x = n;
    while x > 0 {
        x -= 1;
    }
}

fn main() {}
