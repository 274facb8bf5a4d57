use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn unknown_phase(#[read(early)] _lens: Slice<i32>, n: Scalar<i32>) {
    let _ = n + 1;
}

fn main() {}
