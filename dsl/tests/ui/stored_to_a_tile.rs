use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn stored_to_a_tile(n: Scalar<i32>) {
    let tile = shared::<f32>([1, 32]);
    tile.at(0, 0).store(n);
}

fn main() {}
