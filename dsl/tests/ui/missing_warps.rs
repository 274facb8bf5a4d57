use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(ctas_per_sm = 2)]
fn missing_warps(n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
