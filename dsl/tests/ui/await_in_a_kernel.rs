use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn await_in_a_kernel(n: Scalar<i32>) {
    let copy = async { n };
    copy.await;
}

fn main() {}
