use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn array_assignment(n: Scalar<i32>) {
    let (mut a, mut b) = (n, n);
    [a, b] = [b, a];
    let _ = a + b;
}

fn main() {}
