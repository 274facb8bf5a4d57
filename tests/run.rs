//! `lathe run` as a user meets it: PTX from anywhere, launched as a TOML file says, checked, with results in files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// y[i] = a * x[i], a thread an element; with the source lines that nvcc would name.
const SCALE: &str = r#".version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    .loc 1 3 5
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.f32 %f1, [a];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd2, %rd3;
    .loc 1 4 12
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f1, %f2;
    add.s64 %rd5, %rd1, %rd3;
    .loc 1 4 5
    st.global.f32 [%rd5], %f3;
DONE:
    ret;
}
.file 1 "scale.cu"
"#;

const LAUNCH: &str = r#"grid = 2
block = 64
args = ["y", "x", { f32 = 0.5 }, { i32 = 100 }]

[buffers.x]
dtype = "f32"
shape = [4, 25]
fill = "iota"
access = "read"

[buffers.y]
dtype = "f32"
shape = [4, 25]
access = "write_all"
"#;

/// A folder with a kernel, its source and its launch file.
struct Folder(TempDir);

impl Folder {
    fn new(ptx: impl AsRef<[u8]>, launch: impl AsRef<[u8]>) -> Self {
        let folder = Folder(tempfile::tempdir().unwrap());
        folder.write("k.ptx", ptx);
        folder.write("launch.toml", launch);
        folder
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs `k.ptx` as `launch.toml` says.
    fn run(&self, more: &[&str]) -> Ran {
        let mut args = vec!["k.ptx", "--args", "launch.toml"];
        args.extend(more);
        run(self.0.path(), &args)
    }
}

struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
}

fn run(folder: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lathe"));
    let Output { status, stdout, stderr } = command.current_dir(folder).arg("run").args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: status.code(), out: text(stdout), err: text(stderr) }
}

/// The message that a run with this PTX and launch file is refused with.
#[track_caller]
fn refused(ptx: impl AsRef<[u8]>, launch: impl AsRef<[u8]>, more: &[&str]) -> String {
    let ran = Folder::new(ptx, launch).run(more);
    assert_eq!(ran.status, Some(2), "{}{}", ran.out, ran.err);
    assert!(ran.out.is_empty() && !ran.err.contains("panicked"), "{}{}", ran.out, ran.err);
    ran.err
}

#[track_caller]
fn says(text: &str, expected: &[&str]) {
    for expected in expected {
        assert!(text.contains(expected), "`{expected}` is not in\n{text}");
    }
}

/// Elements of a `.npy` file of f32, and its header.
fn floats(path: &Path) -> (String, Vec<f32>) {
    let bytes = fs::read(path).unwrap();
    let data = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = String::from_utf8(bytes[10..data].to_vec()).unwrap();
    (header, bytes[data..].as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

#[test]
fn results_go_to_npy_files() {
    let folder = Folder::new(SCALE, LAUNCH);
    let ran = folder.run(&["--out", "results"]);
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    says(&ran.out, &["silent: `scale` (sm_90)", "y f32[4, 25]", "results/y.npy"]);
    let (header, y) = floats(&folder.path("results/y.npy"));
    says(&header, &["'<f4'", "(4, 25)"]);
    assert_eq!(y, (0..100).map(|i| i as f32 * 0.5).collect::<Vec<f32>>());
    assert!(!folder.path("results/x.npy").exists(), "only what the kernel writes is saved");
}

#[test]
fn results_of_one_run_are_arguments_of_the_next() {
    let folder = Folder::new(SCALE, LAUNCH);
    assert_eq!(folder.run(&["--out", "."]).status, Some(0));
    folder.write("launch.toml", LAUNCH.replace("\"iota\"", "{ file = \"y.npy\" }"));
    assert_eq!(folder.run(&["--out", "second"]).status, Some(0));
    assert_eq!(floats(&folder.path("second/y.npy")).1[99], 99.0 * 0.25);
    let raw: Vec<u8> = (0..100).flat_map(|i| (i as f32).to_le_bytes()).collect();
    folder.write("x.bin", raw);
    folder.write("launch.toml", LAUNCH.replace("\"iota\"", "{ file = \"x.bin\" }"));
    assert_eq!(folder.run(&["--out", "third"]).status, Some(0));
    assert_eq!(floats(&folder.path("third/y.npy")).1[99], 99.0 * 0.5);
}

#[test]
fn random_fills_repeat_and_keep_to_their_range() {
    let launch = LAUNCH.replace("\"iota\"", "{ uniform = [2, 4], seed = 7 }");
    let results = |launch: &str| {
        let folder = Folder::new(SCALE, launch);
        assert_eq!(folder.run(&["--out", "."]).status, Some(0));
        floats(&folder.path("y.npy")).1
    };
    let first = results(&launch);
    assert!(first.iter().all(|y| (1.0..2.0).contains(y)));
    assert_eq!(first, results(&launch));
    assert_ne!(first, results(&launch.replace("seed = 7", "seed = 8")));
    let normal = results(&LAUNCH.replace("\"iota\"", "{ normal = [10, 1] }"));
    let mean = normal.iter().sum::<f32>() / 100.0;
    assert!((4.5..5.5).contains(&mean), "{mean}");
}

#[test]
fn a_buffer_smaller_than_the_kernel_touches_is_a_finding_at_both_lines() {
    let folder = Folder::new(SCALE, LAUNCH.replacen("[4, 25]", "[4, 24]", 1));
    folder.write("scale.cu", "__global__ void scale(float *y, const float *x, float a, int n) {\n  int i = id();\n  if (i < n)\n    y[i] = a * x[i];\n}\n");
    let ran = folder.run(&[]);
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    says(
        &ran.err,
        &[
            "error[out_of_bounds]: out of bounds on byte 384 of `x`, which has 384, in `scale`",
            "scale.cu:4:12",
            "y[i] = a * x[i];",
            "k.ptx:24",
            "ld.global.f32 %f2, [%rd4];",
            "read here by warp 1, lane 0 of CTA (1, 0, 0)",
            "met 8 times in all launches",
            "the launch file describes a smaller buffer",
        ],
    );
    says(&ran.out, &["FAULTY: `scale`"]);
}

#[test]
fn without_its_source_a_finding_stands_at_the_line_of_the_ptx() {
    let folder = Folder::new(
        SCALE.replace(".file 1 \"scale.cu\"\n", "").replace(".loc", "// .loc"),
        LAUNCH.replace("i32 = 100", "i32 = 101"),
    );
    let ran = folder.run(&[]);
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    says(&ran.err, &["k.ptx:24", "k.ptx", "st.global.f32 [%rd5], %f3;", "byte 400 of `y`, which has 400,"]);
}

#[test]
fn declared_accesses_and_definedness_are_checked() {
    let ran = Folder::new(SCALE, LAUNCH.replace("\"read\"", "\"write_part\"")).run(&[]);
    assert_eq!(ran.status, Some(1));
    says(&ran.err, &["error[undeclared]", "`x` is declared write_part", "`x`[0, 0]"]);
    let ran = Folder::new(SCALE, LAUNCH.replace("i32 = 100", "i32 = 90")).run(&[]);
    says(&ran.err, &["`y` is declared write_all, and byte 360 of its 400 was never written"]);
    let ran = Folder::new(SCALE, LAUNCH.replace("fill = \"iota\"\n", "")).run(&[]);
    says(&ran.err, &["error[undefined]", "stored to the output `y`", "give the buffer a `fill`"]);
}

#[test]
fn one_json_object_holds_everything() {
    let folder = Folder::new(SCALE, LAUNCH.replacen("[4, 25]", "[4, 24]", 1));
    let ran = folder.run(&["--json", "--stats", "--seeds", "2", "--out", "o"]);
    assert_eq!(ran.status, Some(1), "{}{}", ran.out, ran.err);
    let json: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&json["kernel"], &json["target"]), (&"scale".into(), &"sm_90".into()));
    assert_eq!(json["launches"], 4);
    let finding = &json["findings"][0];
    assert_eq!((&finding["kind"], &finding["access"]["ptx_line"]), (&"out_of_bounds".into(), &24.into()));
    assert_eq!(finding["access"]["sources"][0]["line"], 4);
    assert_eq!(finding["element"], "byte 384 of `x`, which has 384,");
    assert_eq!((&json["buffers"][0]["file"], &json["buffers"][0]["changed"]), (&"o/y.npy".into(), &100.into()));
    let load = &json["traffic"][0];
    assert_eq!(
        (&load["opcode"], &load["place"], &load["executions"]),
        (&"ld.global.f32".into(), &"scale.cu:4".into(), &4.into())
    );
}

#[test]
fn stats_name_lines_that_conflict_or_waste() {
    // A stride of 128 bytes: every lane in a bank of its neighbours, and in a sector of its own.
    let strided = SCALE
        .replace("mul.wide.u32 %rd3, %r5, 4;", "mul.wide.u32 %rd3, %r5, 128;")
        .replace("    .reg .pred", "    .shared .align 4 .b8 tile[4096];\n    .reg .pred")
        .replace(
            "    mul.f32",
            "    mov.u32 %r6, tile;\n    mad.lo.s32 %r7, %r4, 128, %r6;\n    st.shared.f32 [%r7], %f2;\n    mul.f32",
        );
    let launch = LAUNCH
        .replace("grid = 2\nblock = 64", "grid = 1\nblock = 32")
        .replace("[4, 25]", "[32, 32]")
        .replace("write_all", "write_part");
    let ran = Folder::new(strided, launch).run(&["--stats"]);
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    let row = |opcode: &str| {
        ran.out
            .lines()
            .find(|line| line.trim_start().starts_with(opcode))
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
    };
    assert_eq!(row("st.shared.f32"), ["st.shared.f32", "scale.cu:4", "1", "128", "32", "31"]);
    assert_eq!(row("ld.global.f32"), ["ld.global.f32", "scale.cu:4", "1", "128", "32", "28"]);
}

#[test]
fn without_a_launch_file_one_to_begin_with_is_printed_and_fits() {
    let folder = Folder::new(SCALE, "");
    let printed = run(folder.0.path(), &["k.ptx"]);
    assert_eq!(printed.status, Some(0));
    says(&printed.out, &["entry = \"scale\"", "grid = [1, 1, 1]", "# .u64 y", "{ f32 = 1.0 }"]);
    folder.write("launch.toml", &printed.out);
    let ran = folder.run(&[]);
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
}

#[test]
fn pointers_into_buffers_structs_and_null_are_passed() {
    // y[i] of a struct { float *y; const float *x; int n; } whose x points into the middle of a buffer.
    let by_struct = SCALE
        .replace(
            ".param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n",
            ".param .align 8 .b8 s[24], .param .u64 unused",
        )
        .replace("[y]", "[s]")
        .replace("[x]", "[s+8]")
        .replace("ld.param.f32 %f1, [a];", "mov.f32 %f1, 0f3F000000;")
        .replace("[n]", "[s+16]");
    let launch = LAUNCH.replace(
        "args = [\"y\", \"x\", { f32 = 0.5 }, { i32 = 100 }]",
        "args = [{ struct = [\"y\", { buffer = \"x\", offset = 200 }, { i32 = 50 }] }, { u64 = 0 }]",
    );
    let folder = Folder::new(by_struct, launch.replace("write_all", "write_part"));
    let ran = folder.run(&["--out", "."]);
    assert_eq!(ran.status, Some(0), "{}{}", ran.out, ran.err);
    let y = floats(&folder.path("y.npy")).1;
    assert_eq!((y[0], y[49]), (25.0, 49.5));
}

#[test]
fn ptx_that_cannot_be_read_is_refused_at_its_line() {
    says(&refused(b".version 8.0\n.target sm_90\n\xff", LAUNCH, &[]), &["not UTF-8", "line 3"]);
    let half = &SCALE[..SCALE.find("mul.f32").unwrap()];
    says(&refused(half, LAUNCH, &[]), &["is the file truncated?", "k.ptx:2"]);
    says(
        &refused(SCALE.replace(".version 8.0", ".version 1.2"), LAUNCH, &[]),
        &[".version 1.2 is not supported; 3.0 to", "k.ptx:1"],
    );
    says(&refused(SCALE.replace("sm_90", "sm_20"), LAUNCH, &[]), &[".target sm_20 is not supported", "k.ptx:2"]);
    says(
        &refused(SCALE.replace("mul.f32", "frob.f32"), LAUNCH, &[]),
        &["no opcode `frob.f32`", "k.ptx:25", "frob.f32 %f3, %f1, %f2;"],
    );
    says(&refused("", LAUNCH, &[]), &["PTX begins with `.version"]);
    says(&refused(".version 8.0\n.target sm_90\n", LAUNCH, &[]), &["no kernel"]);
}

#[test]
fn a_missing_entry_lists_those_there_are() {
    says(&refused(SCALE, LAUNCH, &["--entry", "shrink"]), &["no entry `shrink`; it has `scale`"]);
    says(&refused(SCALE, format!("entry = \"shrink\"\n{LAUNCH}"), &[]), &["no entry `shrink`; it has `scale`"]);
    let two =
        format!("{SCALE}{}", SCALE.split_once(".address_size 64\n").unwrap().1.replace("entry scale", "entry again"));
    says(&refused(&two, LAUNCH, &[]), &["several kernels", "scale, again", "--entry"]);
    assert_eq!(Folder::new(&two, LAUNCH).run(&["--entry", "again"]).status, Some(0));
}

#[test]
fn arguments_that_do_not_fit_are_refused_at_their_place() {
    let change = |from: &str, to: &str| {
        assert!(LAUNCH.contains(from), "{from}");
        refused(SCALE, LAUNCH.replacen(from, to, 1), &[])
    };
    let count = "kernel `scale` takes 4 arguments (.u64 y, .u64 x, .f32 a, .u32 n), and the launch file gives 3";
    says(&change(", { i32 = 100 }", ""), &[count, "launch.toml:3"]);
    says(
        &change("{ f32 = 0.5 }", "{ i32 = 1 }"),
        &[
            "argument 2 (`a`) of kernel `scale` is `.f32`, and the launch file gives i32 1",
            "launch.toml:3",
            "{ i32 = 1 }",
        ],
    );
    says(&change("{ i32 = 100 }", "{ i64 = 100 }"), &["argument 3 (`n`)", "`.u32`", "i64 100"]);
    says(&change("{ i32 = 100 }", "{ f32 = 1 }"), &["argument 3 (`n`)", "`.u32`", "f32 1"]);
    says(&change("{ i32 = 100 }", "\"x\""), &["argument 3 (`n`)", "the address of buffer `x`"]);
    says(
        &change("{ i32 = 100 }", "{ i32 = 3000000000 }"),
        &["`3000000000` does not fit a scalar: i32 holds integers from -2147483648"],
    );
    says(&change("\"y\", ", "\"z\", "), &["there is no buffer `z`; there are `x`, `y`", "launch.toml:3"]);
    says(
        &change("\"y\", ", "{ buffer = \"y\", offset = 400 }, "),
        &["argument 0 (`y`) starts 400 bytes into buffer `y`, which has 400"],
    );
    says(
        &change("{ f32 = 0.5 }", "{ float = 0.5 }"),
        &["unknown key `float` in an argument; it takes `buffer`, `struct`", "`f32`"],
    );
}

#[test]
fn launch_files_that_say_too_little_or_nonsense_are_refused_at_their_place() {
    let change = |from: &str, to: &str| {
        assert!(LAUNCH.contains(from), "{from}");
        refused(SCALE, LAUNCH.replacen(from, to, 1), &[])
    };
    says(&change("grid = 2", "grid = = 2"), &["not TOML", "launch.toml:1"]);
    says(&change("grid = 2\n", ""), &["the launch file lacks `grid`"]);
    says(&change("block = 64\n", ""), &["the launch file lacks `block`"]);
    says(
        &change("grid = 2", "grid = [1, 2, 3, 4]"),
        &["`grid` is an array of 4; accepted: a number, or an array of one to three", "launch.toml:1"],
    );
    says(&change("grid = 2", "grid = -2"), &["`grid` is -2; accepted: a whole number from 0 to 4294967295"]);
    says(&change("grid = 2", "gird = 2"), &["unknown key `gird` in the launch file; it takes `entry`, `grid`"]);
    says(
        &change("dtype = \"f32\"", "dtype = \"float\""),
        &["`dtype` of buffer `x` is \"float\"; accepted: one of `bool`", "launch.toml:6"],
    );
    says(&change("dtype = \"f32\"\n", ""), &["buffer `x` lacks `dtype`"]);
    says(&change("shape = [4, 25]\n", ""), &["buffer `x` lacks `shape`"]);
    says(&change("[4, 25]", "[4, 0]"), &["buffer `x`: its shape [4, 0] has no elements"]);
    says(
        &change("[4, 25]", "[4000000, 4000000]"),
        &["take 64000000000000 bytes by `x`; a launch file may ask for 1073741824"],
    );
    says(&change("\"iota\"", "\"ones\""), &["`fill` of buffer `x` is \"ones\"; accepted: \"undefined\", \"zeros\""]);
    says(&change("\"iota\"", "{ values = [1, 2] }"), &["2 values are given for 100 elements"]);
    says(&change("\"iota\"", "{ uniform = [2, 1] }"), &["accepted: [least, most] with least <= most"]);
    says(&change("\"iota\"", "{ file = \"none.npy\" }"), &["none.npy` cannot be read", "No such file"]);
    says(&change("\"iota\"", "{ file = \"/dev/zero\" }"), &["/dev/zero` is not a file"]);
    says(&change("\"iota\"", "{ file = \"launch.toml\" }"), &["bytes of elements; [4, 25] of f32 takes 400"]);
    says(&change("\"read\"", "\"reads\""), &["accepted: one of `read`, `write_all`"]);
    says(&change("access = \"read\"\n", ""), &["buffer `x` declares no access, and another does"]);
    says(
        &change("[buffers.x]", "[buffers.\"../x\"]"),
        &["the name of a buffer is \"../x\"; accepted: letters, digits"],
    );
    says(&refused(SCALE, b"grid = 2 # \xff", &[]), &["not UTF-8"]);
}

#[test]
fn launches_past_the_limits_are_refused() {
    let change = |from: &str, to: &str| refused(SCALE, LAUNCH.replacen(from, to, 1), &[]);
    says(&change("grid = 2", "grid = [1, 70000]"), &["grid.y is 70000; 1 to 65535 are accepted", "k.ptx"]);
    says(&change("grid = 2", "grid = 0"), &["grid.x is 0"]);
    says(&change("block = 64", "block = [64, 32]"), &["a block of 2048 threads; 1024 are the limit"]);
    says(&change("block = 64", "block = 64\ndynamic_shared = 300000"), &["300000 bytes of shared memory"]);
}

#[test]
fn an_endless_loop_ends_at_the_step_limit_and_names_its_line() {
    let endless = SCALE.replace("DONE:\n", "DONE:\nAGAIN:\n    bra AGAIN;\n");
    let text = refused(endless, LAUNCH, &["--step-limit", "10000"]);
    says(
        &text,
        &[
            "10000 instructions without reaching the end",
            "an endless loop?",
            "k.ptx:31",
            "bra AGAIN;",
            "still running here",
        ],
    );
}

#[test]
fn files_that_are_not_there_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let ran = run(folder.path(), &["none.ptx"]);
    assert_eq!(ran.status, Some(2));
    says(&ran.err, &["`none.ptx` cannot be read", "No such file"]);
}

#[test]
fn help_teaches_the_launch_file_by_example() {
    let folder = tempfile::tempdir().unwrap();
    let help = run(folder.path(), &["--help"]).out;
    says(&help, &["Usage: lathe run", "[buffers.x]", "{ normal = [0, 1], seed = 7 }", "Examples:", "Exit status"]);
}

#[test]
fn damaged_npy_files_are_refused() {
    let folder = Folder::new(SCALE, LAUNCH.replace("\"iota\"", "{ file = \"x.npy\" }"));
    let good = Folder::new(SCALE, LAUNCH);
    assert_eq!(good.run(&["--out", "."]).status, Some(0));
    let file = fs::read(good.path("y.npy")).unwrap();
    let text = |bytes: &[u8]| {
        folder.write("x.npy", bytes);
        let ran = folder.run(&[]);
        assert_eq!(ran.status, Some(2), "{}{}", ran.out, ran.err);
        ran.err
    };
    says(&text(&file[..40]), &["x.npy`: the file ends inside its header"]);
    says(&text(&file[..file.len() - 4]), &["has 396 bytes of elements"]);
    let replace = |from: &[u8], to: &[u8]| {
        let at = file.windows(from.len()).position(|window| window == from).unwrap();
        [&file[..at], to, &file[at + from.len()..]].concat()
    };
    says(&text(&replace(b"<f4", b"<i4")), &["holds `<i4`, and f32 stands in files as `<f4`"]);
    says(&text(&replace(b"(4, 25)", b"(5, 20)")), &["has shape [5, 20], and the launch file says [4, 25]"]);
}

/// `tools/sanitizer.py` runs these on a GPU, beside NVIDIA's tool.
#[test]
fn the_faults_planted_for_compute_sanitizer_are_found_at_their_lines() {
    for (fault, kind, line) in [
        ("past_the_end", "out_of_bounds", "y[i] = x[i] + x[i + 1];"),
        ("missing_barrier", "shared_race", "tile[threadIdx.x] = x[threadIdx.x];"),
        ("unwritten_input", "undefined", "y[i] = x[i] + bias[i];"),
        ("divergent_barrier", "divergent_collective", "asm volatile(\"bar.sync 0;\" ::: \"memory\");"),
        ("missing_wait", "copy_in_flight", "y[threadIdx.x] = tile[threadIdx.x];"),
        ("unordered_ctas", "global_race", "if (threadIdx.x == 0) *count += 1;"),
    ] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/faults");
        let ran = run(&folder, &[&format!("{fault}.ptx"), "--args", &format!("{fault}.toml"), "--json"]);
        assert_eq!(ran.status, Some(1), "{fault}: {}", ran.err);
        let source = fs::read_to_string(folder.join(format!("{fault}.cu"))).unwrap();
        let json: Value = serde_json::from_str(&ran.out).unwrap();
        let found = json["findings"].as_array().unwrap().iter().any(|finding| {
            let at = finding["access"]["sources"][0]["line"].as_u64().unwrap() as usize;
            finding["kind"] == kind && source.lines().nth(at - 1).unwrap().trim() == line
        });
        assert!(found, "{fault}: {}", ran.out);
    }
}

#[test]
fn what_is_about_a_gpu_is_refused_on_the_emulator() {
    let folder = Folder::new(SCALE, LAUNCH);
    for argument in ["--compare", "--bare"] {
        let ran = folder.run(&[argument]);
        assert_eq!(ran.status, Some(2));
        says(&ran.err, &[&format!("`{argument}` is about a GPU: give it with `--backend cuda`")]);
    }
    says(&folder.run(&["--backend", "cuda", "--stats"]).err, &["`--stats` counts on the emulator"]);
}
