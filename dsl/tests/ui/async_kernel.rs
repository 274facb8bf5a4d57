use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
async fn async_kernel(n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
