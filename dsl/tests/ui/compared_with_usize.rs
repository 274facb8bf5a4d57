use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn compared_with_usize(n: Scalar<i32>, #[comptime] stages: usize) {
    if n < stages {
        let _ = n;
    }
}

fn main() {}
