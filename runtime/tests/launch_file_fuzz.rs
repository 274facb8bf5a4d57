//! Launch files, damaged: they are refused at a place in the text, or the kernel runs; nothing panics, hangs or eats memory.
//!
//! A short run by default; `LATHE_FUZZ_SECONDS=300` goes on for five minutes.

use std::path::Path;
use std::time::{Duration, Instant};

use lathe_emulator::{Kernel, Module, Options};
use lathe_runtime::launch_file::{LaunchFile, template};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Inputs of a short run.
const SHORT: u64 = 2_000;
/// Bytes of a launch file's buffers, and CTAs, that are worth a run here: larger launches are legal, and slow.
const MOST_BYTES: u64 = 1 << 20;
const MOST_CTAS: u64 = 64;

const PTX: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 x, .param .f32 a, .param .u32 n, .param .align 8 .b8 s[16])
{
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd5, [s];
    ld.param.f32 %f1, [a];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    fma.rn.f32 %f3, %f1, %f2, %f2;
    add.s64 %rd6, %rd1, %rd3;
    st.global.f32 [%rd6], %f3;
    ret;
}
";

const FILES: [&str; 2] = [
    r#"entry = "k"
grid = [2, 1]
block = [32, 2, 1]
dynamic_shared = 512
args = ["out", { buffer = "x", offset = 16 }, { f32 = -1.5e3 }, { u32 = 0xff }, { struct = ["out", { i32 = -4 }] }]

[buffers.x]
dtype = "f32"
shape = [4, 25]
fill = { uniform = [-1, 1.5], seed = 7 }
access = "read"
before_wait = true

[buffers.out]
dtype = "f32"
shape = [100]
access = "write_part"
"#,
    r#"grid = 1
block = 64
args = ["b", "a", { f32 = inf }, { i32 = 2 }, { struct = [{ u64 = 0 }, { bool = true }] }]
buffers.a = { dtype = "e4m3", shape = [3, 100], fill = { normal = [0.0, 2], seed = 1 } }
buffers.b = { dtype = "bf16", shape = [3], fill = { values = [1, 2, 3] } }
buffers.c = { dtype = "i64", shape = [], fill = { constant = -3 } }
buffers.d = { dtype = "u8", shape = [9], fill = "zeros" }
buffers.e = { dtype = "i16", shape = [4], fill = "iota" }
"#,
];

const WORDS: [&str; 29] = [
    "0",
    "-1",
    "3.5",
    "nan",
    "inf",
    "1e400",
    "4294967296",
    "18446744073709551616",
    "0x7fffffffffffffff",
    "\"x\"",
    "true",
    "[]",
    "{}",
    "[[1]]",
    "\"iota\"",
    "{ uniform = [1, 0] }",
    "\"read\"",
    "1979-05-27",
    "'''",
    "\"\"\"",
    "\u{fffd}",
    "=",
    "]",
    "}",
    "\n",
    "#",
    ".",
    "\"write_all\"",
    "{ file = \"none.npy\" }",
];

fn damaged(random: &mut ChaCha8Rng, files: &[String]) -> String {
    let mut text: Vec<char> = files.choose(random).into_iter().flat_map(|file| file.chars()).collect();
    for _ in 0..random.random_range(1..4) {
        let at = random.random_range(0..=text.len());
        let end = (at + random.random_range(0..12)).min(text.len());
        match random.random_range(0..9) {
            0 => drop(text.drain(at..end)),
            1 => text.truncate(at.max(20)),
            2 => drop(text.splice(at..at, random.random_range(' '..'~').to_string().chars().collect::<Vec<_>>())),
            3..7 => {
                // One digit for another.
                if let Some(digit) = text[at..].iter_mut().find(|c| c.is_ascii_digit()) {
                    *digit = random.random_range('0'..='9');
                }
            }
            _ => {
                drop(text.splice(
                    at..end,
                    WORDS.choose(random).into_iter().flat_map(|word| word.chars()).collect::<Vec<_>>(),
                ))
            }
        }
    }
    text.into_iter().collect()
}

/// Runs what the text describes, if it is small; says whether it was run.
fn one(text: &str, kernel: &Kernel) -> bool {
    let within =
        |span: Option<std::ops::Range<usize>>| span.is_none_or(|span| span.start <= span.end && span.end <= text.len());
    let file = match LaunchFile::parse(text) {
        Ok(file) => file,
        Err(error) => {
            assert!(!error.to_string().is_empty() && within(error.span), "{text}");
            return false;
        }
    };
    let bytes = file.buffers.iter().flat_map(|buffer| {
        let extents = buffer.shape.iter().flatten();
        extents.copied().try_fold(buffer.element.size() as u64, u64::checked_mul)
    });
    let ctas = file.grid.iter().map(|extent| u64::from(*extent)).product::<u64>();
    if bytes.fold(0, u64::saturating_add) > MOST_BYTES || ctas > MOST_CTAS {
        return false;
    }
    match file.prepare(kernel, Path::new("/nowhere")) {
        Ok(prepared) => prepared.run(&Options { step_limit: 10_000, ..Options::default() }).is_ok(),
        Err(error) => {
            assert!(within(error.span), "{text}");
            false
        }
    }
}

#[test]
fn damaged_launch_files_are_refused_or_run() {
    let kernel = Module::parse(PTX).unwrap().entry("k").unwrap();
    let files = [FILES[0].to_owned(), FILES[1].to_owned(), template(&kernel).replace("[] }", "[{ u64 = 0 }, \"x\"] }")];
    assert!(one(&files[0], &kernel), "the first one is right");
    let long =
        std::env::var("LATHE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let (start, mut count, mut ran, mut slowest) = (Instant::now(), 0, 0, Duration::ZERO);
    while long.map_or(count < SHORT, |long| start.elapsed() < long) {
        let text = damaged(&mut ChaCha8Rng::seed_from_u64(count), &files);
        let this = Instant::now();
        ran += u64::from(one(&text, &kernel));
        slowest = slowest.max(this.elapsed());
        count += 1;
    }
    println!("{count} launch files, {ran} ran, slowest {slowest:?}");
    assert!(ran > count / 50, "{ran} of {count} ran");
}
