use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn array_index(n: Scalar<i32>, #[comptime] table: [i32; 4]) {
    let _ = n + table[n];
}

fn main() {}
