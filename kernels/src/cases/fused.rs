//! Launches of the fused V4 store: norm, rotation and transform within a bound, everything else to the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lathe_codegen::contract::{Arg, Buffer, Case, ScalarValue, Scale, Verdict};
use lathe_codegen::dtype::Dtype;

use super::Noise;
use super::logits_list::{FIRST_FAR_PAGE, PACKED_PAGE_STRIDES};
use super::memory::{Failures, append, buffer, expect_unchanged};
use crate::contract::rules::slot_of_main;
use crate::contract::{HEAD_DIM, KeyFormat, PAGE_SLOTS, ROPE_DIMS, SCALES_OFFSET};
use crate::launch::store_grid;
use crate::reference::bounds::{C_FUSED, U};
use crate::reference::convert::{bf16_to_f64, e4m3_to_f64, f64_to_bf16, f64_to_e4m3};
use crate::reference::store::{FusedKey, FusedParams, completes_group, fused_key, scale_of};

/// What a launch is like; [`FusedSpec::case`] makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedSpec {
    /// What distinguishes it, for the case's name.
    pub label: String,
    /// How the pool stores keys.
    pub format: KeyFormat,
    /// fp8: whether scales are powers of two.
    pub power_of_two: bool,
    /// Element type of the slots: i32 or i64.
    pub slot_dtype: Dtype,
    /// Main slot and `seq_len` of each token.
    pub tokens: Vec<(i64, i32)>,
    /// Bytes between pages, a multiple of 16.
    pub page_stride: u64,
    /// Elements between the end of a row of `x` and the next, a multiple of 8: they are not mapped.
    pub x_gap: u64,
    /// Whether every other row is zeros.
    pub zero_rows: bool,
    /// Seed of everything random.
    pub seed: u64,
}

/// RMSNorm epsilon of the models.
const EPS: f32 = 1e-6;

impl FusedSpec {
    /// A plain launch: random rows, tight pages, i32 slots.
    pub fn new(format: KeyFormat, tokens: Vec<(i64, i32)>) -> Self {
        FusedSpec {
            label: String::new(),
            format,
            power_of_two: false,
            slot_dtype: Dtype::I32,
            tokens,
            page_stride: format.page_bytes() as u64,
            x_gap: 0,
            zero_rows: false,
            seed: 1,
        }
    }

    /// The case: memory, arguments and judge.
    ///
    /// Arguments, in order: `x` (row stride), `norm_weight`, `cos_sin`, `slots` (main), `seq_lens`, `k_pages` (page stride),
    /// in fp8 `k_scales` (the scales of the first page, page stride), `eps: f32`, `rows: i32`.
    pub fn case(&self) -> Case {
        let data = Arc::new(Data::new(self));
        let main_slots: Vec<i64> = self.tokens.iter().map(|token| token.0).collect();
        let seq_lens: Vec<i32> = self.tokens.iter().map(|token| token.1).collect();
        let slots = match self.slot_dtype {
            Dtype::I64 => buffer("slots", Dtype::I64, &main_slots, i64::to_le_bytes),
            _ => buffer("slots", Dtype::I32, &main_slots, |slot| (slot as i32).to_le_bytes()),
        };
        let before = Arc::new(vec![
            self.rows(&data.x),
            buffer("norm_weight", Dtype::F32, &data.norm_weight, f32::to_le_bytes),
            buffer("cos_sin", Dtype::F32, &data.cos_sin, f32::to_le_bytes),
            slots,
            buffer("seq_lens", Dtype::I32, &seq_lens, i32::to_le_bytes),
            self.pool(),
        ]);
        let pool_element = before[5].dtype.size() as i64;
        let pointer = |buffer, strides| Arg::Pointer { buffer, offset: 0, strides };
        let mut args = vec![pointer(0, vec![self.x_stride() as i64])];
        args.extend((1..5).map(|buffer| pointer(buffer, vec![])));
        args.push(pointer(5, vec![self.page_stride as i64 / pool_element]));
        if self.format == KeyFormat::Fp8 {
            args.push(Arg::Pointer {
                buffer: 5,
                offset: SCALES_OFFSET as u64,
                strides: vec![self.page_stride as i64 / 4],
            });
        }
        args.extend([Arg::Scalar(ScalarValue::F32(EPS)), Arg::Scalar(ScalarValue::I32(self.tokens.len() as i32))]);
        let spec = self.clone();
        Case {
            name: format!("N={} {}: {}", self.tokens.len(), self.slot_dtype, self.label),
            grid: store_grid(self.tokens.len(), 1),
            buffers: before.to_vec(),
            args,
            verify: Box::new(move |after| spec.verify(&data, &before, after)),
        }
    }

    fn x_stride(&self) -> u64 {
        HEAD_DIM as u64 + self.x_gap
    }

    fn rows(&self, x: &[u16]) -> Buffer {
        let mut segments = Vec::new();
        for (row, values) in x.chunks_exact(HEAD_DIM).enumerate() {
            let bytes: Vec<u8> = values.iter().flat_map(|bits| bits.to_le_bytes()).collect();
            append(&mut segments, row as u64 * self.x_stride() * 2, &bytes, true);
        }
        let len = segments.last().map_or(0, |s| s.offset + s.bytes.len() as u64);
        Buffer { name: "x".into(), dtype: Dtype::Bf16, len, segments, racy: 0..0 }
    }

    /// The slot a token stores to, if it stores.
    fn slot(&self, row: usize) -> Option<u64> {
        let (main_slot, seq_len) = self.tokens[row];
        (main_slot >= 0 && completes_group(seq_len)).then(|| slot_of_main(main_slot) as u64)
    }

    /// Page 0, the pages that a token stores to, and those that its slot would lie in if it did.
    fn pool(&self) -> Buffer {
        let noise = Noise::new(self.seed).stream(1);
        let slots = self.tokens.iter().filter(|token| token.0 >= 0).map(|token| slot_of_main(token.0) as u64);
        let pages: BTreeSet<u64> = slots.map(|slot| slot / PAGE_SLOTS as u64).chain([0]).collect();
        let mut segments = Vec::new();
        for &page in &pages {
            let bytes: Vec<u8> =
                (0..self.format.page_bytes() as u64).map(|i| noise.stream(page).bits(i) as u8).collect();
            append(&mut segments, page * self.page_stride, &bytes, true);
        }
        let len = segments.last().map_or(0, |s| s.offset + s.bytes.len() as u64);
        // Padding goes to the dummy page, several tokens to a slot.
        let racy = 0..self.format.page_bytes() as u64;
        Buffer { name: "k_pages".into(), dtype: self.format.pool_dtype(), len, segments, racy }
    }

    /// Offsets of a slot's key and, in fp8, of its scale.
    fn offsets(&self, slot: u64) -> (u64, u64) {
        let (page, offset) = (slot / PAGE_SLOTS as u64 * self.page_stride, slot % PAGE_SLOTS as u64);
        let key = page + offset * (HEAD_DIM * self.format.element_bytes()) as u64;
        (key, page + SCALES_OFFSET as u64 + 4 * offset)
    }

    fn verify(&self, data: &Data, before: &[Buffer], after: &[Buffer]) -> Verdict {
        let mut failures = Failures::default();
        for (before, after) in before.iter().zip(after).take(5) {
            expect_unchanged(before, after, &mut failures);
        }
        let mut rows_of: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for row in 0..self.tokens.len() {
            if let Some(slot) = self.slot(row) {
                rows_of.entry(slot).or_default().push(row);
            }
        }
        // What was stored is judged by value, then put back, so that all other bytes can be compared.
        let mut pool = after[5].clone();
        for (slot, rows) in rows_of {
            let raced = rows.len() > 1 && slot < PAGE_SLOTS as u64;
            if !raced && let Err(reason) = self.judge(data, rows[0], slot, &pool) {
                failures.push(|| format!("row {} (slot {slot}): {reason}", rows[0]));
            }
            let (key, scale) = self.offsets(slot);
            let mut ranges = vec![(key, HEAD_DIM * self.format.element_bytes())];
            if self.format == KeyFormat::Fp8 {
                ranges.push((scale, 4));
            }
            for (at, len) in ranges {
                restore(&before[5], &mut pool, at, len);
            }
        }
        expect_unchanged(&before[5], &pool, &mut failures);
        Verdict { worst_row_diff: 0.0, failures: failures.into_lines() }
    }

    fn judge(&self, data: &Data, row: usize, slot: u64, pool: &Buffer) -> Result<(), String> {
        let FusedKey { values, magnitude } = data.key(row, self.tokens[row].1);
        let slack = C_FUSED * magnitude;
        let (key, scale) = self.offsets(slot);
        let bytes = pool.slice(key, HEAD_DIM * self.format.element_bytes()).ok_or("came back without its key")?;
        let (step, slack) = match self.format {
            KeyFormat::Bf16 => (1.0, slack),
            KeyFormat::Fp8 => {
                let stored = pool.slice(scale, 4).ok_or("came back without its scale")?;
                let stored = f32::from_le_bytes(stored.try_into().expect("4 bytes"));
                let amax = values.iter().fold(0.0f64, |amax, v| amax.max(v.abs()));
                let candidates = [amax - slack, amax, amax + slack].map(|a| scale_of(a as f32, self.power_of_two));
                let (least, most) = (candidates[0] * (1.0 - 2.0 * U as f32), candidates[2] * (1.0 + 2.0 * U as f32));
                let power = !self.power_of_two || candidates.contains(&stored);
                if !(least..=most).contains(&stored) || !power {
                    return Err(format!(
                        "its scale is {stored:e}, expected {:e} (largest value {amax:e})",
                        candidates[1]
                    ));
                }
                // The reciprocal and the product round too.
                (f64::from(stored), slack + 3.0 * U * amax)
            }
        };
        for d in 0..HEAD_DIM {
            let (least, most, got) = match self.format {
                KeyFormat::Bf16 => {
                    let round = |x: f64| bf16_to_f64(f64_to_bf16(x));
                    let got = bf16_to_f64(u16::from_le_bytes([bytes[2 * d], bytes[2 * d + 1]]));
                    (round(values[d] - slack), round(values[d] + slack), got)
                }
                KeyFormat::Fp8 => {
                    let round = |x: f64| e4m3_to_f64(f64_to_e4m3(x / step));
                    (round(values[d] - slack), round(values[d] + slack), e4m3_to_f64(bytes[d]))
                }
            };
            if !(least..=most).contains(&got) {
                return Err(format!(
                    "dim {d} is {got:e} times {step:e}, expected {least:e} to {most:e} (from {:e})",
                    values[d]
                ));
            }
        }
        Ok(())
    }
}

/// The inputs of a launch, on the host.
struct Data {
    x: Vec<u16>,
    norm_weight: Vec<f32>,
    cos_sin: Vec<f32>,
}

impl Data {
    fn new(spec: &FusedSpec) -> Self {
        let noise = Noise::new(spec.seed);
        let element = |row: usize, d: usize| {
            let random = f64::from(noise.bell((row * HEAD_DIM + d) as u64)) * f64::powi(2.0, (row % 9) as i32 - 4);
            match spec.slot(row) {
                Some(_) if spec.zero_rows && row.is_multiple_of(2) => 0,
                Some(_) => f64_to_bf16(random),
                // A token that stores nothing may bring anything.
                None => 0x7fff,
            }
        };
        let x = (0..spec.tokens.len() * HEAD_DIM).map(|i| element(i / HEAD_DIM, i % HEAD_DIM)).collect();
        let norm_weight = (0..HEAD_DIM as u64).map(|d| 1.0 + 0.2 * noise.stream(2).bell(d)).collect();
        let longest = spec.tokens.iter().map(|token| token.1).max().unwrap_or(0).max(4);
        Data { x, norm_weight, cos_sin: rotations(longest as usize - 3) }
    }

    fn key(&self, row: usize, seq_len: i32) -> FusedKey {
        let x = std::array::from_fn(|d| bf16_to_f64(self.x[row * HEAD_DIM + d]));
        let params = FusedParams { norm_weight: &self.norm_weight, eps: EPS, cos_sin: &self.cos_sin };
        fused_key(&x, seq_len, params)
    }
}

/// The rotation table of a RoPE with base 10,000.
fn rotations(positions: usize) -> Vec<f32> {
    let pairs = ROPE_DIMS / 2;
    let angle = |position: usize, pair: usize| position as f64 * 10_000f64.powf(-(pair as f64) / pairs as f64);
    (0..positions)
        .flat_map(|position| {
            let cos = (0..pairs).map(move |pair| angle(position, pair).cos() as f32);
            cos.chain((0..pairs).map(move |pair| angle(position, pair).sin() as f32))
        })
        .collect()
}

/// Puts back what `len` bytes at `at` were before.
fn restore(before: &Buffer, pool: &mut Buffer, at: u64, len: usize) {
    let Some(old) = before.slice(at, len) else { return };
    if let Some(segment) = pool.segments.iter_mut().rev().find(|s| s.offset <= at) {
        let from = (at - segment.offset) as usize;
        segment.bytes[from..from + len].copy_from_slice(old);
    }
}

/// All cases of a fused store into this format.
pub fn fused_cases(format: KeyFormat, slot_dtype: Dtype, power_of_two: bool, scale: Scale) -> Vec<Case> {
    fused_specs(format, slot_dtype, power_of_two, scale).iter().map(FusedSpec::case).collect()
}

/// What [`fused_cases`] are made from.
pub fn fused_specs(format: KeyFormat, slot_dtype: Dtype, power_of_two: bool, scale: Scale) -> Vec<FusedSpec> {
    let mut specs = Vec::new();
    let mut add = |label: &str, tokens: Vec<(i64, i32)>, change: &dyn Fn(&mut FusedSpec)| {
        let mut spec = FusedSpec::new(format, tokens);
        spec.label = label.to_owned();
        (spec.slot_dtype, spec.power_of_two) = (slot_dtype, power_of_two);
        spec.seed = specs.len() as u64 + 1;
        change(&mut spec);
        specs.push(spec);
    };
    let plain = |_: &mut FusedSpec| {};

    add("nothing", vec![], &plain);
    add("one token that completes a group", vec![(259, 4)], &plain);
    add("one token that does not", vec![(259, 5)], &plain);
    add("main slot 0", vec![(0, 8), (259, 12)], &plain);
    add("a prefill of 40 tokens", (0..40).map(|i| (300 + i, i as i32 + 1)).collect(), &plain);
    let decode =
        |n: i64| (0..n).map(|i| (1000 * (i + 1) + 3 - (1000 * (i + 1)) % 4, 4 * (i as i32 * 37 + 1))).collect();
    add("a decode step, every token completing", decode(33), &plain);
    add("zero rows", decode(9), &|s| s.zero_rows = true);
    add("negative slots and odd lengths", vec![(-1, 4), (263, 8), (-4, 8), (267, 0), (271, -4), (275, 9)], &plain);
    add("page boundaries", vec![(255, 256), (256, 252), (511, 512), (515, 4), (1023, 1024)], &plain);
    add("rows 2^29 elements apart", decode(5), &|s| s.x_gap = (1 << 29) - 128);
    add("padded rows", vec![(0, 1), (0, 1), (403, 104), (0, 0), (0, 4), (0, 4), (0, 1)], &plain);
    for stride in PACKED_PAGE_STRIDES {
        let far = i64::from(FIRST_FAR_PAGE) * 256;
        let tokens = vec![(far + 3, 4), (far + 255, 2_000), (far + 259, 64), (7, 8)];
        add(&format!("packed pages {stride} B apart, past 2^31 elements"), tokens, &|s| s.page_stride = stride);
    }
    if scale == Scale::Gpu {
        add("a prefill chunk", (0..8_192).map(|i| (256 + i, i as i32 + 1)).collect(), &plain);
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::store::quantise;

    /// Stores what the reference computes, rounded as the format asks, into the case's own memory.
    fn run(case: &mut Case, spec: &FusedSpec) {
        let data = Data::new(spec);
        for row in 0..spec.tokens.len() {
            let Some(slot) = spec.slot(row) else { continue };
            let values = data.key(row, spec.tokens[row].1).values;
            let (key, scale) = spec.offsets(slot);
            let (payload, scale_bytes) = match spec.format {
                KeyFormat::Bf16 => (values.iter().flat_map(|v| f64_to_bf16(*v).to_le_bytes()).collect(), None),
                KeyFormat::Fp8 => {
                    let quantised = quantise(&values.map(|v| v as f32), spec.power_of_two);
                    (quantised.payload.to_vec(), Some(quantised.scale.to_le_bytes()))
                }
            };
            let mut write = |at: u64, bytes: &[u8]| {
                let segment = case.buffers[5].segments.iter_mut().rev().find(|s| s.offset <= at).unwrap();
                let from = (at - segment.offset) as usize;
                segment.bytes[from..from + bytes.len()].copy_from_slice(bytes);
            };
            write(key, &payload);
            if let Some(bytes) = scale_bytes {
                write(scale, &bytes);
            }
        }
    }

    #[test]
    fn the_reference_passes_every_listed_case() {
        for (format, power_of_two) in [(KeyFormat::Bf16, false), (KeyFormat::Fp8, false), (KeyFormat::Fp8, true)] {
            for spec in fused_specs(format, Dtype::I32, power_of_two, Scale::Emulator) {
                let mut case = spec.case();
                run(&mut case, &spec);
                assert_eq!((case.verify)(&case.buffers), Verdict::default(), "{format:?} {}", case.name);
            }
        }
    }

    #[test]
    fn storing_a_token_that_completes_no_group_fails() {
        let spec = FusedSpec::new(KeyFormat::Bf16, vec![(259, 5)]);
        let mut case = spec.case();
        case.buffers[5].segments[0].bytes[0] ^= 1; // slot 0, as real systems did
        let failures = (case.verify)(&case.buffers).failures;
        assert!(failures[0].starts_with("`k_pages` must not change, but bytes 0..1"), "{failures:?}");
    }

    #[test]
    fn a_key_of_the_wrong_position_a_missing_one_and_a_wrong_scale_fail() {
        let spec = FusedSpec::new(KeyFormat::Fp8, vec![(259, 8)]);
        let mut case = spec.case();
        assert_eq!((case.verify)(&case.buffers).failures.len(), 1, "never stored");
        let mut wrong = spec.clone();
        wrong.tokens[0].1 = 4;
        run(&mut case, &FusedSpec { tokens: vec![(259, 8)], ..wrong.clone() });
        assert_eq!((case.verify)(&case.buffers).failures, Vec::<String>::new());
        // The same slot, rotated as for position 0.
        run(&mut case, &wrong);
        assert_eq!((case.verify)(&case.buffers).failures.len(), 1);
        run(&mut case, &spec);
        let (_, scale) = spec.offsets(64);
        let segment = case.buffers[5].segments.iter_mut().rev().find(|s| s.offset <= scale).unwrap();
        let at = (scale - segment.offset) as usize;
        segment.bytes[at + 1] ^= 0x40;
        assert!((case.verify)(&case.buffers).failures[0].contains("its scale is"));
    }
}
