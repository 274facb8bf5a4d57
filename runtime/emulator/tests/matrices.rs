//! Tensor-core kernels against an f64 reference over the same quantised inputs.

mod common;

use common::{Memory, Numbers, kernel, run_clean, schedules};
use half::bf16;
use lathe_emulator::Launch;

fn bf16s(numbers: &mut Numbers, n: usize) -> Vec<u16> {
    (0..n).map(|_| bf16::from_f32(numbers.unit()).to_bits()).collect()
}

fn from_bf16(bits: u16) -> f64 {
    bf16::from_bits(bits).to_f64()
}

/// Straight from the format's definition.
fn from_e4m3(bits: u8) -> f64 {
    let (sign, exponent, mantissa) = (bits >> 7, bits >> 3 & 15, f64::from(bits & 7));
    let magnitude = if exponent == 0 {
        mantissa * 2f64.powi(-9)
    } else {
        (1.0 + mantissa / 8.0) * 2f64.powi(i32::from(exponent) - 7)
    };
    if sign == 1 { -magnitude } else { magnitude }
}

fn close(got: &[f32], expected: &[(f64, f64)]) {
    for (i, (&g, &(e, magnitude))) in got.iter().zip(expected).enumerate() {
        assert!((f64::from(g) - e).abs() <= 1e-6 * magnitude, "element {i}: {g} is not {e}");
    }
}

/// (dot product, sum of absolute products)
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    a.iter().zip(b).fold((0.0, 0.0), |(s, m), (x, y)| (s + x * y, m + (x * y).abs()))
}

fn check_gemm<T: bytemuck::NoUninit>(
    entry: &str,
    make: impl Fn(&mut Numbers) -> T,
    value: impl Fn(T) -> f64,
    k: usize,
) {
    let kernel = kernel("matrix", entry);
    let (rows, columns) = (32, 24);
    let mut numbers = Numbers::new(5);
    let a: Vec<T> = (0..rows * k).map(|_| make(&mut numbers)).collect();
    let b: Vec<T> = (0..columns * k).map(|_| make(&mut numbers)).collect();
    let wide = |x: &[T]| x.iter().map(|&x| value(x)).collect::<Vec<f64>>();
    let (wa, wb) = (wide(&a), wide(&b));
    let expected: Vec<(f64, f64)> =
        (0..rows * columns).map(|i| dot(&wa[i / columns * k..][..k], &wb[i % columns * k..][..k])).collect();
    for options in schedules() {
        let mut m = Memory::default();
        let (pc, pa, pb) = (m.undefined("c", rows * columns * 4), m.with("a", &a), m.with("b", &b));
        let launch = Launch::new([columns as u32 / 8, rows as u32 / 16, 1], [32, 1, 1]);
        let launch = launch.arg(pc).arg(pa).arg(pb).arg(columns as i32).arg((k * size_of::<T>()) as i32);
        run_clean(&kernel, &launch, &mut m, &options);
        close(&m.read::<f32>(pc, rows * columns), &expected);
    }
}

#[test]
fn bf16_gemm_agrees_with_the_reference() {
    check_gemm("gemm_bf16", |n| bf16::from_f32(n.unit()).to_bits(), from_bf16, 64);
}

#[test]
fn e4m3_gemm_agrees_with_the_reference() {
    // All bit patterns but the two NaNs.
    let any = |n: &mut Numbers| Some(n.below(256) as u8).filter(|b| b & 0x7f != 0x7f).unwrap_or(0x08);
    check_gemm("gemm_e4m3", any, from_e4m3, 96);
}

#[test]
fn paged_logits_agree_with_the_reference_under_every_schedule() {
    let k = kernel("matrix", "logits_bf16");
    let (batch, pages, pages_per_cta) = (3usize, 9usize, 2u32);
    let lens = [300i32, 0, 129];
    let mut numbers = Numbers::new(6);
    let q = bf16s(&mut numbers, batch * 64 * 128);
    let keys = bf16s(&mut numbers, pages * 64 * 128);
    let weights: Vec<f32> = (0..batch * 64).map(|_| numbers.unit()).collect();
    let mut table = vec![i32::MAX; batch * 5];
    for (row, &len) in lens.iter().enumerate() {
        (0..len as usize).step_by(64).for_each(|p| table[row * 5 + p / 64] = numbers.below(pages as u64) as i32);
    }
    let mut expected = Vec::new();
    for row in 0..batch {
        for p in 0..lens[row] as usize {
            let page = table[row * 5 + p / 64] as usize;
            let key: Vec<f64> = (0..128).map(|d| from_bf16(keys[(page * 64 + p % 64) * 128 + d])).collect();
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for h in 0..64 {
                let head: Vec<f64> = (0..128).map(|d| from_bf16(q[(row * 64 + h) * 128 + d])).collect();
                let (s, m) = dot(&head, &key);
                sum += f64::from(weights[row * 64 + h]) * s.max(0.0);
                magnitude += f64::from(weights[row * 64 + h]).abs() * m;
            }
            expected.push((row, p, sum, magnitude));
        }
    }
    for options in schedules() {
        let mut m = Memory::default();
        let out = m.with("logits", &[7f32; 3 * 320]);
        let (pq, pk, pw) = (m.with("q", &q), m.with("keys", &keys), m.with("weights", &weights));
        let (pl, pt) = (m.with("lens", &lens), m.with("table", &table));
        let launch = Launch::new([3, batch as u32, 1], [128, 1, 1]).dynamic_shared(64 * 256 + 4 * 2 * 16 * 256);
        let launch = launch.arg(out).arg(pq).arg(pk).arg(pw).arg(pl).arg(pt).arg(5i32).arg(320i32).arg(pages_per_cta);
        run_clean(&k, &launch, &mut m, &options);
        let got = m.read::<f32>(out, 3 * 320);
        for &(row, p, e, magnitude) in &expected {
            let g = got[row * 320 + p];
            assert!((f64::from(g) - e).abs() <= 1e-6 * magnitude, "row {row}, position {p}: {g} is not {e}");
        }
        let written = |i: usize| (i % 320) < lens[i / 320] as usize;
        assert!((0..got.len()).all(|i| written(i) || got[i] == 7.0), "something past a row's length was written");
    }
}

/// A kernel that Triton compiled: parameters in its order, then the two scratch pointers that it adds.
struct Triton {
    file: &'static str,
    entry: &'static str,
    /// Dynamic shared memory that the compiler asked for.
    shared: u32,
    /// Bytes of an element of queries and keys.
    bytes: usize,
    value: fn(&[u8]) -> f64,
    /// Pages end with a scale for each key.
    scaled: bool,
}

impl Triton {
    /// Runs the kernel on elements that `make` gives, and compares its logits with plain loops.
    fn check(&self, make: impl Fn(&mut Numbers) -> Vec<u8>) {
        let k = kernel(self.file, self.entry);
        let (rows, pages) = (2usize, 5usize);
        // A length inside a page, one that ends with the first CTA, and CTAs past it.
        let lens = [200i32, 70];
        let mut numbers = Numbers::new(8);
        let q: Vec<u8> = (0..rows * 64 * 128).flat_map(|_| make(&mut numbers)).collect();
        let page_bytes = 64 * 128 * self.bytes + if self.scaled { 64 * 4 } else { 0 };
        let mut keys = Vec::new();
        for _ in 0..pages {
            keys.extend((0..64 * 128).flat_map(|_| make(&mut numbers)));
            if self.scaled {
                keys.extend((0..64).flat_map(|_| (numbers.unit() + 2.0).to_le_bytes()));
            }
        }
        let weights: Vec<f32> = (0..rows * 64).map(|_| numbers.unit()).collect();
        let table: Vec<i32> = (0..rows * 4).map(|_| numbers.below(pages as u64) as i32).collect();
        let element = |bytes: &[u8], index: usize| (self.value)(&bytes[index * self.bytes..][..self.bytes]);
        for options in schedules() {
            let mut m = Memory::default();
            let out = m.undefined("logits", rows * 256 * 4);
            let (pq, pk) = (m.with("q", &q), m.with("keys", &keys));
            let (pw, pl, pt) = (m.with("weights", &weights), m.with("lens", &lens), m.with("table", &table));
            let launch = Launch::new([rows as u32, 2, 1], [128, 1, 1]).dynamic_shared(self.shared).arg(pq).arg(pk);
            // Keys and scales lie in one buffer, and are passed as two.
            let launch = if self.scaled { launch.arg(pk) } else { launch };
            let launch = launch.arg(pw).arg(pl).arg(pt).arg(out).arg(4i32).arg(256i32).arg(256i32).arg(0u64).arg(0u64);
            run_clean(&k, &launch, &mut m, &options);
            let got = m.read::<f32>(out, rows * 256);
            for (row, p) in (0..rows).flat_map(|row| (0..256usize).map(move |p| (row, p))) {
                let g = got[row * 256 + p];
                if p >= lens[row] as usize {
                    assert_eq!(g, f32::NEG_INFINITY, "row {row}, position {p}");
                    continue;
                }
                let page = &keys[table[row * 4 + p / 64] as usize * page_bytes..][..page_bytes];
                let key: Vec<f64> = (0..128).map(|d| element(page, p % 64 * 128 + d)).collect();
                let (mut sum, mut magnitude) = (0.0, 0.0);
                for h in 0..64 {
                    let head: Vec<f64> = (0..128).map(|d| element(&q, (row * 64 + h) * 128 + d)).collect();
                    let (s, a) = dot(&head, &key);
                    sum += f64::from(weights[row * 64 + h]) * s.max(0.0);
                    magnitude += f64::from(weights[row * 64 + h]).abs() * a;
                }
                let scale = match self.scaled {
                    true => f64::from(f32::from_le_bytes(page[64 * 128 + 4 * (p % 64)..][..4].try_into().unwrap())),
                    false => 1.0,
                };
                let near = (f64::from(g) - scale * sum).abs() <= 1e-6 * scale * magnitude;
                assert!(near, "row {row}, position {p}: {g} is not {}", scale * sum);
            }
        }
    }
}

#[test]
fn what_triton_compiled_for_bf16_agrees_with_the_reference() {
    let value = |bytes: &[u8]| from_bf16(u16::from_le_bytes([bytes[0], bytes[1]]));
    let (file, entry) = ("triton_paged_mqa_bf16", "_bf16_logits");
    Triton { file, entry, shared: 33284, bytes: 2, value, scaled: false }
        .check(|n| bf16::from_f32(n.unit()).to_le_bytes().to_vec());
}

#[test]
fn what_triton_compiled_for_fp8_agrees_with_the_reference() {
    let (file, entry) = ("triton_paged_mqa_fp8", "_fp8_logits");
    Triton { file, entry, shared: 17156, bytes: 1, value: |bytes| from_e4m3(bytes[0]), scaled: true }
        .check(|n| vec![n.below(256) as u8 & 0xbf]);
}
