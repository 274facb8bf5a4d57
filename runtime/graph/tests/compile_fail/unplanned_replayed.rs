use lathe_graph::build::{Checked, Planned, Recording};

fn replay(_: &Planned) {}

fn main() {
    let checked: Checked = Recording::new().check().unwrap();
    replay(&checked);
}
