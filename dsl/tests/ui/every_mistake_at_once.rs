use lathe::prelude::*;
use lathe_dsl::kernel;

#[kernel(warps = 40, speed = 9)]
fn every_mistake_at_once(#[read(first)] src: Slice<f32>, mut n: Scalar<i32>) {
    let x;
    loop {
        if n < src.at(n).load() {
            x = n as f32;
        }
    }
}

fn main() {}
