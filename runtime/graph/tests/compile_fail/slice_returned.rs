use lathe_graph::build::{Bytes, Recording};

fn main() {
    Recording::new().capture("step", "main", |g| {
        let _escaped = g.transients([("q", 512), ("w", 64)], |_, [q, _]| q.bytes(0..64));
    });
}
