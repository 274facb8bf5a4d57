use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn range_of_two_types(n: Scalar<i32>, #[comptime] first: usize) {
    for i in first..n {
        let _ = i;
    }
}

fn main() {}
