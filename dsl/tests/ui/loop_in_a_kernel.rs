use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn loop_in_a_kernel(n: Scalar<i32>) {
    let mut x = n;
    loop {
        x -= 1;
    }
}

fn main() {}
