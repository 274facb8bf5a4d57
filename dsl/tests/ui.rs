//! Mistakes that authors of kernels make, and what the compiler tells them. `TRYBUILD=overwrite` renews the messages.

use std::fs;
use std::path::PathBuf;

#[test]
fn mistakes() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}

/// What the attributes expand to, and must not show in a message.
const INTERNAL: [&str; 11] = [
    "__scope_of",
    "__value",
    "__kind",
    "__place",
    "__branch",
    "NoValue",
    "Probe",
    "Ends<",
    "Declared",
    "ValueId",
    "Handle",
];

#[test]
fn messages_name_nothing_internal_and_point_into_the_kernel() {
    let messages: Vec<PathBuf> = fs::read_dir("tests/ui")
        .expect("the cases are there")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "stderr"))
        .collect();
    assert!(messages.len() >= 50, "{} cases", messages.len());
    for path in messages {
        let text = fs::read_to_string(&path).expect("readable");
        for name in INTERNAL {
            assert!(!text.contains(name), "{} names `{name}`:\n{text}", path.display());
        }
        let at = format!("--> tests/ui/{}.rs:", path.file_stem().expect("named").to_string_lossy());
        let errors = text.split("\nerror").count();
        assert!(text.matches(&at).count() >= errors, "an error of {} has no place:\n{text}", path.display());
        let lines: Vec<&str> = text.lines().collect();
        let blames_the_attribute =
            lines.windows(2).any(|pair| pair[0].contains("| #[kernel") && pair[1].trim_start().starts_with("| ^"));
        assert!(!blames_the_attribute, "{} points at the attribute:\n{text}", path.display());
    }
}
