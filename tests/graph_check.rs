//! `lathe graph check` as a user meets it, on the corpus.

use std::process::{Command, Output};

fn check(args: &[&str]) -> Output {
    let root = env!("CARGO_MANIFEST_DIR");
    Command::new(env!("CARGO_BIN_EXE_lathe")).args(["graph", "check"]).args(args).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const RACE: &str = "runtime/graph/corpus/s01-dropped-before-the-join.json";
const RIGHT: &str = "runtime/graph/corpus/s01-twin-dropped-after-the-join.json";

#[test]
fn a_race_is_shown_with_its_witness_and_its_fixes() {
    let output = check(&[RACE]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    for part in [
        "error[E2]: `K3` writes `B` on bytes of `A`, which `K2` may still read",
        "s01-dropped-before-the-join.json:19:",
        "the graph allows this order: K1 [m], K3 [m], K2 [a]",
        "harmful: `O` then ends up with another value",
        "help: record an event on `a` after `K2`",
        "help: give `B` bytes of its own",
        "help: keep `A` alive until `K3` is complete",
        "1 finding, E2 (1 harmful, 0 latent)",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    assert!(!shown.contains('\x1b'), "no colours where there is no terminal");
}

#[test]
fn a_right_graph_is_silent() {
    let output = check(&[RIGHT]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "no findings: 3 nodes in 1 graph, 3 buffers, 3 of them placed\n");
}

#[test]
fn several_files_are_one_line_each() {
    let output = check(&[RIGHT, RACE]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout).lines().count(), 2);
}

#[test]
fn json_holds_everything() {
    let output = check(&["--json", RACE]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(finding["code"], "E2");
    assert_eq!(finding["harm"], serde_json::json!({"kind": "harmful", "changes": "O"}));
    assert_eq!(finding["witness"], serde_json::json!(["K1", "K3", "K2"]));
    assert_eq!(finding["parties"][0]["node"]["name"], "K2");
    assert_eq!(finding["parties"][1]["bytes"], serde_json::json!({"start": 0, "end": 4096}));
    assert_eq!(finding["addresses"], serde_json::json!({"start": 4096, "end": 8192}));
    let kinds: Vec<_> = finding["fixes"].as_array().unwrap().iter().map(|f| f["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["event", "own_bytes", "longer_life"]);
}

#[test]
fn an_instrument_that_moves_a_buffer_is_told() {
    let folder = "runtime/graph/corpus/instruments";
    let compared = |file: &str| {
        let (original, file) = (format!("{folder}/original.json"), format!("{folder}/{file}"));
        check(&["--original", &original, &file])
    };
    let cloning = compared("clone-and-compare.json");
    assert_eq!(cloning.status.code(), Some(1));
    let shown = text(&cloning.stdout);
    assert!(shown.contains("error[E13]: `B` is at 0x2000 without the instrument and at 0x3000 with it"), "{shown}");
    assert!(text(&compared("print-after-each.json").stdout).contains("the instrument orders `K2` before `K3`"));
    assert_eq!(compared("canary.json").status.code(), Some(0));
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_the_place() {
    let output = check(&["no/such.json"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no/such.json: "), "{}", text(&output.stderr));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("g.json");
    std::fs::write(&path, "{\"lathe_graph\": 1,\n \"stream\": []}").unwrap();
    let output = check(&[path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("g.json:2:2: a graph file has no field `stream`"),
        "{}",
        text(&output.stderr)
    );
}
