use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn syntax_error_in_a_body(#[read] src: Slice<f32>, #[write_all] out: Slice<f32>, n: Scalar<i32>) {
    out.at(n).store(src.at(n).load() +);
}

fn main() {
    syntax_error_in_a_body().unwrap();
}
