use lathe_graph::build::{Recording, Work};

fn main() {
    Recording::new().capture("step", "main", |g| {
        let mut kept = None;
        g.transient("q", 512, |_, q| kept = Some(q));
        g.launch(g.main(), Work::kernel("late").reads(&kept.unwrap()));
    });
}
