//! Dumps as a user's process may write them: whole, odd and broken.

use std::path::Path;

use lathe_graph::finding::Code;
use lathe_graph::torch::{Certainty, Checked, Dump, Imported, Rules, check};
use serde_json::{Value, json};

/// One graph of kernels that take plain 8-byte pointers: `(kernel, pointers)`.
fn graph(kernels: &[(&str, &[u64])], edges: &[[usize; 2]]) -> Value {
    let nodes: Vec<Value> = kernels
        .iter()
        .map(|(name, pointers)| {
            let param = |(index, value): (usize, &u64)| json!({"offset": 8 * index, "size": 8, "hex": hex(*value)});
            json!({"type": "kernel", "kernel": name, "params": pointers.iter().enumerate().map(param).collect::<Vec<_>>()})
        })
        .collect();
    json!({"name": "g", "allocations": [], "nodes": nodes, "edges": edges})
}

fn hex(value: u64) -> String {
    value.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tensor(name: &str, ptr: u64, bytes: u64) -> Value {
    json!({"name": name, "ptr": format!("{ptr:#x}"), "bytes": bytes, "role": "persistent"})
}

fn file(graphs: &[Value]) -> Value {
    json!({"format": "lathe-torch-dump", "version": 1, "graphs": graphs})
}

fn load(value: &Value) -> Result<Dump, String> {
    Dump::parse(&value.to_string(), Path::new("step.json")).map_err(|error| error.to_string())
}

fn checked(value: &Value) -> Checked {
    check(Imported::of(load(value).unwrap(), &Rules::builtin())).unwrap()
}

/// Two unordered uses of one tensor by kernels that nobody knows.
fn unknown_pair() -> Value {
    let mut value = graph(&[("mystery", &[0x1000]), ("riddle", &[0x1000])], &[]);
    value["tensors"] = json!([tensor("P", 0x1000, 64)]);
    value
}

#[test]
fn broken_files_say_what_is_wrong_and_what_to_do() {
    let whole = file(&[unknown_pair()]).to_string();
    let cut = Dump::parse(&whole[..whole.len() / 2], Path::new("step.json")).unwrap_err().to_string();
    assert!(cut.contains("step.json: truncated") && cut.contains("Dump again"), "{cut}");

    let mut future = file(&[unknown_pair()]);
    future["version"] = json!(7);
    let message = load(&future).unwrap_err();
    assert!(message.contains("version 7 is unknown") && message.contains("versions 0 to 1"), "{message}");

    let other = load(&json!({"format": "chrome-trace", "version": 1})).unwrap_err();
    assert!(other.contains("\"chrome-trace\"") && other.contains("lathe_dump.py"), "{other}");

    let none = load(&file(&[])).unwrap_err();
    assert!(none.contains("nothing was captured"), "{none}");

    let alien = load(&json!({"hello": 1})).unwrap_err();
    assert!(alien.contains("missing field") && alien.contains("docs/torch-dump-format.md"), "{alien}");
}

#[test]
fn contradictions_name_the_node_and_the_field() {
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut value = unknown_pair();
        change(&mut value);
        load(&file(&[value])).unwrap_err()
    };
    let edge = wrong(&|graph| graph["edges"] = json!([[0, 9]]));
    assert!(edge.contains("graph `g`: edge 0 -> 9 names a node outside 0..2"), "{edge}");
    let address = wrong(&|graph| graph["tensors"][0]["ptr"] = json!("zebra"));
    assert!(address.contains("`tensors.ptr` is \"zebra\""), "{address}");
    let digits = wrong(&|graph| graph["nodes"][1]["params"][0]["hex"] = json!("123"));
    assert!(digits.contains("node 1: `params` is not an even run"), "{digits}");
    let missing = wrong(&|graph| graph["nodes"][0] = json!({"type": "kernel"}));
    assert!(missing.contains("node 0 is a kernel: it needs `function`"), "{missing}");
    let window = wrong(&|graph| graph["nodes"][0]["events"] = json!([5, 2]));
    assert!(window.contains("`events` is [5, 2]"), "{window}");
    let huge = wrong(&|graph| graph["tensors"][0]["bytes"] = json!(u64::MAX));
    assert!(huge.contains("past the end of the address space"), "{huge}");
    let action =
        wrong(&|graph| graph["allocations"] = json!([{"action": "steal", "addr": "0x10", "bytes": 1, "stream": 0}]));
    assert!(action.contains("\"steal\" is unknown"), "{action}");
}

#[test]
fn an_edge_cycle_and_an_empty_graph_are_refused_by_the_model() {
    let cyclic = graph(&[("a", &[]), ("b", &[])], &[[0, 1], [1, 0]]);
    assert!(check(Imported::of(load(&file(&[cyclic])).unwrap(), &Rules::builtin())).is_err());
    assert!(check(Imported::of(load(&file(&[graph(&[], &[])])).unwrap(), &Rules::builtin())).is_err());
}

#[test]
fn what_is_not_known_is_assumed_and_said_so() {
    let checked = checked(&file(&[unknown_pair()]));
    let [finding] = &checked.findings[..] else { panic!("{}", checked.text(false)) };
    assert_eq!((finding.code, finding.certainty), (Code::E1, Certainty::Assumed));
    let settle = finding.settle.as_ref().unwrap();
    assert!(settle.contains("node 0 (mystery)") && settle.contains("lathe_dump.writes(graph)"), "{settle}");
    assert_eq!(checked.imported.coverage.assumed, 2);
    assert!(checked.text(false).contains("assumed read and written: mystery (1)"));
}

#[test]
fn a_users_rule_settles_it() {
    let own = tempfile::NamedTempFile::new().unwrap();
    let rule =
        |name: &str, kernel: &str| format!("[[rule]]\nname = \"{name}\"\nkernel = '{kernel}'\norder = [\"read...\"]\n");
    std::fs::write(own.path(), rule("both only look", "^(mystery|riddle)$") + &rule("nobody", "^nothing$")).unwrap();
    let rules = Rules::with_file(own.path()).unwrap();
    let checked = check(Imported::of(load(&file(&[unknown_pair()])).unwrap(), &rules)).unwrap();
    assert!(checked.findings.is_empty(), "{}", checked.text(false));
    assert_eq!(rules.unused().collect::<Vec<_>>(), ["nobody"], "a rule that matches nothing is reported");
}

#[test]
fn wrong_rules_are_explained() {
    let error = |text: &str| Rules::parse(text, Path::new("own.toml")).unwrap_err().to_string();
    let head = "[[rule]]\nname = \"r\"\n";
    assert!(error("[[rule]]\nkernel = 'x'").contains("missing field `name`"));
    assert!(
        error(&format!("{head}kernel = '('\norder = [\"read\"]"))
            .contains("rule \"r\": `kernel` is not a regular expression")
    );
    assert!(error(&format!("{head}kernel = 'x'")).contains("exactly one of `at`, `param` and `order`"));
    assert!(
        error(&format!("{head}kernel = 'x'\norder = [\"reads\"]")).contains("role \"reads\" is unknown; read, write")
    );
    assert!(error(&format!("{head}kernel = 'x'\nat = {{ \"3\" = \"read\" }}")).contains("not a multiple of 8"));
    assert!(error(&format!("{head}kernel = 'x'\norder = []")).contains("empty"));
}

#[test]
fn the_gpu_makes_assumed_writes_certain() {
    let mut value = unknown_pair();
    value["observed"] = json!([{"node": 0, "addr": "0x1000", "bytes": 64}, {"node": 1, "addr": "0x1000", "bytes": 64}]);
    let checked = checked(&file(&[value]));
    assert_eq!(checked.findings[0].certainty, Certainty::Certain);
    assert_eq!(checked.findings[0].settle, None);
}

#[test]
fn two_copies_that_meet_are_certain() {
    let copy = |src: &str, dst: &str| json!({"type": "memcpy", "src": src, "dst": dst, "bytes": 64});
    let value = json!({"name": "g", "allocations": [], "edges": [], "nodes": [copy("0x1000", "0x2000"), copy("0x3000", "0x1000")]});
    let checked = checked(&file(&[value]));
    let [finding] = &checked.findings[..] else { panic!("{}", checked.text(false)) };
    assert_eq!((finding.code, finding.certainty), (Code::E1, Certainty::Certain));
}

#[test]
fn pointers_outside_everything_are_counted_not_guessed() {
    let lost = graph(&[("mystery", &[0xdead_0000]), ("riddle", &[0xdead_0000])], &[]);
    let checked = checked(&file(&[lost]));
    assert!(checked.findings.is_empty());
    assert_eq!((checked.imported.coverage.matched, checked.imported.coverage.without_pointers), (0, 2));
}

#[test]
fn a_graph_without_history_says_what_cannot_be_told() {
    let mut value = unknown_pair();
    value.as_object_mut().unwrap().remove("allocations");
    let text = checked(&file(&[value])).text(false);
    assert!(text.contains("g: no allocation history, so tensors that share a block cannot be told apart"), "{text}");
}

#[test]
fn a_second_capture_tells_numbers_from_pointers() {
    let capture = |base: u64, number: u64| {
        let mut value = graph(&[("mystery", &[base, number])], &[]);
        value["allocations"] = json!([{"action": "alloc", "addr": format!("{base:#x}"), "bytes": 4096, "stream": 0}]);
        value
    };
    // The second word lies in the first capture's block and stays the same when the block moves.
    let mut value = capture(0x10000, 0x10008);
    value["twin"] = capture(0x50000, 0x10008);
    let coverage = checked(&file(&[value])).imported.coverage;
    assert_eq!((coverage.refuted, coverage.matched), (1, 1));
}

#[test]
fn child_graphs_are_expanded_between_their_neighbours() {
    let kernel = |pointer: u64| graph(&[("mystery", &[pointer])], &[])["nodes"][0].clone();
    let child = json!({"type": "graph", "graph": {"nodes": [kernel(0x1000), kernel(0x1000)], "edges": [[0, 1]]}});
    let value = |edges: Value| {
        let nodes = [kernel(0x1000), child.clone(), kernel(0x1000)];
        json!({"name": "g", "allocations": [], "nodes": nodes, "edges": edges, "tensors": [tensor("P", 0x1000, 64)]})
    };
    let ordered = checked(&file(&[value(json!([[0, 1], [1, 2]]))]));
    assert!(ordered.findings.is_empty(), "{}", ordered.text(false));
    let labels: Vec<&str> = ordered.imported.nodes.iter().map(|node| node.label.as_str()).collect();
    assert_eq!(labels, ["0", "1/0", "1/1", "2"]);
    assert!(!checked(&file(&[value(json!([[0, 1]]))])).findings.is_empty());
}

#[test]
fn memory_nodes_bound_the_life_of_their_bytes() {
    let kernel = graph(&[("mystery", &[0x1000])], &[])["nodes"][0].clone();
    let nodes =
        json!([{"type": "mem_alloc", "dst": "0x1000", "bytes": 64}, kernel, {"type": "mem_free", "dst": "0x1000"}]);
    let value = |edges: Value| json!({"name": "g", "allocations": [], "nodes": nodes, "edges": edges});
    assert!(checked(&file(&[value(json!([[0, 1], [1, 2]]))])).findings.is_empty());
    assert!(!checked(&file(&[value(json!([[0, 1], [0, 2]]))])).findings.is_empty(), "freed while in use");
}

#[test]
fn nodes_that_cannot_be_read_are_named() {
    let nodes = json!([{"type": "conditional"}, {"type": "host"}, {"type": "empty"}]);
    let checked = checked(&file(&[json!({"name": "g", "nodes": nodes, "edges": []})]));
    assert_eq!(checked.imported.coverage.unreadable, ["0 conditional", "1 host"]);
    assert!(checked.text(false).contains("not seen: what node 0 conditional does"));
}

#[test]
fn a_pointer_to_const_is_read() {
    // void looks(float const*), void changes(float*)
    let mut value = graph(&[("_Z5looksPKf", &[0x1000]), ("_Z5looksPKf", &[0x1000])], &[]);
    value["tensors"] = json!([tensor("P", 0x1000, 64)]);
    assert!(checked(&file(&[value.clone()])).findings.is_empty());
    value["nodes"][1]["kernel"] = json!("_Z7changesPf");
    assert_eq!(checked(&file(&[value])).findings.len(), 1);
}

#[test]
fn pictures_and_json_carry_the_finding() {
    let checked = checked(&file(&[unknown_pair()]));
    let picture = checked.picture(&checked.findings[0]);
    assert!(picture.starts_with("<svg") && picture.contains("0 mystery") && picture.contains("64 bytes in question"));
    let view = serde_json::to_value(checked.view()).unwrap();
    assert_eq!(view["findings"][0]["code"], "E1");
    assert_eq!(view["findings"][0]["sides"][0]["tensor"], "P");
    assert_eq!(view["coverage"]["nodes"], 2);
}
