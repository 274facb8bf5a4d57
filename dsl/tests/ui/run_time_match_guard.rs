use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 4)]
fn run_time_match_guard(n: Scalar<i32>, #[comptime] stages: usize) {
    match stages {
        2 if n > 0 => {}
        _ => {}
    }
}

fn main() {}
