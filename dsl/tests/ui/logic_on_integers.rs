use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn logic_on_integers(n: Scalar<i32>) {
    if n > 3 && n {
        let _ = n;
    }
}

fn main() {}
