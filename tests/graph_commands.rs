//! `lathe graph plan`, `draw` and `explore` as a user meets them: right files, wrong files, tables and JSON.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const RACE: &str = "runtime/graph/corpus/s01-dropped-before-the-join.json";
const RIGHT: &str = "runtime/graph/corpus/s01-twin-dropped-after-the-join.json";

fn lathe(args: &[&str]) -> Output {
    let root = env!("CARGO_MANIFEST_DIR");
    Command::new(env!("CARGO_BIN_EXE_lathe")).arg("graph").args(args).current_dir(root).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

fn written(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Two intervals that overlap and one after both: 7 + 5 at once, 6 fits where one of them was.
const INTERVALS: &str = "id,lower,upper,size\na,0,4,7\nb,2,6,5\nc,6,9,6\n";

#[test]
fn a_plan_says_what_it_takes_and_what_no_plan_can_do_without() {
    let output = lathe(&["plan", "--layout", "--ignore-addresses", RIGHT]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in ["planned ", "bound ", "no reuse ", "caching allocator", "safe here", "plan "] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }
    assert!(shown.lines().any(|line| line.ends_with("  A")), "the layout names every buffer:\n{shown}");

    let output = lathe(&["plan", "--json", "--ignore-addresses", RIGHT]);
    let plan = json(&output);
    assert!(plan["bytes"].as_u64() >= plan["bound"].as_u64());
    assert_eq!(plan["buffers"].as_array().unwrap().len(), 3);
    assert_eq!(
        json(&lathe(&["plan", "--json", "--ignore-addresses", RIGHT])),
        plan,
        "the plan is a function of the file"
    );
}

#[test]
fn a_plan_mends_what_an_allocator_broke() {
    // Only addresses are wrong in this graph: planned anew it is right, and the allocator's own would be wrong again.
    let plan = json(&lathe(&["plan", "--json", "--ignore-addresses", RACE]));
    assert_eq!(plan["framework_findings"], 1);
    let explored = lathe(&["explore", "--json", "--placed-by", "lathe", RACE]);
    assert_eq!(explored.status.code(), Some(0));
}

#[test]
fn a_graph_with_findings_is_not_planned_unless_asked() {
    let race = "runtime/graph/corpus/s03-persistent-without-an-edge-back.json";
    let refused = lathe(&["plan", race]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("a plan cannot make up for what is wrong"), "{}", text(&refused.stderr));
    assert_eq!(lathe(&["plan", "--unchecked", race]).status.code(), Some(0));
}

#[test]
fn intervals_are_planned_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(folder.path(), "problem.csv", INTERVALS);
    let plan = json(&lathe(&["plan", "--json", &path]));
    assert_eq!((&plan["bytes"], &plan["bound"]), (&Value::from(12), &Value::from(12)));
    let shown = text(&lathe(&["plan", "--layout", &path]).stdout);
    assert!(shown.contains("1.0000 of the bound") && shown.lines().any(|line| line.ends_with("  c")), "{shown}");

    let path = written(folder.path(), "wrong.csv", "id,lower,upper,size\na,4,2,7\n");
    let refused = lathe(&["plan", &path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("wrong.csv: "), "{}", text(&refused.stderr));
}

#[test]
fn a_drawing_shows_names_findings_and_its_own_legend() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("map.svg");
    let output = lathe(&["draw", RACE, "-o", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let picture = std::fs::read_to_string(&path).unwrap();
    assert!(picture.trim_start().starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    for part in ["K2", "K3", "E2", "How to read this", "happens-before levels"] {
        assert!(picture.contains(part), "{part:?} is missing");
    }
    // A right placement of the same graph has nothing red to tell.
    lathe(&["draw", "--placed-by", "lathe", RACE, "-o", path.to_str().unwrap()]);
    assert!(!std::fs::read_to_string(&path).unwrap().contains("E2:"));

    let nowhere = lathe(&["draw", RACE, "-o", "/no/such/folder/map.svg"]);
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(text(&nowhere.stderr).contains("/no/such/folder/map.svg"), "{}", text(&nowhere.stderr));
}

#[test]
fn exploring_shows_an_order_that_changes_a_result() {
    let output = lathe(&["explore", "--orders", "50", RACE]);
    assert_eq!(output.status.code(), Some(1));
    let shown = text(&output.stdout);
    for part in ["the order of K2 and K3 matters", "with another result", "changes O: ", "results change"] {
        assert!(shown.contains(part), "{part:?} is missing in\n{shown}");
    }

    let seen = json(&lathe(&["explore", "--json", "--orders", "50", RACE]));
    assert_eq!(seen[0]["pairs_that_matter"], serde_json::json!([["K2", "K3"]]));
    assert!(seen[0]["orders_with_another_result"].as_u64().unwrap() > 0);
    assert_eq!(seen[0]["first_such_order"]["changes"], serde_json::json!(["O"]));
    assert_eq!(seen[0]["every_order"]["results_that_change"], 1);

    let right = lathe(&["explore", "--json", RIGHT]);
    assert_eq!(right.status.code(), Some(0));
    assert_eq!(json(&right)[0]["orders_with_another_result"], 0);
}

#[test]
fn a_limit_too_small_is_said() {
    let shown = text(&lathe(&["explore", "--limit", "1", RACE]).stdout);
    assert!(shown.contains("too large to run every order: more than 1 situations"), "{shown}");
    assert_eq!(json(&lathe(&["explore", "--json", "--limit", "1", RACE]))[0]["every_order"], Value::Null);
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let broken = written(folder.path(), "g.json", "{\"lathe_graph\": 1,\n \"stream\": []}");
    let cut = written(folder.path(), "cut.json", "{\"lathe_graph\": 1, \"streams\": [");
    for command in ["plan", "draw", "explore"] {
        let output_file = folder.path().join("out.svg").to_str().unwrap().to_owned();
        let run = |file: &str| match command {
            "draw" => lathe(&[command, file, "-o", &output_file]),
            _ => lathe(&[command, file]),
        };
        for (file, part) in
            [(broken.as_str(), "g.json:2:2: "), (cut.as_str(), "cut.json:1:"), ("no/such.json", "no/such.json: ")]
        {
            let output = run(file);
            assert_eq!(output.status.code(), Some(2), "{command} {file}");
            assert!(text(&output.stderr).contains(part), "{command}: {}", text(&output.stderr));
            assert!(!text(&output.stderr).contains("panicked"));
        }
    }
}
