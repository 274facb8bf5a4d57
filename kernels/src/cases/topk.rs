//! Launches of top-k with page transform.

use std::sync::Arc;

use lathe_codegen::contract::{Arg, Buffer, Case, ScalarValue, Scale, Segment, Verdict};
use lathe_codegen::dtype::Dtype;
use rayon::prelude::*;

use super::Noise;
use super::memory::{Failures, append, buffer, expect_unchanged};
use crate::contract::PAGE_SLOTS;
use crate::launch::topk_grid;
use crate::reference::topk::judge;

/// What a launch is like; [`TopkSpec::case`] makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct TopkSpec {
    /// What distinguishes it, for the case's name.
    pub label: String,
    /// Entries selected a row.
    pub k: usize,
    /// Query tokens a request.
    pub next_n: usize,
    /// Lengths, `[B, next_n]`, row by row.
    pub lens: Vec<i32>,
    /// Elements between the longest row's end and the next row; of many, only the first are mapped.
    pub logits_gap: u64,
    /// Entries between a row of the block table and the next, not mapped.
    pub table_gap: u64,
    /// What the logits are like.
    pub values: Values,
    /// Seed of everything random.
    pub seed: u64,
}

/// What the logits are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// Bell-shaped, both signs.
    Random,
    /// Three in four exactly 0, as ReLU leaves them.
    Plateau,
    /// All equal.
    Equal,
    /// Few different values, so that every digit of a radix select meets ties.
    Steps,
    /// Values that differ in their lowest bits only.
    LowBits,
    /// NaNs of both signs, infinities and both zeros among random ones.
    Special,
    /// Ascending, and descending in every other row.
    Sorted,
    /// NaN but for fewer than K values.
    MostlyNan,
    /// Floats that follow each other, ascending, and descending in every other row.
    Neighbours,
    /// One value, but every 32nd is larger: by turns the next float, and one of those after it.
    Peaks,
    /// Every bit pattern alike, so that all bins of a histogram fill.
    AnyBits,
}

impl TopkSpec {
    /// A plain launch: random logits, tight rows.
    pub fn new(k: usize, next_n: usize, lens: Vec<i32>) -> Self {
        TopkSpec { label: String::new(), k, next_n, lens, logits_gap: 0, table_gap: 0, values: Values::Random, seed: 1 }
    }

    /// The case: memory, arguments and judge.
    ///
    /// Arguments, in order: `logits` (row stride), `context_lens`, `block_table` (row stride), `indices`,
    /// `next_n: i32`.
    pub fn case(&self) -> Case {
        assert_eq!(self.lens.len() % self.next_n, 0, "lens is [B, next_n]");
        let max_len = self.lens.iter().copied().max().unwrap_or(0) as usize;
        let (stride, entries) = (max_len as u64 + self.logits_gap, max_len.div_ceil(PAGE_SLOTS));
        let rows: Arc<Vec<Vec<f32>>> = Arc::new((0..self.lens.len()).into_par_iter().map(|r| self.row(r)).collect());
        let table = self.table(entries);
        let before = Arc::new(vec![
            logits(&rows, stride, max_len as u64),
            buffer("context_lens", Dtype::I32, &self.lens, i32::to_le_bytes),
            self.block_table(&table, entries),
        ]);
        let pointer = |buffer, strides| Arg::Pointer { buffer, offset: 0, strides };
        let args = vec![
            pointer(0, vec![stride as i64]),
            pointer(1, vec![]),
            pointer(2, vec![(entries as u64 + self.table_gap) as i64]),
            pointer(3, vec![]),
            Arg::Scalar(ScalarValue::I32(self.next_n as i32)),
        ];
        let mut buffers = before.to_vec();
        buffers.push(Buffer::poisoned("indices", Dtype::I32, self.lens.len() * self.k * 4));
        let spec = self.clone();
        Case {
            name: format!("B={} next_n={} K={}: {}", self.lens.len() / self.next_n, self.next_n, self.k, self.label),
            grid: topk_grid(self.lens.len()),
            buffers,
            args,
            verify: Box::new(move |after| spec.verify(&before, after, &rows, &table, entries)),
        }
    }

    fn block_table(&self, table: &[i32], entries: usize) -> Buffer {
        let mut segments = Vec::new();
        for (request, row) in table.chunks(entries.max(1)).enumerate() {
            let bytes: Vec<u8> = row.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            append(&mut segments, request as u64 * (entries as u64 + self.table_gap) * 4, &bytes, true);
        }
        let len = segments.last().map_or(0, |s: &Segment| s.offset + s.bytes.len() as u64);
        Buffer { name: "block_table".into(), dtype: Dtype::I32, len, segments, racy: 0..0 }
    }

    fn row(&self, row: usize) -> Vec<f32> {
        let noise = Noise::new(self.seed).stream(row as u64);
        let len = self.lens[row] as usize;
        let value = |i: usize| {
            let (bell, bits) = (noise.bell(i as u64), noise.stream(1).bits(i as u64));
            match self.values {
                Values::Random => bell * 10.0,
                Values::Plateau => (bell - 0.7).max(0.0),
                Values::Equal => -1.5,
                Values::Steps => f32::from(bits as u8 & 7) - 3.0,
                Values::LowBits => f32::from_bits(0x4049_0000 | bits as u32 & 0x3ff),
                Values::Special => match bits % 16 {
                    0 => f32::from_bits(0x7fc0_0001),
                    1 => f32::from_bits(0xffff_ffff),
                    2 if bits & 0x300 == 0 => f32::INFINITY,
                    3 => f32::NEG_INFINITY,
                    4 => -0.0,
                    5 => 0.0,
                    _ => bell,
                },
                Values::Sorted if row.is_multiple_of(2) => i as f32 * 0.25 - 100.0,
                Values::Sorted => (len - i) as f32 * 0.25 - 100.0,
                Values::Neighbours if row.is_multiple_of(2) => f32::from_bits(0x4049_0000 + i as u32),
                Values::Neighbours => f32::from_bits(0x4049_0000 + (len - i) as u32),
                Values::Peaks if i.is_multiple_of(64) => f32::from_bits(0x4049_0001),
                Values::Peaks if i.is_multiple_of(32) => f32::from_bits(0x4049_0001 + i as u32 / 32),
                Values::Peaks => f32::from_bits(0x4049_0000),
                Values::AnyBits => f32::from_bits(bits as u32),
                Values::MostlyNan if i % 7 == 3 && i < 7 * self.k / 2 => bell,
                Values::MostlyNan => f32::from_bits(0x7f80_0001 | (bits as u32 & 0x807f_ffff)),
            }
        };
        (0..len).map(value).collect()
    }

    /// Every page once, in random order; entries past a row's pages are -1.
    fn table(&self, entries: usize) -> Vec<i32> {
        let requests = self.lens.len() / self.next_n;
        let mut ids: Vec<i32> = (1..=(requests * entries) as i32).collect();
        Noise::new(self.seed).stream(u64::MAX).shuffle(&mut ids);
        for request in 0..requests {
            let longest = self.lens[request * self.next_n..][..self.next_n].iter().max().copied().unwrap_or(0);
            ids[request * entries..][..entries][(longest as usize).div_ceil(PAGE_SLOTS)..].fill(-1);
        }
        ids
    }

    fn verify(&self, before: &[Buffer], after: &[Buffer], rows: &[Vec<f32>], table: &[i32], entries: usize) -> Verdict {
        let mut failures = Failures::default();
        for (before, after) in before.iter().zip(after) {
            expect_unchanged(before, after, &mut failures);
        }
        let wrong: Vec<String> = rows
            .par_iter()
            .enumerate()
            .filter_map(|(row, logits)| {
                let bytes = after[3].slice((row * self.k * 4) as u64, self.k * 4)?;
                let got: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b)).collect();
                let table = &table[row / self.next_n * entries..][..entries];
                let reason = judge(logits, table, self.k, &got).err()?;
                Some(format!("row {row} (length {}): {reason}", logits.len()))
            })
            .collect();
        for line in wrong {
            failures.push(|| line);
        }
        Verdict { worst_row_diff: 0.0, failures: failures.into_lines() }
    }
}

/// Each row's valid positions; what lies behind a row is mapped, at least at first, undefined, and larger than any logit.
fn logits(rows: &[Vec<f32>], stride: u64, max_len: u64) -> Buffer {
    let mut segments: Vec<Segment> = Vec::new();
    for (row, values) in rows.iter().enumerate() {
        let at = row as u64 * stride * 4;
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        append(&mut segments, at, &bytes, true);
        let gap = f32::MAX.to_le_bytes().repeat(stride.min(max_len + GUARD) as usize - values.len());
        append(&mut segments, at + bytes.len() as u64, &gap, false);
    }
    Buffer { name: "logits".into(), dtype: Dtype::F32, len: rows.len() as u64 * stride * 4, segments, racy: 0..0 }
}

/// Mapped elements behind the longest row.
const GUARD: u64 = 128;

/// All cases of a top-k kernel for this K.
pub fn topk_cases(k: usize, scale: Scale) -> Vec<Case> {
    topk_specs(k, scale).iter().map(TopkSpec::case).collect()
}

/// What [`topk_cases`] are made from.
pub fn topk_specs(k: usize, scale: Scale) -> Vec<TopkSpec> {
    let mut specs = Vec::new();
    let mut add = |label: &str, next_n: usize, lens: Vec<i32>, values: Values, logits_gap: u64| {
        let seed = specs.len() as u64 + 1;
        specs.push(TopkSpec {
            label: label.to_owned(),
            k,
            next_n,
            lens,
            logits_gap,
            table_gap: if logits_gap > u64::from(u16::MAX) { logits_gap } else { 0 },
            values,
            seed,
        });
    };
    let k = k as i32;
    add("no rows", 1, vec![], Values::Random, 0);
    add("all lengths zero", 1, vec![0; 32], Values::Random, 4);
    add("short rows keep their order", 1, vec![0, 1, 63, 64, 65, k - 1, k], Values::Random, 3);
    // Rows that begin at every multiple of 4 bytes.
    add("around K", 2, vec![k, k + 1, k - 1, k + 2], Values::Random, 1);
    add("rows of a request", 3, vec![k + 10, k + 11, k + 12, 5, 6, 7], Values::Random, 1);
    for (label, values) in [
        ("a plateau of zeros", Values::Plateau),
        ("all equal", Values::Equal),
        ("few different values", Values::Steps),
        ("values equal in their high bits", Values::LowBits),
        ("NaN, infinities, both zeros", Values::Special),
        ("sorted", Values::Sorted),
        ("NaN but for fewer than K", Values::MostlyNan),
    ] {
        add(label, 1, vec![2 * k + 37, 4 * k - 1], values, 5);
    }
    // The largest are where each thread's second, third and fourth vector begin, and its second turn.
    let long = vec![4_200, 9_002, 8_301, 8_194, 12_401, 2 * k + 78, 16_500, 2 * k + 74, 2 * k + 77];
    add("neighbouring floats", 1, long, Values::Neighbours, 2);
    // More share the K-th value than a kernel may put aside.
    add("a long plateau, larger ones on it", 1, vec![8_192, 8_193, 9_001, 12_288], Values::Peaks, 0);
    add("a long row of one value", 1, vec![9_000], Values::Equal, 0);
    add("a long row, NaN but for fewer than K", 1, vec![9_000], Values::MostlyNan, 0);
    add("any bits, the K-th in many bins", 1, (0..20).map(|row| k + 1 + 97 * row).collect(), Values::AnyBits, 0);
    // Past 2^31 elements, and in the block table past 2^31 entries.
    add("rows far apart", 1, vec![k + 1, 3, 2 * k, 64, k + 70], Values::Random, 1 << 29);
    match scale {
        Scale::Emulator => add("a long row", 1, vec![20_000], Values::Random, 0),
        Scale::Gpu => {
            add("the longest row", 1, vec![262_144, 100_000], Values::Plateau, 0);
            add("many rows", 2, (0..256).map(|row| 20_000 + row * 37).collect(), Values::Random, 64);
        }
    }
    specs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::topk::{by_value, page_transform};

    /// Selects by sorting and writes into the case's own memory.
    fn run(case: &mut Case, spec: &TopkSpec) {
        let entries = (spec.lens.iter().copied().max().unwrap_or(0) as usize).div_ceil(PAGE_SLOTS);
        let table = spec.table(entries);
        for row in 0..spec.lens.len() {
            let logits = spec.row(row);
            let table = &table[row / spec.next_n * entries..];
            let mut order: Vec<usize> = (0..logits.len()).collect();
            if logits.len() > spec.k {
                order.sort_by(|&a, &b| by_value(logits[b], logits[a]));
            }
            let selected = order.iter().map(|&i| page_transform(table, i)).chain(std::iter::repeat(-1));
            let bytes: Vec<u8> = selected.take(spec.k).flat_map(i32::to_le_bytes).collect();
            case.buffers[3].segments[0].bytes[row * spec.k * 4..][..bytes.len()].copy_from_slice(&bytes);
        }
    }

    #[test]
    fn sorting_passes_every_listed_case() {
        for spec in topk_specs(512, Scale::Emulator) {
            let mut case = spec.case();
            run(&mut case, &spec);
            assert_eq!((case.verify)(&case.buffers), Verdict::default(), "{}", case.name);
        }
    }

    #[test]
    fn an_untouched_output_and_a_changed_input_fail() {
        let spec = TopkSpec::new(512, 1, vec![600]);
        let mut case = spec.case();
        assert_eq!((case.verify)(&case.buffers).failures.len(), 1);
        run(&mut case, &spec);
        case.buffers[0].segments[0].bytes[0] ^= 1;
        assert!((case.verify)(&case.buffers).failures[0].starts_with("`logits` must not change"));
    }
}
