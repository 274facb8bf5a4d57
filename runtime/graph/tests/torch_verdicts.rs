//! Seven graphs that PyTorch captured on an H200, and what must be said about each.

use std::collections::BTreeSet;
use std::path::Path;

use lathe_graph::torch::{Certainty, Dump, Imported, Rules, check};

/// The pairs of nodes, by label, that are found unordered, with the code.
fn verdict(name: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch_graphs").join(format!("{name}.json"));
    let checked = check(Imported::of(Dump::load(&path).unwrap(), &Rules::builtin())).unwrap();
    let label = |node: lathe_graph::model::NodeId| checked.imported.nodes[node.index()].label.as_str();
    let mut pairs = BTreeSet::new();
    for finding in &checked.findings {
        assert_eq!(finding.certainty, Certainty::Ruled, "{name}: a kernel takes part, and no rule is certain");
        let pair = finding.pair().unwrap_or_else(|| panic!("{name}: {}", finding.message));
        for (a, b) in std::iter::once(pair).chain(finding.also.iter().copied()) {
            pairs.insert(format!("{} {}/{}", finding.code, label(a), label(b)));
        }
    }
    pairs
}

#[test]
fn the_wrong_captures_have_exactly_their_races() {
    assert_eq!(verdict("s1"), BTreeSet::from(["E2 1/2".into()]));
    assert_eq!(verdict("s3"), BTreeSet::from(["E1 1/2".into()]));
    assert_eq!(verdict("layer"), BTreeSet::from(["E2 8/16".into(), "E2 10/17".into()]));
}

#[test]
fn the_right_twins_are_silent() {
    for name in ["s1_join", "s1_record_stream", "s3_edge", "layer_join"] {
        assert_eq!(verdict(name), BTreeSet::new(), "{name}");
    }
}
