//! Mistakes that authors of kernels make, and what the compiler tells them. `TRYBUILD=overwrite` renews the messages.

#[test]
fn mistakes() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
