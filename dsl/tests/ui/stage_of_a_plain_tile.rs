use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn stage_of_a_plain_tile() {
    let tile = shared::<bf16>([16, 128]);
    let _ = tile.stage(0).load_a();
}

fn main() {}
