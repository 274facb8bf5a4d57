use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn rows_stored_to_bf16(#[write_part] out: Slice<bf16>) {
    let a = shared::<bf16>([16, 128]);
    let dots = mma_abt(a.load_a(), a.load_b());
    out.start().store_rows(dots.sum_cols(), below(16));
}

fn main() {}
