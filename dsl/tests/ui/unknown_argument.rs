use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4, blocks_per_sm = 2)]
fn unknown_argument(n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
