use lathe::prelude::*;
use lathe_dsl::Traced;

#[derive(Clone, Copy, Traced)]
enum Found {
    Nothing,
    At(Scalar<i32>),
}

fn main() {}
