//! The program as a user meets it: what it prints, where, and with which exit status.

use std::process::{Command, Output, Stdio};

fn lathe(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lathe")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn help_teaches_by_example() {
    let output = lathe(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    for expected in ["check", "emit", "doctor", "Examples:", "--offline"] {
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    }
    for command in ["check", "emit", "setup"] {
        let help = stdout(&lathe(&[command, "--help"]));
        assert!(help.contains("Usage: lathe"), "{help}");
    }
}

#[test]
fn doctor_names_every_tool_whether_it_is_here_or_not() {
    let output = lathe(&["doctor"]);
    assert_eq!(output.status.code(), Some(0));
    for expected in ["nvrtc", "nvdisasm", "driver", "gpu", "sm_120a", "home"] {
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    }
}

#[test]
fn what_is_printed_for_people_is_there_for_programs() {
    let json = |args| serde_json::from_str::<serde_json::Value>(&stdout(&lathe(args))).unwrap();
    let doctor = json(&["doctor", "--json"]);
    let parts: Vec<_> = doctor["parts"].as_array().unwrap().iter().map(|part| part["part"].as_str().unwrap()).collect();
    assert!(["nvrtc", "nvdisasm", "driver", "gpu"].iter().all(|part| parts.contains(part)), "{parts:?}");
    let list = json(&["list", "--json"]);
    assert_eq!(list["target"], "sm_120a");
    assert_eq!(list["kernels"][0]["kernel"], "bf16_paged_mqa_logits");
    let variants = ["H=16", "H=32", "H=64", "H=16 balanced", "H=32 balanced", "H=64 balanced"];
    assert_eq!(list["kernels"][0]["variants"], serde_json::json!(variants));
}

#[test]
fn output_that_is_no_terminal_has_no_escape_codes() {
    assert!(!stdout(&lathe(&["doctor"])).contains('\x1b'));
    assert!(stdout(&lathe(&["doctor", "--color", "always"])).contains('\x1b'));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_and_a_reader_that_has_gone_is_not() {
    let list = |out: Stdio| {
        Command::new(env!("CARGO_BIN_EXE_lathe")).arg("list").stdout(out).stderr(Stdio::piped()).output().unwrap()
    };
    let full = list(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(2));
    assert!(stderr(&full).starts_with("error: standard output: No space left on device"), "{}", stderr(&full));

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = list(writer.into());
    assert_eq!((gone.status.code(), stderr(&gone).as_str()), (Some(2), ""));
}

#[test]
fn an_unknown_target_is_refused_with_the_known_ones() {
    let output = lathe(&["check", "--target", "sm_75"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("unknown target `sm_75`: expected one of sm_90a, sm_120a, sm_120f"), "{text}");
}

#[test]
fn an_unknown_kernel_is_refused_with_the_known_ones() {
    for args in [&["emit", "no_such_kernel"][..], &["check", "--kernel", "no_such_kernel"]] {
        let output = lathe(args);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains("no kernel `no_such_kernel` here; there are `bf16_"), "{text}");
    }
}

#[test]
fn a_machine_without_a_gpu_says_so_and_names_what_works() {
    if lathe::runtime::device::list().is_ok_and(|devices| !devices.is_empty()) {
        eprintln!("skipped: there is a GPU here");
        return;
    }
    let output = lathe(&["check", "--backend", "cuda"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("--backend emulator"), "{text}");
}

#[test]
fn the_kernels_that_ship_are_listed_and_every_view_prints() {
    let listed = stdout(&lathe(&["list"]));
    for name in ["bf16_index_k_store", "topk_page_transform"] {
        assert!(listed.contains(name), "{listed}");
    }
    for (view, expected) in [
        ("rust", "pub fn bf16_index_k_store"),
        ("ir", "kernel bf16_index_k_store("),
        ("cuda", "extern \"C\" __global__"),
        ("ptx", ".entry bf16_index_k_store("),
        ("sass", "ACQBULK"),
    ] {
        let output = lathe(&["emit", "bf16_index_k_store", "--view", view]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains(expected), "{view}:\n{}", stdout(&output));
    }
}

#[test]
fn counts_of_accesses_are_the_emulators() {
    let output = lathe(&["check", "--backend", "cuda", "--stats"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("`--stats` counts on the emulator"), "{}", stderr(&output));
}

#[test]
fn the_readme_shows_a_kernel_and_its_cuda_as_they_are() {
    let readme = include_str!("../README.md");
    let shown = |language: &str| {
        let start = readme.find(&format!("```{language}\n")).unwrap() + language.len() + 4;
        &readme[start..start + readme[start..].find("```").unwrap()]
    };
    let view = |view| stdout(&lathe(&["emit", "bf16_index_k_store", "--variant", "slots=i64", "--view", view]));
    assert!(view("rust").contains(shown("rust")), "{}", view("rust"));
    assert!(view("cuda").contains(shown("cuda")), "{}", view("cuda"));
}

#[test]
fn a_filter_that_no_case_matches_is_an_error_not_a_pass() {
    let output = lathe(&["check", "--kernel", "bf16_index_k_store", "--target", "sm_120a", "--filter", "no such case"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no case's name contains `no such case`"), "{}", stderr(&output));
}

#[test]
fn what_is_about_a_gpu_is_refused_on_the_emulator() {
    for (command, argument) in [("check", "--compare"), ("check", "--bare"), ("check", "--small")] {
        let output = lathe(&[command, argument]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(&format!("`{argument}` is about a GPU: give it with `--backend cuda`")));
    }
}

#[test]
fn without_a_gpu_its_commands_say_so_and_exit_with_2() {
    if lathe::runtime::device::list().is_ok_and(|devices| !devices.is_empty()) {
        return;
    }
    let faults = concat!(env!("CARGO_MANIFEST_DIR"), "/tools/faults");
    let [ptx, launch] = ["ptx", "toml"].map(|kind| format!("{faults}/past_the_end.{kind}"));
    for command in [&["gpu-test"][..], &["stress"], &["run", &ptx, "--args", &launch, "--backend", "cuda"]] {
        let output = lathe(command);
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains("no NVIDIA driver") || said.contains("no CUDA device"), "{command:?}: {said}");
    }
}
