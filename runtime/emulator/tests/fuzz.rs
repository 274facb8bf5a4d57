//! Real PTX, damaged: it is refused or it runs, and nothing panics, hangs or eats memory.
//!
//! A short run by default; `LATHE_FUZZ_SECONDS=600` goes on for ten minutes.

mod common;

use std::time::{Duration, Instant};

use common::{Memory, Numbers, text};
use lathe_emulator::{Launch, Module, Options};

/// Inputs of a short run.
const SHORT: u64 = 400;
/// Bytes that the process may hold at most.
const MOST_MEMORY: u64 = 2 << 30;

const FILES: [&str; 5] = ["basics", "matrix", "async", "triton_paged_mqa_bf16", "triton_paged_mqa_fp8"];

/// Calls `one` with the number of the input until the budget is spent; says how many there were and how long the slowest took.
fn fuzz(mut one: impl FnMut(u64)) {
    let long =
        std::env::var("LATHE_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
    let start = Instant::now();
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while long.map_or(count < SHORT, |long| start.elapsed() < long) {
        let this = Instant::now();
        one(count);
        slowest = slowest.max(this.elapsed());
        count += 1;
    }
    let peak = peak_memory();
    println!("{count} inputs, slowest {slowest:?}, peak {} MiB", peak >> 20);
    assert!(peak < MOST_MEMORY, "{peak} bytes");
}

/// The most memory that this process has held; 0 where the system does not say.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

/// One to ten changes: of bytes, digits, words, lines; cuts, and pieces of other files.
fn damaged(numbers: &mut Numbers, files: &[String]) -> Vec<u8> {
    let pick = |numbers: &mut Numbers| &files[numbers.below(files.len() as u64) as usize];
    let mut bytes = pick(numbers).clone().into_bytes();
    for _ in 0..1 + numbers.below(10) {
        let len = bytes.len().max(1) as u64;
        let at = numbers.below(len) as usize;
        match numbers.below(8) {
            0 => bytes[at..].iter_mut().take(1).for_each(|byte| *byte = numbers.bits() as u8),
            1 => bytes[at..]
                .iter_mut()
                .take(1)
                .for_each(|byte| *byte = b"{}[](),;.:%@!|<>\"-09axr\n"[numbers.below(24) as usize]),
            2 => bytes.truncate(at),
            3 => {
                let other = pick(numbers).as_bytes();
                let from = numbers.below(other.len() as u64) as usize;
                let piece = other[from..].iter().take(1 + numbers.below(200) as usize).copied();
                bytes.splice(at..at, piece.collect::<Vec<u8>>());
            }
            4 => {
                let end = (at + numbers.below(100) as usize).min(bytes.len());
                bytes.drain(at.min(end)..end);
            }
            5 => {
                // A number becomes a large one.
                let digits = bytes[at..].iter().position(u8::is_ascii_digit).map(|i| at + i);
                if let Some(digit) = digits {
                    let large = [&b"4294967296"[..], b"18446744073709551616", b"1099511627776", b"-1", b"0"];
                    bytes.splice(digit..digit + 1, large[numbers.below(5) as usize].to_vec());
                }
            }
            _ => {
                // Two lines change places.
                let mut lines: Vec<Vec<u8>> = bytes.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                let (a, b) = (numbers.below(lines.len() as u64) as usize, numbers.below(lines.len() as u64) as usize);
                lines.swap(a, b);
                bytes = lines.join(&b'\n');
            }
        }
    }
    bytes
}

#[test]
fn damaged_ptx_is_refused_or_runs() {
    let files = FILES.map(text);
    fuzz(|seed| {
        let mut numbers = Numbers::new(seed);
        let bytes = damaged(&mut numbers, &files);
        let module = match Module::parse(&bytes) {
            Ok(module) => module,
            Err(error) => {
                let lines = bytes.iter().filter(|byte| **byte == b'\n').count() as u32 + 1;
                assert!(error.line().is_some_and(|line| (1..=lines).contains(&line)), "{error}");
                return;
            }
        };
        let names: Vec<String> = module.entries().map(String::from).collect();
        for name in names.iter().take(4) {
            let Ok(kernel) = module.entry(name) else { continue };
            let mut memory = Memory::default();
            let buffer = memory.with("buffer", &[1u8; 4096]);
            let mut launch = Launch::new([2, 1, 1], [128, 1, 1]).dynamic_shared(49152);
            let bytes = |size: usize| {
                [buffer.to_le_bytes(), 7u64.to_le_bytes()].concat().repeat(size / 16 + 1)[..size].to_vec()
            };
            launch.params = kernel.params().iter().map(|param| bytes(param.size)).collect();
            let options = Options { seed: numbers.below(3), step_limit: 20_000, ..Options::default() };
            let _ = kernel.launch(&launch, &mut memory.0, &options);
        }
    });
}
