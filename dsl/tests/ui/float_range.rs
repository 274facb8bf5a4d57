use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn float_range(x: Scalar<f32>) {
    for i in x..x {
        let _ = i;
    }
}

fn main() {}
