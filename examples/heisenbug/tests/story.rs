//! What the example tells is what was seen: the whole study on the emulator, with the real kernels.

use std::sync::OnceLock;

use heisenbug::backend::{Backend, Emulator};
use heisenbug::programs::Programs;
use heisenbug::seen::Study;
use heisenbug::story;
use heisenbug::study::{Options, StudyError, run};
use lathe::target::Target;

fn backend() -> Emulator {
    Emulator { target: Target::Sm120a }
}

fn study() -> &'static Study {
    static STUDY: OnceLock<Study> = OnceLock::new();
    STUDY.get_or_init(|| {
        let programs = Programs::compile(backend().target()).unwrap();
        run(&backend(), &programs, Options::default(), &mut |_| {}).unwrap()
    })
}

#[test]
fn only_captured_batched_bf16_steps_are_ever_wrong() {
    for row in &study().table {
        let guilty = row.keys == "bf16" && row.batch > 1;
        assert_eq!(row.eager.wrong, 0, "{row:?}");
        assert_eq!(row.captured.wrong > 0, guilty, "{row:?}");
        assert!(row.captured.wrong < row.captured.replays, "some orders are right: {row:?}");
        assert_eq!(row.findings > 0, guilty, "the checker says the same: {row:?}");
        // Sizes alone decide who the neighbour is.
        let lies_on_q = row.residual_lies_on.contains(&"q".to_owned());
        assert_eq!(lies_on_q, guilty, "{row:?}");
    }
    let seen: Vec<_> = study().table.iter().map(|row| (row.keys, row.batch)).collect();
    assert_eq!(seen, [("bf16", 1), ("bf16", 2), ("bf16", 4), ("fp8", 1), ("fp8", 2), ("fp8", 4)]);
}

#[test]
fn a_clone_moves_the_neighbour_and_hides_the_fault() {
    let cloning = &study().cloning;
    assert_eq!((cloning.captured.wrong, cloning.findings), (0, 0));
    assert_eq!(cloning.residual_lies_on, ["clone of x"]);
    assert!(cloning.moved.iter().any(|(name, ..)| name == "residual"));
}

#[test]
fn the_canary_and_the_diff_see_the_same_replays_fail() {
    let observed = &study().observed;
    let guilty = &study().table[1];
    assert_eq!((guilty.keys, guilty.batch), ("bf16", 2));
    assert_eq!(observed.moved, 0);
    assert_eq!(observed.captured, guilty.captured, "the very same orders corrupt");
    assert_eq!((observed.intrusions, observed.unequal_inputs), (0, 0), "no store strays, no input differs");
    let changed: Vec<_> = observed.changed.iter().map(|c| (c.buffer.as_str(), &c.requests[..])).collect();
    assert_eq!(changed, [("attended", &[0, 1][..]), ("index keys", &[0, 1][..])]);
}

#[test]
fn the_two_by_two_and_the_forced_pair_name_an_alias() {
    let cells = &study().cells;
    assert_eq!(cells.cause, "tensors share bytes across streams without order");
    assert!(cells.concurrent_planned.wrong > 0);
    for cell in [cells.concurrent_disjoint, cells.serialised_planned, cells.serialised_disjoint] {
        assert_eq!(cell.wrong, 0);
    }
    assert_eq!(cells.forced, (Some(true), Some(false)));
}

#[test]
fn the_checker_had_refused_it_with_a_witness_and_fixes() {
    let refusal = &study().refusal;
    assert!(refusal.witness_corrupts, "the witness is an order in which the real kernels go wrong");
    for finding in &refusal.report.findings {
        assert_eq!(finding.code.to_string(), "E2");
        let kinds: Vec<_> = finding.fixes.iter().map(|fix| fix.kind).collect();
        assert_eq!(kinds, ["event", "own_bytes", "longer_life"]);
        let file = |party: &lathe::graph::finding::PartyView| party.node.as_ref().unwrap().location.to_string();
        assert!(finding.parties.iter().all(|party| file(party).contains("layer.rs:")), "{finding:?}");
    }
}

#[test]
fn every_repair_holds_but_the_shared_persistent_workspace() {
    let study = study();
    assert_eq!(study.repairs.len(), 6);
    for repair in &study.repairs {
        assert_eq!((repair.findings, repair.captured.wrong), (0, 0), "{repair:?}");
    }
    assert_eq!(study.persistent.findings, 1);
    assert!(study.persistent.captured.wrong > 0);
    assert!(study.persistent_message.contains("`workspace`"), "{}", study.persistent_message);
}

#[test]
fn the_story_the_json_and_the_picture_show_what_was_seen() {
    let study = study();
    let told = story::tell(study);
    for part in
        ["1. Who is hit", "error[E2]", "tensors share bytes across streams without order", "Persistent is no order"]
    {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
    let json = serde_json::to_value(study).unwrap();
    assert_eq!(json["table"][1]["captured"]["wrong"], study.table[1].captured.wrong);
    assert_eq!(json["cells"]["forced"], serde_json::json!([true, false]));
    for name in ["residual", "keep residual", "alternate"] {
        assert!(study.picture.contains(name), "{name}");
    }
}

/// `UPDATE_EXPECT=1` writes the page and its picture anew.
#[test]
fn the_page_shows_this_run() {
    let page = include_str!("../../../docs/heisenbug.md");
    let (before, rest) = page.split_once("```text\n").expect("the page shows a run");
    let (_, after) = rest.split_once("```\n").expect("the run ends");
    let told = anstream::adapter::strip_str(&story::tell(study())).to_string();
    let lines: Vec<&str> = told.lines().map(str::trim_end).collect();
    let now = format!("{before}```text\n{}\n```\n{after}", lines.join("\n"));
    expect_test::expect_file!["../../../docs/heisenbug.md"].assert_eq(&now);
    expect_test::expect_file!["../../../docs/heisenbug.svg"].assert_eq(&study().picture);
}

#[test]
fn nothing_to_run_is_refused() {
    let programs = Programs::compile(backend().target()).unwrap();
    let refused = run(&backend(), &programs, Options { orders: 0, seed: 0 }, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, StudyError::NoOrders), "{refused}");
}
