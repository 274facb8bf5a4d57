//! Runs the tests of the Python tools in `tools`: standard library only, no GPU.

use std::path::Path;
use std::process::Command;

#[test]
fn the_python_tools_pass_their_own_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = Command::new("python3").args(["-m", "unittest", "discover", "tools/tests"]).current_dir(root).output();
    let output = python.expect("python3 is needed to test the programs in tools: install Python 3.10 or newer");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
