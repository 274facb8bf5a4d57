use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn tile_of_another_type(#[read] weights: Slice<f32>) {
    let tile = shared::<bf16>([16, 128]);
    tile.copy_async(weights.start());
}

fn main() {}
