//! `lathe bench` and `lathe tune` as a user meets them, without a GPU.

use std::process::{Command, Output};

fn lathe(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lathe")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The message of a command that must end with status 2.
fn refused(args: &[&str]) -> String {
    let output = lathe(args);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {message}");
    message
}

#[test]
fn without_a_gpu_there_are_figures_and_predictions() {
    let sizes = ["--batch", "64", "--keys", "16384"];
    let output = lathe(&[&["bench", "--static", "--kernel", "bf16_paged_mqa_logits"][..], &sizes].concat());
    assert_eq!(output.status.code(), Some(0));
    for expected in ["registers", "CTAs an SM", "RTX PRO 6000", "RTX 5090", "H200", "B=64 keys=16384", "memory"] {
        assert!(stdout(&output).contains(expected), "{expected}: {}", stdout(&output));
    }
    let args = [&["bench", "--static", "--json", "--target", "sm_90a", "--kernel", "fp8_paged_mqa_logits"][..], &sizes];
    let json: serde_json::Value = serde_json::from_str(&stdout(&lathe(&args.concat()))).unwrap();
    assert_eq!(json[0]["target"], "sm_90a");
    assert_eq!(json[0]["spills"], 0);
    assert_eq!(json[0]["predictions"][0]["card"], "H200");
}

#[test]
fn what_no_kernel_computes_is_refused_by_name() {
    let bench = |more: &[&str]| refused(&[&["bench", "--static", "--kernel", "bf16_paged_mqa_logits"], more].concat());
    assert!(bench(&["--heads", "48"]).contains("heads is 48, accepted: 16, 32, 64"));
    assert!(bench(&["--next-n", "9"]).contains("next_n is 9, accepted: 1 to 6"));
    assert!(bench(&["--keys", "0"]).contains("keys is 0"));
    let message = bench(&["--configuration", "pages_per_cta=99"]);
    assert!(
        message.contains("no configuration `pages_per_cta=99` at this size; there are `pages_per_cta="),
        "{message}"
    );
    assert!(bench(&["--svg", "x.svg"]).contains("--svg draws or compares times, and without a GPU there are none"));
    assert!(bench(&["--shard", "9/8"]).contains("`9/8` is no shard, accepted: INDEX/COUNT"));
}

#[test]
fn results_that_are_none_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("text"), "hello\n").unwrap();
    assert!(refused(&["tune", "--show", &path("none")]).contains("none: No such file"));
    assert!(refused(&["tune", "--show", &path("text")]).contains("holds no results of `lathe tune`"));

    let head = |device: &str| {
        format!(
            "{{\"format\":1,\"lathe\":\"0.1.0\",\"device\":\"{device}\",\"target\":\"sm_90a\",\"nvrtc\":[13,0],\
             \"edges\":\"pdl\",\"warm_l2\":false}}\n"
        )
    };
    std::fs::write(path("a"), head("NVIDIA H200")).unwrap();
    std::fs::write(path("b"), head("NVIDIA H100")).unwrap();
    let message = refused(&["tune", "--merge", &path("a"), &path("b"), "--results", &path("all")]);
    assert!(message.contains("holds results of another device: NVIDIA H100, and this is NVIDIA H200"), "{message}");
    let merged = lathe(&["tune", "--merge", &path("a"), "--results", &path("all")]);
    assert!(merged.status.success() && stdout(&merged).contains("NVIDIA H200 (sm_90a), pdl edges"));
}
