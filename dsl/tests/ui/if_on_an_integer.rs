use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn if_on_an_integer(n: Scalar<i32>) {
    if n & 1 {
        let _ = n;
    }
}

fn main() {}
