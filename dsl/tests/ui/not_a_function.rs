use lathe_dsl::kernel;

#[kernel(warps = 4)]
struct Logits;

fn main() {}
