use lathe::prelude::*;
use lathe_dsl::Traced;

#[derive(Clone, Copy, Traced)]
struct Running {
    largest: Scalar<f32>,
    stages: usize,
}

fn main() {}
