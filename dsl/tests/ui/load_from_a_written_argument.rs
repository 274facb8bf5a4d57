use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn load_from_a_written_argument(#[write_all] out: Slice<f32>, n: Scalar<i32>) {
    let _ = out.at(n).load();
}

fn main() {}
