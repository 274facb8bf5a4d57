use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn unknown_element_type(x: Scalar<f64>) {
    let _ = x;
}

fn main() {}
