use lathe::prelude::*;
use lathe_dsl::device;

#[device(warps = 4)]
fn device_argument(x: Scalar<i32>) -> Mask {
    x < 3
}

fn main() {}
