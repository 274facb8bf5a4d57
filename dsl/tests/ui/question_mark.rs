use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn question_mark(n: Scalar<i32>, #[comptime] stages: Option<i32>) {
    let _ = n + stages?;
}

fn main() {}
