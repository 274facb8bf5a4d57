use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 64)]
fn too_many_warps(n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
