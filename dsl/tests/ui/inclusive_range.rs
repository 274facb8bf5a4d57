use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn inclusive_range(n: Scalar<i32>) {
    for i in 0..=n {
        let _ = i;
    }
}

fn main() {}
