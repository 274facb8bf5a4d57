//! Single instructions against what an H200 gave for the same bits: random ones, NaNs, infinities, zeros of both signs,
//! denormals, and values at the edge of saturation. `fixtures/hardware/measure.py` made the fixtures.

use std::collections::HashMap;
use std::fmt::Write;

use lathe_emulator::{Checks, GlobalMemory, Init, Launch, Module, Options};

const THREADS: usize = 384;

/// One instruction, the inputs of its threads, and what the hardware gave.
struct Case {
    registers: String,
    text: String,
    inputs: &'static [u8],
    outputs: &'static [u8],
}

static INPUTS: &[u8] = include_bytes!("fixtures/hardware/inputs.bin");
static OUTPUTS: &[u8] = include_bytes!("fixtures/hardware/outputs.bin");

impl Case {
    fn is_warp(&self) -> bool {
        self.registers.starts_with(|c: char| c.is_ascii_digit())
    }

    /// Whether the manual says which bits come out: not of approximations, nor of sums of products.
    fn is_exact(&self) -> bool {
        ![".approx", ".full", "mma.sync"].iter().any(|inexact| self.text.contains(inexact))
            || self.text.contains(".s32.s8.")
            || self.text.contains(".s32.u8.")
    }

    /// Bytes that a thread reads and gives.
    fn bytes(&self) -> (usize, usize) {
        if self.is_warp() {
            let words: Vec<usize> = self.registers.split(' ').map(|words| words.parse().unwrap()).collect();
            return (4 * words[0], 4 * words[1]);
        }
        let size = match self.registers.split(' ').next().unwrap() {
            "pred" => 1,
            class => class[1..].parse::<usize>().unwrap() / 8,
        };
        (24, size)
    }

    /// A kernel that executes the instruction for every thread.
    fn ptx(&self) -> String {
        let (reads, gives) = self.bytes();
        let mut body = format!(
            "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\nmad.lo.u32 %r0, %r1, %r2, %r3;\n\
             ld.param.u64 %q0, [out];\nld.param.u64 %q1, [in];\nmul.wide.u32 %q2, %r0, {reads};\nadd.u64 %q1, %q1, %q2;\n\
             mul.wide.u32 %q2, %r0, {gives};\nadd.u64 %q0, %q0, %q2;\n"
        );
        if self.is_warp() {
            body += ".shared .align 16 .b8 tile[512];\n.reg .b32 %w<16>;\n.reg .b32 %d<4>;\n.reg .b32 %s, %row, %t;\n\
                     mov.u32 %s, tile;\nmad.lo.u32 %row, %r3, 16, %s;\nmad.lo.u32 %s, %r3, 4, %s;\n";
            (0..reads / 4).for_each(|i| _ = writeln!(body, "ld.global.b32 %w{i}, [%q1+{}];", 4 * i));
            (0..4).for_each(|i| _ = writeln!(body, "mov.b32 %d{i}, 0;"));
            _ = writeln!(body, "{}", self.text);
            (0..gives / 4).for_each(|i| _ = writeln!(body, "st.global.b32 [%q0+{}], %d{i};", 4 * i));
        } else {
            let mut classes = self.registers.split(' ');
            let result = classes.next().unwrap();
            _ = writeln!(body, ".reg .{result} %d;");
            for (i, (class, name)) in classes.zip(["a", "b", "c"]).enumerate() {
                _ = writeln!(body, ".reg .{class} %{name};\nld.global.{class} %{name}, [%q1+{}];", 8 * i);
            }
            _ = writeln!(body, "{}", self.text);
            match result {
                "pred" => body += "selp.u32 %r0, 1, 0, %d;\nst.global.u8 [%q0], %r0;\n",
                class => _ = writeln!(body, "st.global.{class} [%q0], %d;"),
            }
        }
        format!(
            ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
             .reg .b64 %q<8>;\n.reg .b32 %r<4>;\n.reg .pred %p;\n{body}ret;\n}}\n"
        )
    }

    /// What the emulator gives for these inputs.
    fn emulated(&self, inputs: &[u8]) -> Result<Vec<u8>, lathe_emulator::Error> {
        let kernel = Module::parse(self.ptx())?.entry("k")?;
        let mut memory = GlobalMemory::default();
        let input = memory.allocate("in", inputs.len() as u64, Init::Bytes(inputs))?;
        let out = memory.allocate("out", self.outputs.len() as u64, Init::Zero)?;
        let launch = Launch::new([THREADS as u32 / 32, 1, 1], [32, 1, 1]).arg(out).arg(input);
        let options = Options { checks: Checks::NONE, threads: 1, ..Options::default() };
        kernel.launch(&launch, &mut memory, &options)?;
        let mut result = vec![0; self.outputs.len()];
        memory.read(out, &mut result)?;
        Ok(result)
    }
}

fn cases() -> Vec<Case> {
    let mut pools = HashMap::new();
    let mut at = 0;
    for name in include_str!("fixtures/hardware/pools.txt").lines() {
        let len = THREADS * if name.starts_with("warp") { 64 } else { 24 };
        pools.insert(name, &INPUTS[at..at + len]);
        at += len;
    }
    assert_eq!(at, INPUTS.len());
    let mut cases = Vec::new();
    let mut at = 0;
    for line in include_str!("fixtures/hardware/cases.txt").lines() {
        let [pool, registers, text] = line.splitn(3, " | ").collect::<Vec<_>>()[..] else { panic!("{line}") };
        let mut case = Case { registers: registers.into(), text: text.into(), inputs: pools[pool], outputs: &[] };
        let len = THREADS * case.bytes().1;
        case.outputs = &OUTPUTS[at..at + len];
        at += len;
        cases.push(case);
    }
    assert_eq!(at, OUTPUTS.len());
    cases
}

#[test]
fn exact_instructions_give_the_bits_that_hardware_gives() {
    let mut wrong = Vec::new();
    let mut tested = 0;
    for case in cases().iter().filter(|case| case.is_exact()) {
        tested += 1;
        match case.emulated(case.inputs) {
            Err(error) => wrong.push(format!("{}: {error}", case.text)),
            Ok(got) => {
                let size = case.bytes().1;
                let pairs = got.chunks(size).zip(case.outputs.chunks(size)).enumerate();
                let different: Vec<_> = pairs.filter(|(_, (got, expected))| got != expected).collect();
                if let Some((thread, (got, expected))) = different.first() {
                    let hex = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02x}")).collect::<String>();
                    let reads = case.bytes().0;
                    let inputs: Vec<String> =
                        case.inputs[thread * reads..][..reads.min(24)].chunks(8).map(hex).collect();
                    wrong.push(format!(
                        "{}: {} of {THREADS} differ; thread {thread}, inputs {}: {} instead of {}",
                        case.text,
                        different.len(),
                        inputs.join(" "),
                        hex(got),
                        hex(expected)
                    ));
                }
            }
        }
    }
    assert!(tested > 700, "{tested}");
    assert!(wrong.is_empty(), "{} of {tested}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The floating-point numbers in some bytes, as f64.
fn numbers(bytes: &[u8], kind: &str) -> Vec<f64> {
    let halves = bytes.as_chunks::<2>().0.iter();
    match kind {
        "bf16" => halves.map(|b| half::bf16::from_le_bytes(*b).into()).collect(),
        "f16" => halves.map(|b| half::f16::from_le_bytes(*b).into()).collect(),
        _ => bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
    }
}

/// How far an approximation may be from what the hardware gave: what was measured, which `docs/checks.md` states.
enum Bound {
    /// In units of the last place of the result.
    Ulps(f64),
    /// Absolutely, for operands up to this magnitude; beyond it hardware loses all accuracy.
    Absolute { error: f64, within: f64 },
}

fn bound(opcode: &str) -> Bound {
    match opcode {
        "sin.approx.f32" | "sin.approx.ftz.f32" | "cos.approx.f32" | "cos.approx.ftz.f32" => {
            Bound::Absolute { error: 2f64.powi(-20), within: std::f64::consts::TAU }
        }
        "tanh.approx.f32" => Bound::Ulps(128.0),
        "lg2.approx.f32" | "lg2.approx.ftz.f32" | "div.approx.f32" | "div.approx.ftz.f32" => Bound::Ulps(2.0),
        _ => Bound::Ulps(1.0),
    }
}

#[test]
fn approximations_are_as_near_as_the_docs_say() {
    let mut wrong = String::new();
    for case in cases().iter().filter(|case| !case.is_exact() && !case.is_warp()) {
        let opcode = case.text.split(' ').next().unwrap();
        let (kind, mantissa, least) = match opcode.rsplit('.').next().unwrap() {
            "bf16" | "bf16x2" => ("bf16", 7, -126),
            "f16" | "f16x2" => ("f16", 10, -14),
            _ => ("f32", 23, -126),
        };
        let got = numbers(&case.emulated(case.inputs).unwrap_or_else(|error| panic!("{}: {error}", case.text)), kind);
        let expected = numbers(case.outputs, kind);
        let each_thread = got.len() / THREADS;
        for (index, (got, expected)) in got.into_iter().zip(expected).enumerate() {
            let operands = numbers(&case.inputs[index / each_thread * 24..][..16], kind);
            let near = got == expected
                || got.is_nan() && expected.is_nan()
                || match bound(opcode) {
                    Bound::Ulps(most) => {
                        let exponent = (expected.abs().log2().floor() as i32).max(least);
                        (got - expected).abs() <= most * 2f64.powi(exponent - mantissa)
                    }
                    Bound::Absolute { error, within } => operands[0].abs() > within || (got - expected).abs() <= error,
                };
            if !near {
                _ = writeln!(wrong, "{opcode} of {operands:?}: {got} instead of {expected}");
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// A lane's words without the signs of the elements of A, B and C.
fn magnitudes(inputs: &[u8], opcode: &str) -> Vec<u8> {
    let of_c = if opcode.ends_with(".f16.f16.f16.f16") { 0x7fff_7fff_u32 } else { 0x7fff_ffff };
    let of_ab = match opcode {
        _ if opcode.contains("tf32") => 0x7fff_ffff,
        _ if opcode.contains("e4m3") || opcode.contains("e5m2") => 0x7f7f_7f7f,
        _ => 0x7fff_7fff,
    };
    let words = inputs.as_chunks::<4>().0.iter().enumerate();
    words
        .flat_map(|(i, word)| (u32::from_le_bytes(*word) & if i % 16 < 8 { of_ab } else { of_c }).to_le_bytes())
        .collect()
}

/// Hardware and emulator add the products of an mma in their own orders, with their own rounding in between. Their sums differ by
/// this part of the sum of magnitudes, `|a||b| + |c|`, at most; where that overflows, the sums may be infinite, in either direction, or NaN.
const MMA_BOUND: f64 = 1.0 / (1 << 21) as f64;

#[test]
fn sums_of_products_are_as_near_as_the_docs_say() {
    let (mut wrong, mut tested, mut worst) = (String::new(), 0, 0f64);
    for case in cases().iter().filter(|case| !case.is_exact() && case.is_warp()) {
        let opcode = case.text.split(' ').next().unwrap();
        let kind = if opcode.ends_with(".f16.f16.f16.f16") { "f16" } else { "f32" };
        let emulated = |inputs: &[u8]| numbers(&case.emulated(inputs).unwrap(), kind);
        let (got, scale) = (emulated(case.inputs), emulated(&magnitudes(case.inputs, opcode)));
        for (index, expected) in numbers(case.outputs, kind).into_iter().enumerate() {
            let (got, scale) = (got[index], scale[index]);
            tested += 1;
            if got == expected || got.is_nan() && expected.is_nan() {
                continue;
            }
            worst = worst.max((got - expected).abs() / scale);
            if scale.is_infinite() || (got - expected).abs() <= scale * MMA_BOUND {
                continue;
            }
            _ = writeln!(wrong, "{opcode}, element {index}: {got} instead of {expected}, of magnitude {scale}");
        }
    }
    assert!(tested > 10_000, "{tested}");
    // A bound that is never nearly met would say nothing.
    assert!(worst > MMA_BOUND / 4.0, "{worst:e}");
    assert!(wrong.is_empty(), "{wrong}");
}
