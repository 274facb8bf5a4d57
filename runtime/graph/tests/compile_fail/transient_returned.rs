use lathe_graph::build::Recording;

fn main() {
    Recording::new().capture("step", "main", |g| {
        let _escaped = g.transient("q", 512, |_, q| q);
    });
}
