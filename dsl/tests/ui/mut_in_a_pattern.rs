use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn mut_in_a_pattern(n: Scalar<i32>) {
    if let Some(mut x) = Some(n) {
        x += 1;
    }
}

fn main() {}
