//! `lathe run` on a kernel as serving engines write theirs: tensor maps, an mbarrier ring, warp roles, named barriers.

use std::fs;
use std::path::Path;
use std::process::Command;

use lathe::contract::Verdict;
use lathe::gpu_test::tensor_maps::{double_pages, double_pages_case, outside_kernel};
use lathe::runtime::backend::{Backend, EmulatorBackend, Schedule};
use lathe::runtime::nvrtc::Compiler;
use lathe::runtime::program::Program;
use lathe::runtime::toolchain::Toolchain;
use lathe::target::Target;
use lathe_emulator::{CpAsync, Options};
use tempfile::TempDir;

const PTX: &str = include_str!("../runtime/emulator/tests/fixtures/paged_logits.ptx");

/// Bytes of a page: 64 keys, their scales, and another layer's.
const RECORD: usize = 8448 + 1024;

const LAUNCH: &str = r#"grid = [2, 2]
block = 256
dynamic_shared = 34104
args = [
  { tensor = "queries", box = [64, 128], swizzle = 128 },
  { tensor = "pages", dims = [6, 64, 128], strides = [9472, 128], box = [1, 64, 128], swizzle = 128 },
  "pages", { i64 = 9472 },
  "weights", "lens", "table", { i64 = 3 }, "logits", { i64 = 192 },
]

[buffers.queries]                # 2 rows of 64 heads
dtype = "e4m3"
shape = [128, 128]
fill = { constant = 1 }
access = "read"

[buffers.pages]
dtype = "u8"
shape = [6, 9472]
fill = { file = "pages.bin" }
access = "read"

[buffers.weights]
dtype = "f32"
shape = [2, 64]
fill = { constant = 0.5 }
access = "read"

[buffers.lens]
dtype = "i32"
shape = [2]
fill = { values = [70, 192] }
access = "read"

[buffers.table]
dtype = "i32"
shape = [2, 3]
fill = { values = [4, 2, 2147483647, 1, 5, 3] }
access = "read"

[buffers.logits]
dtype = "f32"
shape = [2, 192]
access = "write_part"
"#;

/// Key `slot` of page `page` is all `2^(page + slot % 4 - 4)`, its scale `slot + 1`.
fn pages() -> Vec<u8> {
    let mut pages = vec![0x7f; 6 * RECORD];
    for (page, bytes) in pages.chunks_exact_mut(RECORD).enumerate() {
        for slot in 0..64 {
            let exponent = (7 + page + slot % 4 - 4) as u8;
            bytes[slot * 128..][..128].fill(exponent << 3);
            bytes[8192 + slot * 4..][..4].copy_from_slice(&(slot as f32 + 1.0).to_le_bytes());
        }
    }
    pages
}

fn expected(row: usize, position: usize) -> f32 {
    let page = [[4, 2, 0], [1, 5, 3]][row][position / 64];
    let slot = position % 64;
    (slot as f32 + 1.0) * 64.0 * 0.5 * 128.0 * f32::powi(2.0, page + slot as i32 % 4 - 4)
}

fn folder(ptx: &str, launch: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("k.ptx"), ptx).unwrap();
    fs::write(folder.path().join("launch.toml"), launch).unwrap();
    fs::write(folder.path().join("pages.bin"), pages()).unwrap();
    folder
}

/// Exit status, and what was said.
fn run(folder: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lathe"));
    let output = command.current_dir(folder).args(["run", "k.ptx"]).args(args).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.code(), text)
}

#[test]
fn it_runs_silent_and_right() {
    let folder = folder(PTX, LAUNCH);
    let (status, text) = run(folder.path(), &["--args", "launch.toml", "--seeds", "2", "--out", "."]);
    assert_eq!(status, Some(0), "{text}");
    let bytes = fs::read(folder.path().join("logits.npy")).unwrap();
    let floats: Vec<f32> =
        bytes[bytes.len() - 4 * 384..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    for (row, len) in [(0, 70), (1, 192)] {
        for position in 0..len {
            assert_eq!(floats[row * 192 + position], expected(row, position), "[{row}][{position}]");
        }
    }
}

#[test]
fn a_removed_wait_and_a_wrong_byte_count_are_faults() {
    // The last wait before the keys are read, and the second count of bytes: keys without their scales.
    let (before, after) = PTX.split_at(PTX.rfind("mbarrier.try_wait").unwrap());
    let waitless = format!("{before}setp.ge.s32 p, 1, 0{}", &after[after.find(';').unwrap()..]);
    let (status, text) = run(folder(&waitless, LAUNCH).path(), &["--args", "launch.toml"]);
    assert!(status == Some(1) && text.contains("error[copy_in_flight]"), "{text}");

    let (at, _) = PTX.match_indices("mbarrier.arrive.expect_tx").nth(1).unwrap();
    let line = &PTX[at..at + PTX[at..].find(';').unwrap()];
    let short = PTX.replacen(line, &format!("{}, 8192", line.rsplit_once(", ").unwrap().0), 1);
    let (status, text) = run(folder(&short, LAUNCH).path(), &["--args", "launch.toml"]);
    assert!(status == Some(1) && text.contains("error[barrier_misuse]") && text.contains("256 bytes"), "{text}");
}

#[test]
fn maps_that_the_driver_would_refuse_are_refused_at_their_place() {
    let refused = |from: &str, to: &str, message: &str| {
        let (status, text) = run(folder(PTX, &LAUNCH.replacen(from, to, 1)).path(), &["--args", "launch.toml"]);
        assert!(status == Some(2) && text.contains(message) && text.contains("launch.toml:"), "{text}");
    };
    refused("box = [64, 128], swizzle = 128", "box = [64, 128], swizzle = 100", "`swizzle` of a tensor map is 100");
    refused("box = [64, 128], swizzle = 128", "swizzle = 128", "lacks `box`");
    refused("box = [64, 128], swizzle = 128", "box = [64, 128], swizzle = 64", "up to 64 with this swizzle");
    refused("strides = [9472, 128]", "strides = [9473, 128]", "`strides` is 9473, and multiples of 16 bytes");
    refused("tensor = \"pages\"", "tensor = \"page\"", "there is no buffer `page`");
    refused("{ tensor = \"queries\", box = [64, 128], swizzle = 128 }", "\"queries\"", "is `128 bytes`");
}

#[test]
fn the_launch_file_to_begin_with_has_a_place_for_each_map() {
    let (status, text) = run(folder(PTX, LAUNCH).path(), &[]);
    assert_eq!(status, Some(0), "{text}");
    assert_eq!(text.matches("box = [64, 64], swizzle = 128").count(), 2, "{text}");
}

/// What `lathe gpu-test` runs on a GPU, and compares with this.
#[test]
fn what_a_gpu_is_compared_with_is_silent_and_right() {
    let toolchain = Toolchain::new(false, |_| {});
    let compiler = Compiler::load(&toolchain).expect("NVRTC is here or can be installed");
    for target in [Target::Sm90a, Target::Sm120a] {
        let (prepared, _) = outside_kernel(&compiler, target).unwrap_or_else(|error| panic!("{error}"));
        let runs = [CpAsync::Eager, CpAsync::Late].map(|cp_async| {
            let outcome = prepared.run(&Options { cp_async, ..Options::default() }).unwrap();
            assert_eq!(outcome.report.findings, []);
            outcome.buffers
        });
        assert_eq!(runs[0], runs[1]);
        assert_eq!(runs[0][0].defined.as_ref().unwrap().iter().filter(|defined| **defined).count(), 429);

        let program = Program::compile(&compiler, &double_pages().unwrap(), target).unwrap();
        let (backend, case) = (EmulatorBackend::default(), double_pages_case());
        let run = backend.load(&program).unwrap().run(&case, Schedule::default()).unwrap();
        assert!(run.findings.is_empty());
        assert_eq!((case.verify)(&run.buffers), Verdict::default());
    }
}
