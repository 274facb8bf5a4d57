use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn declared_without_a_value(n: Scalar<i32>) {
    let x;
    if n > 3 {
        x = n;
    } else {
        x = n + 1;
    }
    let _ = x;
}

fn main() {}
