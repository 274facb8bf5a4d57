//! The tutorial shows this crate: every block of code in it stands in the crate's files, word for word.

const TUTORIAL: &str = include_str!("../../../docs/authoring.md");

const FILES: [(&str, &str); 6] = [
    ("src/main.rs", include_str!("../src/main.rs")),
    ("src/page_max.rs", include_str!("../src/page_max.rs")),
    ("src/reference.rs", include_str!("../src/reference.rs")),
    ("src/cases.rs", include_str!("../src/cases.rs")),
    ("src/bench.rs", include_str!("../src/bench.rs")),
    ("tests/mistakes.rs", include_str!("mistakes.rs")),
];

#[test]
fn every_block_of_the_tutorial_is_part_of_the_example() {
    let mut blocks = 0;
    for (at, fenced) in TUTORIAL.split("\n```").enumerate().filter(|(at, _)| at % 2 == 1) {
        let (language, code) = fenced.split_once('\n').expect("a fence ends its line");
        assert!(["rust", "toml", "cuda"].contains(&language), "block {at} is `{language}`");
        if language == "toml" {
            continue;
        }
        let found = FILES.iter().any(|(_, text)| text.contains(code.trim_end()));
        assert!(found, "this block of docs/authoring.md is not in the example:\n{code}");
        blocks += 1;
    }
    assert!(blocks > 10, "the tutorial has {blocks} blocks");
}

/// The crate of the example is a member of Lathe's workspace, whose manifest has what a crate elsewhere needs to copy.
#[test]
fn the_manifest_is_that_of_a_crate_elsewhere() {
    let (_, manifest) = TUTORIAL.split_once("```toml\n").expect("shows a manifest");
    let (manifest, _) = manifest.split_once("```").expect("the block ends");
    let (dependencies, profile) = manifest.split_once("[profile.release]").expect("shows the profile");
    assert_eq!(dependencies.trim(), "[dependencies]\nlathe = { path = \"../lathe\" }");
    assert!(include_str!("../Cargo.toml").contains("[dependencies]\nlathe.workspace = true\n"));
    let of_lathe = include_str!("../../../Cargo.toml");
    assert!(of_lathe.contains(&format!("[profile.release]{}", profile.trim_end())), "{profile}");
    assert!(include_str!("../../../Cargo.toml").contains("name = \"lathe\""));
}
