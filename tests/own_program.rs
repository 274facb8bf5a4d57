//! A crate with kernels of its own gets the whole program from `lathe::cli::main`. This test is such a program: run
//! without arguments it tests, run with arguments it is what is tested.

use std::process::{Command, ExitCode, Output};

use lathe::contract::{Arg, Buffer, Case, POISON, ScalarValue, Scale, Segment, Verdict};
use lathe::dtype::Dtype;
use lathe::entry::{Entry, Variant};
use lathe::ir::Kernel;
use lathe::prelude::*;
use lathe::trace::TraceErrors;

const LEN: i32 = 64;

/// Reverses a row of 64 elements by way of shared memory.
#[kernel(warps = 2)]
fn reverse(#[read] input: Slice<f32>, #[write_all] output: Slice<f32>) {
    let tile = shared::<f32>([1, LEN]);
    let i = thread::id();
    pdl::wait();
    tile.at(0, i).store(input.at(i).load());
    cta::sync();
    output.at(i).store(tile.at(0, LEN - 1 - i).load());
}

/// The same without the barrier.
#[kernel(warps = 2)]
fn racy(#[read] input: Slice<f32>, #[write_all] output: Slice<f32>) {
    let tile = shared::<f32>([1, LEN]);
    let i = thread::id();
    pdl::wait();
    tile.at(0, i).store(input.at(i).load());
    output.at(i).store(tile.at(0, LEN - 1 - i).load());
}
const RACY_STORE: u32 = line!() - 3;

/// The same, reading one element too early.
#[kernel(warps = 2)]
fn off_by_one(#[read] input: Slice<f32>, #[write_all] output: Slice<f32>) {
    let tile = shared::<f32>([1, LEN]);
    let i = thread::id();
    pdl::wait();
    tile.at(0, i).store(input.at(i).load());
    cta::sync();
    if i > 0 {
        output.at(i).store(tile.at(0, LEN - i).load());
    }
}

/// Arguments in the wrong order: the case gives a scalar where a pointer is declared.
#[kernel(warps = 2)]
fn misfit(#[write_all] output: Slice<f32>, value: Scalar<f32>, count: Scalar<i32>) {
    if thread::id() < count {
        output.at(thread::id()).store(value);
    }
}

fn case() -> Case {
    let input: Vec<f32> = (0..LEN).map(|i| i as f32).collect();
    let bytes = |values: Vec<f32>| values.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
    let expected = bytes(input.iter().rev().copied().collect());
    let output = Segment { offset: 0, bytes: vec![POISON; expected.len()], defined: false };
    let pointer = |buffer| Arg::Pointer { buffer, offset: 0, strides: Vec::new() };
    Case {
        name: "64 elements".into(),
        grid: [1, 1, 1],
        buffers: vec![
            Buffer::from_bytes("input", Dtype::F32, bytes(input)),
            Buffer {
                name: "output".into(),
                dtype: Dtype::F32,
                len: expected.len() as u64,
                segments: vec![output],
                racy: 0..0,
            },
        ],
        args: vec![pointer(0), pointer(1)],
        verify: Box::new(move |buffers| {
            let right = buffers[1].segments[0].bytes == expected;
            Verdict {
                failures: if right { vec![] } else { vec!["`output` is not `input` reversed".into()] },
                ..Verdict::default()
            }
        }),
    }
}

fn misfit_case() -> Case {
    Case { args: vec![Arg::Scalar(ScalarValue::I32(1)); 3], ..case() }
}

fn entries() -> [Entry; 4] {
    fn only(kernel: Result<Kernel, TraceErrors>, case: fn() -> Case) -> Vec<Variant> {
        vec![Variant { label: String::new(), kernel, cases: Box::new(move |_: Scale| vec![case()]) }]
    }
    let entry = |name, variants| Entry {
        name,
        about: "64 elements, reversed",
        file: file!(),
        source: include_str!("own_program.rs"),
        equivalents: &[],
        variants,
        benchmark: None,
    };
    [
        entry("reverse", |_| only(reverse(), case)),
        entry("racy", |_| only(racy(), case)),
        entry("off_by_one", |_| only(off_by_one(), case)),
        entry("misfit", |_| only(misfit(), misfit_case)),
    ]
}

fn main() -> ExitCode {
    // Test runners may pass arguments of their own to a test; a command of the program is none of theirs.
    if std::env::args().nth(1).is_some_and(|arg| ["check", "emit", "list"].contains(&arg.as_str())) {
        return lathe::cli::main(&entries());
    }
    let tests: [(&str, fn()); 8] = [
        ("a right kernel passes, with its figures", a_right_kernel_passes),
        ("a race is shown with both accesses and the barrier", a_race_is_shown),
        ("a wrong result fails", a_wrong_result_fails),
        ("a case that does not fit is refused by argument", a_misfit_is_refused),
        ("the page about faults shows what is said", the_page_shows_what_is_said),
        ("accesses are counted by line", accesses_are_counted_by_line),
        ("json says the same as the table", json_says_the_same),
        ("the listing names the kernels of this program", the_listing_names_them),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    ExitCode::SUCCESS
}

fn program(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn a_right_kernel_passes() {
    let (status, out, err) = program(&["check", "--kernel", "reverse"]);
    assert_eq!(status, Some(0), "{out}{err}");
    for target in ["sm_90a", "sm_120a", "sm_120f"] {
        let row = out.lines().find(|line| line.contains(target)).unwrap_or_else(|| panic!("{out}"));
        for expected in ["reverse", "256 B", "1/1", "ok"] {
            assert!(row.contains(expected), "{row}");
        }
    }
    assert!(out.contains("passed: 3 of 3 cases, 3 of 3 rows"), "{out}");
}

fn a_race_is_shown() {
    let (status, out, err) = program(&["check", "--kernel", "racy"]);
    assert_eq!(status, Some(1), "{out}{err}");
    let message = err.split("error[shared_race]").nth(1).unwrap_or_else(|| panic!("{err}"));
    for expected in [
        "shared-memory race on `tile`",
        &format!("tests/own_program.rs:{}", RACY_STORE),
        "written here by warp",
        "read here by warp",
        "put a `cta::sync()` between the two",
        "for sm_90a, sm_120a, sm_120f",
    ] {
        assert!(message.contains(expected), "no {expected:?} in:\n{err}");
    }
    assert_eq!(err.matches("error[shared_race]").count(), 1, "one cause, one message:\n{err}");
}

fn a_wrong_result_fails() {
    let (status, out, err) = program(&["check", "--kernel", "off_by_one", "--target", "sm_120a"]);
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(err.contains("`off_by_one` fails case `64 elements`, for sm_120a"), "{err}");
    assert!(err.contains("`output` is not `input` reversed"), "{err}");
    assert!(out.contains("FAILED: 0 of 1 cases"), "{out}");
}

/// Every line of the page's messages is one that the program prints, but for numbers.
fn the_page_shows_what_is_said() {
    let plain = |line: &str| line.chars().filter(|c| !c.is_ascii_digit()).collect::<String>().trim().to_owned();
    let said: Vec<String> = ["racy", "off_by_one"]
        .iter()
        .flat_map(|kernel| {
            let (_, _, err) = program(&["check", "--kernel", kernel, "--target", "sm_120a"]);
            err.lines().map(plain).collect::<Vec<_>>()
        })
        .collect();
    let page = include_str!("../docs/find-a-fault.md");
    let blocks = page.split("```text\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let lines: Vec<String> = blocks.flat_map(str::lines).map(plain).collect();
    assert!(lines.len() > 8);
    for line in lines {
        assert!(
            said.iter().any(|said| said.contains(&line)),
            "the program does not say `{line}`, but\n{}",
            said.join("\n")
        );
    }
}

fn accesses_are_counted_by_line() {
    let (status, out, err) = program(&["check", "--kernel", "reverse", "--target", "sm_120a", "--stats"]);
    assert_eq!(status, Some(0), "{out}{err}");
    let row = |opcode: &str| {
        let line = out.lines().find(|line| line.trim_start().starts_with(opcode)).unwrap_or_else(|| panic!("{out}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    // Two warps of 32 lanes of 4 bytes: a pass through the banks, or four sectors, each.
    let (load, store) = (row("ld.global.f32"), row("st.shared.f32"));
    assert!(load[0].starts_with("tests/own_program.rs:"), "{load:?}");
    assert_eq!(load[1..], ["2", "256", "8", "0"], "{out}");
    assert_eq!(store[1..], ["2", "256", "2", "0"], "{out}");
    let (_, out, _) = program(&["check", "--kernel", "reverse", "--target", "sm_120a", "--stats", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let traffic = json["kernels"][0]["traffic"].as_array().unwrap();
    assert!(traffic.iter().any(|access| access["opcode"] == "st.shared.f32" && access["wavefronts"] == 2), "{out}");
}

fn a_misfit_is_refused() {
    let (status, _, err) = program(&["check", "--kernel", "misfit", "--target", "sm_120a"]);
    assert_eq!(status, Some(1), "{err}");
    assert!(err.contains("argument `output` is a pointer to f32, and the launch gives a scalar of i32"), "{err}");
}

fn json_says_the_same() {
    let (status, out, _) = program(&["check", "--json", "--target", "sm_120a"]);
    assert_eq!(status, Some(1));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = json["kernels"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let is_right = row["kernel"] == "reverse";
        assert_eq!(row["target"], "sm_120a");
        assert_eq!(row["backend"], "emulator");
        assert!(row["regs"].as_u64().unwrap() > 0, "{row}");
        assert_eq!(row["spill_bytes"], 0);
        assert_eq!(row["cases"], 1);
        assert_eq!(row["passed"], u64::from(is_right), "{row}");
        assert!(row["worst_row_diff"].is_number(), "{row}");
        let has_findings = row["kernel"] == "racy" || row["kernel"] == "off_by_one";
        assert_eq!(!row["findings"].as_array().unwrap().is_empty(), has_findings, "{row}");
    }
    // Beside the race: what a warp reads too early, nobody has written yet.
    let race = rows[1]["findings"].as_array().unwrap().iter().find(|f| f["kind"] == "shared_race").unwrap();
    assert!(race["access"]["rust"].as_str().unwrap().starts_with("tests/own_program.rs:"), "{race}");
    assert!(race["other"]["rust"].as_str().unwrap().starts_with("tests/own_program.rs:"), "{race}");
}

fn the_listing_names_them() {
    let (status, out, _) = program(&["list"]);
    assert_eq!(status, Some(0));
    assert_eq!(out.lines().filter(|line| line.contains("64 elements, reversed")).count(), 4, "{out}");
    let (_, source, _) = program(&["emit", "reverse", "--view", "rust"]);
    assert!(source.starts_with("/// Reverses a row") && source.trim_end().ends_with('}'), "{source}");
}
