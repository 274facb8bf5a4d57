//! Fresh captures from an H200 (`tools/validate_torch.py`), each with what its replays showed: the checker must agree with the hardware.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lathe_graph::finding::Code;
use lathe_graph::model::NodeId;
use lathe_graph::torch::{Certainty, Checked, Dump, Imported, Rules, check};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch_graphs")
}

/// What the hardware showed, by program.
fn results() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(folder().join("h200_results.json")).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(all["programs"].take()).unwrap()
}

fn checked(program: &str) -> Option<Checked> {
    let path = folder().join("h200").join(format!("{program}.json"));
    path.exists().then(|| check(Imported::of(Dump::load(&path).unwrap(), &Rules::builtin())).unwrap())
}

#[test]
fn verdicts_equal_what_a_thousand_replays_show() {
    let mut seen = 0;
    for (program, result) in results() {
        let Some(checked) = checked(&program) else { continue };
        let changed = result["pairs_that_change_an_output"].as_array().map_or(0, Vec::len) > 0;
        let times = |field: &str| result[field].as_u64().unwrap_or(0);
        let corrupted = times("corrupted_outside_the_graph") + times("wrong_as_captured") > 0;
        // Forcing an order adds full edges, so no replay can show what a missing programmatic wait allows.
        let wrong = changed || corrupted || program == "triton_pdl";
        assert_eq!(!checked.findings.is_empty(), wrong, "{program}: {}", checked.text(false));
        seen += 1;
    }
    assert!(seen >= 60, "{seen} programs");
}

/// What is called certain rests on the driver's word or on bytes seen to change, and the hardware shows it.
#[test]
fn nothing_is_certain_that_no_replay_shows() {
    let mut certain = Vec::new();
    for (program, result) in results() {
        let Some(checked) = checked(&program) else { continue };
        if checked.surest() != Some(Certainty::Certain) {
            continue;
        }
        for finding in checked.findings.iter().filter(|finding| finding.certainty == Certainty::Certain) {
            let (first, second) = finding.pair().unwrap();
            let pairs = result["pairs_that_change_an_output"].as_array();
            let changes = pairs.is_some_and(|pairs| {
                let is_it = |pair: &Value| {
                    (pair[0].as_u64(), pair[1].as_u64()) == (Some(first.0.into()), Some(second.0.into()))
                };
                pairs.iter().any(is_it)
            });
            assert!(changes || result["wrong_as_captured"] == result["replays"], "{program}: {first:?} {second:?}");
        }
        certain.push(program);
    }
    // Copies and memory nodes alone, or kernels watched by `lathe_dump.writes`.
    assert_eq!(
        certain,
        ["compiled.observed", "memory", "nccl.observed", "s1.observed", "s1_slow.observed", "s3.observed"]
    );
}

/// Graphs that other libraries put together: child graphs and memory nodes are looked into, a conditional body is named.
#[test]
fn every_kind_of_node_is_checked_or_named() {
    let child = checked("child").unwrap();
    assert!(child.text(false).contains("1/0 "), "a node of the child graph is a party: {}", child.text(false));
    let memory = checked("memory").unwrap().text(false);
    assert!(memory.contains("memory free") && memory.contains("certain"), "{memory}");
    let conditional = checked("conditional").unwrap().text(false);
    assert!(conditional.contains("not seen: what node 1 conditional does"), "{conditional}");
}

#[test]
fn a_picture_tells_the_whole_message() {
    for program in ["child", "s1", "layer", "triton_pdl"] {
        let checked = checked(program).unwrap();
        let finding = &checked.findings[0];
        let picture = checked.picture(finding);
        let lines = picture.split("bold").skip(1);
        let heading: Vec<&str> = lines
            .filter_map(|rest| rest.split_once('>')?.1.split_once("</text>"))
            .map(|(line, _)| line.trim())
            .collect();
        let told = heading.join(" ").replace("&lt;", "<").replace("&gt;", ">");
        assert_eq!(told, format!("{} {}", finding.code, finding.message), "{program}");
    }
}

/// torch.compile keeps no PTX in the process; the dump has it from Triton's cache.
#[test]
fn compiled_regions_are_settled_by_their_ptx() {
    let checked = checked("compiled").unwrap();
    assert_eq!(checked.surest(), Some(Certainty::Ruled));
    assert!(checked.text(false).contains("triton_per_fused_mean_relu_sub_0 writes part of `a` (by its PTX)"));
    assert!(checked.text(false).contains("2 certain, 2 by rule, 0 assumed"));
}

/// A kernel behind a CUkernel handle, its pointers 4,000 bytes into its only parameter: settled by PTX, assumed without.
#[test]
fn pointers_deep_in_a_large_struct_are_found() {
    for (program, sure) in [("library", Certainty::Ruled), ("library_unknown", Certainty::Assumed)] {
        let checked = checked(program).unwrap();
        assert_eq!(checked.surest(), Some(sure), "{program}");
        assert!(checked.text(false).contains("parameter 0 + 400"), "{}", checked.text(false));
    }
}

#[test]
fn every_pair_found_is_among_those_that_change_an_output() {
    let results = results();
    for program in ["s1", "s2", "s3", "triton", "layer_bf16", "library", "library_unknown", "compiled", "nccl"] {
        let checked = checked(program).unwrap();
        let changes = |first: NodeId, second: NodeId| {
            let pairs = results[program]["pairs_that_change_an_output"].as_array().unwrap();
            pairs.iter().any(|pair| {
                (pair[0].as_u64(), pair[1].as_u64()) == (Some(u64::from(first.0)), Some(u64::from(second.0)))
            })
        };
        let shown = checked
            .findings
            .iter()
            .filter_map(|finding| finding.pair())
            .filter(|&(first, second)| changes(first, second))
            .count();
        // In the layer, `q` and what overwrites it hold the same product of the same inputs: that order changes no bit.
        let hidden = usize::from(program == "layer_bf16");
        assert_eq!(shown, checked.findings.len() - hidden, "{program}: {}", checked.text(false));
    }
}

#[test]
fn each_kind_of_fault_has_its_code() {
    let expected = [
        ("s1", Code::E2),
        ("s2", Code::E2),
        ("s3", Code::E1),
        ("s4", Code::E12),
        ("s5", Code::E5),
        ("s6", Code::E6),
        ("s7", Code::E12),
        ("triton", Code::E2),
        ("triton_pdl", Code::E8),
    ];
    for (program, code) in expected {
        let codes: Vec<Code> = checked(program).unwrap().findings.iter().map(|finding| finding.code).collect();
        assert_eq!(codes, [code], "{program}");
    }
}

#[test]
fn rules_claim_every_write_that_the_gpu_showed() {
    let mut compared = 0;
    for (program, result) in results() {
        let (Some(checked), Some(writes)) = (checked(&program), result["observed_writes"].as_array()) else { continue };
        let imported = &checked.imported;
        let last = imported.dump.graphs.len() - 1;
        for write in writes {
            let addr = u64::from_str_radix(write["addr"].as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
            let node = imported
                .nodes
                .iter()
                .position(|node| node.graph == last && Some(node.index as u64) == write["node"].as_u64())
                .unwrap();
            let claims = imported.pool.nodes()[node].accesses.iter().any(|access| {
                let start = imported.buffers[access.buffer.index()].span.addr;
                access.effect.writes() && (start + access.range.start..start + access.range.end).contains(&addr)
            });
            assert!(
                claims,
                "{program}: node {} ({}) changed {addr:#x}",
                imported.nodes[node].label, imported.nodes[node].name
            );
            compared += 1;
        }
    }
    assert!(compared > 150, "{compared} writes");
}

#[test]
fn lines_names_and_lanes_come_from_the_program() {
    let text = checked("s1").unwrap().text(false);
    for part in [
        "validate_torch.py",
        "`a` is dropped here",
        "`b` is allocated here",
        "on side: node 1 memcpy reads `a`",
        "record_stream",
        "b = torch.full((N,), 7.0",
    ] {
        assert!(text.contains(part), "{part} is missing in\n{text}");
    }
}
