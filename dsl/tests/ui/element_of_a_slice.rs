use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn element_of_a_slice(#[read] src: Slice<f64>, #[write_part] out: Rows<usize>) {
    let _ = (src, out);
}

fn main() {}
