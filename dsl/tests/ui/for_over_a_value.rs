use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn for_over_a_value(n: Scalar<i32>) {
    for i in n {
        let _ = i;
    }
}

fn main() {}
