use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn scalar_of_bf16(factor: Scalar<bf16>) {
    let _ = factor;
}

fn main() {}
