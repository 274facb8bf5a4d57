use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn product_of_two_types() {
    let a = shared::<bf16>([16, 128]).load_a();
    let b = shared::<e4m3>([16, 128]).load_b();
    let _ = mma_abt(a, b);
}

fn main() {}
