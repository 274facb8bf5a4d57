use lathe_graph::build::Recording;

fn main() {
    let recording = Recording::new();
    let _ = recording.plan(&Default::default());
}
