use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn tile_size_in_usize(#[comptime] heads: usize) {
    let tile = shared::<bf16>([heads, 128]);
    let _ = tile;
}

fn main() {}
