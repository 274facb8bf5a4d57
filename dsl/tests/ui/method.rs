use lathe::prelude::*;
use lathe_dsl::kernel;

struct Schedule;

impl Schedule {
    #[kernel(warps = 4)]
    fn method(&self, n: Scalar<i32>) {
        let _ = n + 1;
    }
}

fn main() {}
