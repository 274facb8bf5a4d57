//! One launch of a paged MQA logits kernel: its data from a [`LogitsSpec`], its judge from the reference.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use lathe_codegen::contract::{Arg, Buffer, Case, POISON, ScalarValue, Segment, Verdict};
use lathe_codegen::dtype::Dtype;
use rayon::prelude::*;

use super::Noise;
use super::memory::{Failures, append, buffer, expect_unchanged};
use crate::contract::{HEAD_DIM, KeyFormat, PAGE_SLOTS, SCALES_OFFSET};
use crate::launch::{BF16_CTAS_PER_SM, balanced_grid, logits_grid};
use crate::reference::bounds::{C_MMA_BF16, C_MMA_FP8, Diff};
use crate::reference::convert::{f64_to_bf16, f64_to_e4m3};
use crate::reference::logits::{Key, Logit, QueryRow};

/// What a launch is like; [`LogitsSpec::case`] makes it.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsSpec {
    /// What distinguishes it, for the case's name.
    pub label: String,
    /// How keys and q are stored.
    pub format: KeyFormat,
    /// Heads: 16, 32 or 64.
    pub heads: usize,
    /// Query tokens a request.
    pub next_n: usize,
    /// Context lengths, `[B, next_n]`, row by row.
    pub lens: Vec<i32>,
    /// Longest length the launch is captured for; at least every length. Columns of the logits.
    pub max_len: u32,
    /// Longest length that the launch was planned for, if that is another: lengths change between planning and launch.
    pub planned_len: Option<u32>,
    /// Whether `[len, max_len)` must become -inf.
    pub clean: bool,
    /// SMs that the launch rule is told of: few SMs make each CTA walk many pages.
    pub sms: u32,
    /// How often the launch fills them, as the kernel is told; see [`Schedule`](crate::launch::Schedule).
    pub waves: i32,
    /// What block-table entries past a row's pages hold.
    pub tail: TableTail,
    /// Block-table entries beyond those `max_len` needs: a row's gap to the next, of which the first few are mapped.
    pub table_gap: u64,
    /// Elements between the end of a logits row and the next.
    pub logits_gap: u64,
    /// Bytes between pages, a multiple of 16.
    pub page_stride: u64,
    /// Which pages the rows get.
    pub pages: Pages,
    /// The constant of the bound per element: see [`bounds`](crate::reference::bounds).
    pub c: f64,
    /// What q, keys and weights hold.
    pub data: Data,
    /// Seed of everything random.
    pub seed: u64,
}

/// What block-table entries past a row's pages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableTail {
    /// -1.
    MinusOne,
    /// `i32::MAX`.
    IntMax,
    /// A plausible page id that is not mapped.
    Stale,
}

/// Which pages the rows get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Every request its own, in random order, ids from `first` up. Ids below are unmapped, but page 0.
    Shuffled {
        /// The smallest id.
        first: i32,
    },
    /// Drawn at random from `pool` pages, so that they repeat inside and across requests.
    Repeated {
        /// Number of pages.
        pool: usize,
    },
}

/// What q, keys and weights hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Bell-shaped, weights of both signs.
    Random,
    /// Bell-shaped, all weights negative.
    NegativeWeights,
    /// Every dot negative, so every logit exactly 0.
    NegativeDots,
    /// Every third slot all zeros.
    ZeroKeys,
    /// Each slot one non-zero element, at a place that depends on slot and page: a swapped slot, dim or head shows.
    OneHot,
    /// The largest magnitudes that do not overflow a logit: every e4m3 is +-448.
    Saturated,
    /// Slot 1 of every page holds a NaN.
    NanKey,
    /// Row 0 holds a NaN in its last head.
    NanQuery,
}

impl LogitsSpec {
    /// A plain launch: random data, tight strides, a page a CTA, table tail -1.
    pub fn new(format: KeyFormat, heads: usize, next_n: usize, lens: Vec<i32>) -> Self {
        let max_len = lens.iter().copied().max().unwrap_or(0).max(0) as u32;
        LogitsSpec {
            label: String::new(),
            format,
            heads,
            next_n,
            lens,
            max_len,
            planned_len: None,
            clean: false,
            sms: 188,
            waves: 1,
            tail: TableTail::MinusOne,
            table_gap: 0,
            logits_gap: 0,
            page_stride: format.page_bytes() as u64,
            pages: Pages::Shuffled { first: 1 },
            c: if format == KeyFormat::Bf16 { C_MMA_BF16 } else { C_MMA_FP8 },
            data: Data::Random,
            seed: 1,
        }
    }

    /// The case: memory, arguments and judge.
    ///
    /// Arguments, in order: `q`, `k_pages` (page stride), in fp8 `k_scales` (the scales of the first page, page
    /// stride), `weights`, `context_lens`, `block_table` (row stride), `logits` (row stride), `table_pages: i32`
    /// (entries of a row of the table that may be read, whatever they hold: those that `max_len` needs),
    /// `clean_to: i32` (fill `[len, clean_to)` with -inf; 0 leaves it alone).
    pub fn case(&self) -> Case {
        let problem = Arc::new(Problem::new(self.clone()));
        let before = Arc::new(problem.buffers());
        let element = self.format.element_bytes() as i64;
        let pointer = |buffer, strides| Arg::Pointer { buffer, offset: 0, strides };
        let mut args = vec![pointer(0, vec![]), pointer(1, vec![self.page_stride as i64 / element])];
        if self.format == KeyFormat::Fp8 {
            args.push(Arg::Pointer {
                buffer: 1,
                offset: SCALES_OFFSET as u64,
                strides: vec![self.page_stride as i64 / 4],
            });
        }
        args.extend([
            pointer(2, vec![]),
            pointer(3, vec![]),
            pointer(4, vec![problem.table_stride() as i64]),
            pointer(5, vec![problem.logits_stride() as i64]),
            Arg::Scalar(ScalarValue::I32(self.max_len.div_ceil(PAGE_SLOTS as u32) as i32)),
            Arg::Scalar(ScalarValue::I32(if self.clean { self.max_len as i32 } else { 0 })),
        ]);
        let buffers = before.to_vec();
        let expected = OnceLock::new();
        Case {
            name: self.name(),
            grid: self.grid(),
            buffers,
            args,
            verify: Box::new(move |after| {
                let expected = expected.get_or_init(|| problem.expected());
                problem.verify(&before, after, expected)
            }),
        }
    }

    fn grid(&self) -> [u32; 3] {
        let (batch, planned_len) = (self.lens.len() / self.next_n, self.planned_len.unwrap_or(self.max_len));
        match self.waves {
            1 => logits_grid(BF16_CTAS_PER_SM, batch, self.next_n, planned_len.into(), self.sms),
            waves => balanced_grid(BF16_CTAS_PER_SM * self.sms, waves, batch, self.next_n),
        }
    }

    /// `B=4 next_n=2: label`, with whatever of the seed and the launch is out of the ordinary.
    pub fn name(&self) -> String {
        let batch = self.lens.len() / self.next_n;
        format!("B={batch} next_n={} H={}: {}", self.next_n, self.heads, self.label)
    }
}

/// The data of a launch, on the host.
struct Problem {
    spec: LogitsSpec,
    q: Vec<u8>,
    weights: Vec<f32>,
    /// Row by row, `table_width` entries each.
    table: Vec<i32>,
    /// Mapped pages by id; slots past those that any row uses hold poison.
    pages: BTreeMap<i32, Page>,
}

struct Page {
    bytes: Vec<u8>,
    /// Slots that some row uses.
    used: usize,
}

/// Multiply-adds up to which every position is compared.
const COMPARE_ALL: u64 = 10_000_000_000;

/// Above that: rows compared closely, and random positions in each beside the edges of its pages.
const SAMPLED_ROWS: usize = 64;
const SAMPLED_POSITIONS: u64 = 4096;

/// Poisoned elements after each row of logits: nothing may write them.
const GUARD: u64 = 64;

impl Problem {
    fn new(spec: LogitsSpec) -> Self {
        assert_eq!(spec.lens.len() % spec.next_n, 0, "lens is [B, next_n]");
        assert!(spec.lens.iter().all(|&len| (0..=spec.max_len as i32).contains(&len)), "0 <= len <= max_len");
        let noise = Noise::new(spec.seed);
        let (table, used) = assign_pages(&spec, noise.stream(1));
        let pages = used
            .into_par_iter()
            .map(|(id, used)| {
                (id, Page { bytes: page_bytes(&spec, noise.stream(2).stream(id as u64), id, used), used })
            })
            .collect();
        Problem { q: query_bytes(&spec, noise.stream(3)), weights: weights(&spec, noise.stream(4)), table, pages, spec }
    }

    fn rows(&self) -> usize {
        self.spec.lens.len()
    }

    /// Entries from a row of the block table to the next.
    fn table_stride(&self) -> u64 {
        (self.spec.max_len as usize).div_ceil(PAGE_SLOTS) as u64 + self.spec.table_gap
    }

    /// Block-table entries of `row`'s request.
    fn table_row(&self, row: usize) -> &[i32] {
        let width = table_width(&self.spec);
        &self.table[row / self.spec.next_n * width..][..width]
    }

    fn logits_stride(&self) -> u64 {
        u64::from(self.spec.max_len) + self.spec.logits_gap
    }

    fn buffers(&self) -> Vec<Buffer> {
        vec![
            Buffer::from_bytes("q", self.spec.format.dtype(), self.q.clone()),
            self.k_pages(),
            buffer("weights", Dtype::F32, &self.weights, f32::to_le_bytes),
            buffer("context_lens", Dtype::I32, &self.spec.lens, i32::to_le_bytes),
            self.block_table(),
            self.logits(),
        ]
    }

    /// Each request's entries; where rows lie far apart, nothing is mapped between them.
    fn block_table(&self) -> Buffer {
        let mut segments = Vec::new();
        for (request, entries) in self.table.chunks(table_width(&self.spec).max(1)).enumerate() {
            let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            append(&mut segments, request as u64 * self.table_stride() * 4, &bytes, true);
        }
        let len = segments.last().map_or(0, |s: &Segment| s.offset + s.bytes.len() as u64);
        Buffer { name: "block_table".into(), dtype: Dtype::I32, len, segments, racy: 0..0 }
    }

    /// Only the pages that a row uses are mapped, and page 0, which padding points at.
    fn k_pages(&self) -> Buffer {
        let format = self.spec.format;
        let mut segments = Vec::new();
        for (&id, page) in &self.pages {
            let at = id as u64 * self.spec.page_stride;
            let keys = page.used * HEAD_DIM * format.element_bytes();
            let key_end = PAGE_SLOTS * HEAD_DIM * format.element_bytes();
            append(&mut segments, at, &page.bytes[..keys], true);
            append(&mut segments, at + keys as u64, &page.bytes[keys..key_end], false);
            // Whole 16-byte groups of scales, so that no vector access straddles what is defined.
            let scales = key_end + (page.bytes.len() - key_end).min((page.used * 4).next_multiple_of(16));
            append(&mut segments, at + key_end as u64, &page.bytes[key_end..scales], true);
            append(&mut segments, at + scales as u64, &page.bytes[scales..], false);
        }
        let last = self.pages.keys().next_back().copied().unwrap_or(0) as u64;
        let len = last * self.spec.page_stride + format.page_bytes() as u64;
        Buffer { name: "k_pages".into(), dtype: format.pool_dtype(), len, segments, racy: 0..0 }
    }

    /// Poison: each row with a guard behind it, and nothing mapped between far-apart rows.
    fn logits(&self) -> Buffer {
        let stride = self.logits_stride() * 4;
        let row_bytes = (u64::from(self.spec.max_len) + GUARD) * 4;
        let mut segments: Vec<Segment> = Vec::new();
        for row in 0..self.rows() as u64 {
            let from = segments.last().map_or(0, |s| s.offset + s.bytes.len() as u64).max(row * stride);
            let end = row * stride + row_bytes;
            append(&mut segments, from, &vec![POISON; end.saturating_sub(from) as usize], false);
        }
        let len = segments.last().map_or(0, |s| s.offset + s.bytes.len() as u64);
        Buffer { name: "logits".into(), dtype: Dtype::F32, len, segments, racy: 0..0 }
    }

    /// Where a row's reference is compared: all positions, or a sample of a large problem.
    fn positions(&self, row: usize) -> Vec<usize> {
        let len = self.spec.lens[row] as usize;
        let work: u64 = self.spec.lens.iter().map(|&len| len as u64).sum::<u64>() * (self.spec.heads * HEAD_DIM) as u64;
        if work <= COMPARE_ALL {
            return (0..len).collect();
        }
        let first_and_last = (0..len.min(2)).chain(len.saturating_sub(2)..len);
        let step = self.rows().div_ceil(SAMPLED_ROWS);
        let mut positions: Vec<usize> = if row.is_multiple_of(step) || row + 1 == self.rows() {
            let noise = Noise::new(self.spec.seed).stream(5).stream(row as u64);
            let random = (0..SAMPLED_POSITIONS).map(|i| noise.below(i, len.max(1) as u64) as usize);
            let edges = (0..len).filter(|p| matches!(p % PAGE_SLOTS, 0 | 63));
            first_and_last.chain(edges).chain(random.filter(|&p| p < len)).collect()
        } else {
            first_and_last.collect()
        };
        positions.sort_unstable();
        positions.dedup();
        positions
    }

    fn expected(&self) -> Vec<Vec<(usize, Logit)>> {
        let q_bytes = self.spec.heads * HEAD_DIM * self.spec.format.element_bytes();
        (0..self.rows())
            .into_par_iter()
            .map(|row| {
                let weights = &self.weights[row * self.spec.heads..][..self.spec.heads];
                let query = QueryRow::new(self.spec.format, &self.q[row * q_bytes..][..q_bytes], weights);
                let table = self.table_row(row);
                let logit = |p: usize| {
                    let page = &self.pages[&table[p / PAGE_SLOTS]].bytes;
                    query.logit(&Key::of_page(self.spec.format, page, p % PAGE_SLOTS))
                };
                self.positions(row).into_iter().map(|p| (p, logit(p))).collect()
            })
            .collect()
    }

    fn verify(&self, before: &[Buffer], after: &[Buffer], expected: &[Vec<(usize, Logit)>]) -> Verdict {
        let mut failures = Failures::default();
        for (before, after) in before.iter().zip(after).take(5) {
            expect_unchanged(before, after, &mut failures);
        }
        let rows: Vec<(Diff, Failures)> =
            (0..self.rows()).into_par_iter().map(|row| self.verify_row(row, &after[5], &expected[row])).collect();
        let (mut whole, mut worst_row_diff) = (Diff::default(), 0.0f64);
        for (diff, row_failures) in rows {
            whole.merge(diff);
            worst_row_diff = worst_row_diff.max(diff.value());
            failures.extend(row_failures);
        }
        let (whole, limit) = (whole.value(), whole.limit());
        if whole.is_nan() || whole > limit {
            failures.push(|| format!("calc_diff over the whole output is {whole:.3e}, at most {limit:e}"));
        }
        Verdict { worst_row_diff, failures: failures.into_lines() }
    }

    fn verify_row(&self, row: usize, logits: &Buffer, expected: &[(usize, Logit)]) -> (Diff, Failures) {
        let (mut diff, mut failures) = (Diff::default(), Failures::default());
        let columns = self.spec.max_len as usize;
        let Some(bytes) = logits.slice(row as u64 * self.logits_stride() * 4, columns * 4) else {
            failures.push(|| format!("row {row}: `logits` came back without it"));
            return (diff, failures);
        };
        let word = |p: usize| u32::from_le_bytes(bytes[p * 4..p * 4 + 4].try_into().expect("4 bytes"));
        let len = self.spec.lens[row] as usize;
        let place = |p: usize| {
            let page = self.table_row(row).get(p / PAGE_SLOTS);
            let page = page.map_or("no page".to_owned(), |page| format!("page {page}"));
            format!("row {row} (length {len}) position {p} ({page}, slot {})", p % PAGE_SLOTS)
        };

        for &(p, logit) in expected {
            let got = f64::from(f32::from_bits(word(p)));
            let bound = self.spec.c * logit.magnitude;
            let tainted = logit.tainted && word(p) != UNWRITTEN;
            if tainted && (got.is_nan() || !logit.value.is_finite() || !logit.magnitude.is_finite()) {
                continue;
            }
            if logit.value.is_finite() && logit.magnitude.is_finite() {
                diff.add(got, logit.value);
                diff.allow(bound);
            }
            // Written so that a NaN fails.
            if (got - logit.value).abs() <= bound {
                continue;
            }
            failures.push(|| {
                let off = (got - logit.value).abs();
                format!("{}: got {got:e}, expected {:e}, off by {off:.2e}, at most {bound:.2e}", place(p), logit.value)
            });
        }
        // A sampled row is still written everywhere.
        for p in (0..len).filter(|&p| word(p) == UNWRITTEN) {
            failures.push(|| format!("{}: never written", place(p)));
        }
        for p in len..columns {
            let wanted = if self.spec.clean { f32::NEG_INFINITY.to_bits() } else { UNWRITTEN };
            if word(p) != wanted {
                let rule = if self.spec.clean { "must be -inf" } else { "must not be written" };
                failures.push(|| format!("{}: past the length, {rule}, is {:e}", place(p), f32::from_bits(word(p))));
            }
        }
        let row_diff = diff.value();
        let limit = diff.limit();
        if row_diff.is_nan() || row_diff > limit {
            failures.push(|| format!("row {row} (length {len}): calc_diff is {row_diff:.3e}, at most {limit:e}"));
        }
        self.verify_gap(row, logits, &mut failures);
        (diff, failures)
    }

    /// What lies between a row and the next, or behind the last row, still holds poison.
    fn verify_gap(&self, row: usize, logits: &Buffer, failures: &mut Failures) {
        let start = row as u64 * self.logits_stride() * 4;
        let Some(segment) = logits.segments.iter().rev().find(|s| s.offset <= start) else { return };
        let gap_start = start + u64::from(self.spec.max_len) * 4;
        let mapped_end = segment.offset + segment.bytes.len() as u64;
        let gap_end =
            if row + 1 == self.rows() { mapped_end } else { mapped_end.min(start + self.logits_stride() * 4) };
        let gap = &segment.bytes[(gap_start - segment.offset) as usize..(gap_end - segment.offset) as usize];
        if let Some(i) = gap.iter().position(|&byte| byte != POISON) {
            let at = gap_start + i as u64;
            failures.push(|| format!("`logits` byte {at} lies behind row {row} and must not be written"));
        }
    }
}

/// Poison, as a logit's bits.
const UNWRITTEN: u32 = u32::from_le_bytes([POISON; 4]);

/// Mapped block-table entries of a request.
fn table_width(spec: &LogitsSpec) -> usize {
    (spec.max_len as usize).div_ceil(PAGE_SLOTS) + spec.table_gap.min(64) as usize
}

/// The block table, and for each mapped page how many of its slots are used.
fn assign_pages(spec: &LogitsSpec, noise: Noise) -> (Vec<i32>, BTreeMap<i32, usize>) {
    let width = table_width(spec);
    let requests = spec.lens.len() / spec.next_n;
    let longest = |request: usize| {
        let lens = &spec.lens[request * spec.next_n..][..spec.next_n];
        lens.iter().max().map_or(0, |&len| len as usize)
    };
    let needed: usize = (0..requests).map(|request| longest(request).div_ceil(PAGE_SLOTS)).sum();
    let (first, ids): (i32, Vec<i32>) = match spec.pages {
        Pages::Shuffled { first } => {
            let mut ids: Vec<i32> = (first..first + needed as i32).collect();
            noise.shuffle(&mut ids);
            (first, ids)
        }
        Pages::Repeated { pool } => (1, (0..needed as u64).map(|i| 1 + noise.below(i, pool as u64) as i32).collect()),
    };
    let tail = match spec.tail {
        TableTail::MinusOne => -1,
        TableTail::IntMax => i32::MAX,
        TableTail::Stale => first + needed as i32 + 3,
    };
    let mut table = vec![tail; requests * width];
    let mut used = BTreeMap::from([(0, 0)]);
    let mut next = ids.into_iter();
    for request in 0..requests {
        let longest = longest(request);
        for entry in 0..longest.div_ceil(PAGE_SLOTS) {
            let id = next.next().expect("as many ids as pages needed");
            table[request * width + entry] = id;
            let slots = used.entry(id).or_insert(0);
            *slots = (*slots).max((longest - entry * PAGE_SLOTS).min(PAGE_SLOTS));
        }
    }
    (table, used)
}

fn push_element(format: KeyFormat, bytes: &mut Vec<u8>, x: f32) {
    match format {
        KeyFormat::Bf16 => bytes.extend_from_slice(&f64_to_bf16(x.into()).to_le_bytes()),
        KeyFormat::Fp8 => bytes.push(f64_to_e4m3(x.into())),
    }
}

/// Magnitude of random elements: e4m3 data fills its range, as quantised keys do.
fn spread(format: KeyFormat) -> f32 {
    match format {
        KeyFormat::Bf16 => 1.0,
        KeyFormat::Fp8 => 100.0,
    }
}

fn largest(format: KeyFormat) -> f32 {
    match format {
        KeyFormat::Bf16 => 1e15,
        KeyFormat::Fp8 => 448.0,
    }
}

fn page_bytes(spec: &LogitsSpec, noise: Noise, id: i32, used: usize) -> Vec<u8> {
    let format = spec.format;
    let mut bytes = Vec::with_capacity(format.page_bytes());
    for slot in 0..used {
        for d in 0..HEAD_DIM {
            let at = slot * HEAD_DIM + d;
            let random = noise.bell(at as u64) * spread(format);
            let hot = (slot * 37 + d + id as usize * 11).is_multiple_of(HEAD_DIM);
            push_element(
                format,
                &mut bytes,
                match spec.data {
                    Data::NegativeDots => -random.abs(),
                    Data::ZeroKeys if slot % 3 == 0 => 0.0,
                    Data::OneHot if !hot => 0.0,
                    Data::Saturated => largest(format).copysign(random),
                    Data::NanKey if slot == 1 && d == 77 => f32::NAN,
                    _ => random,
                },
            );
        }
    }
    bytes.resize(SCALES_OFFSET * format.element_bytes(), POISON);
    if format == KeyFormat::Fp8 {
        for slot in 0..used {
            let scale = noise.stream(1).bell(slot as u64).abs() * 0.01 + 0.001;
            bytes.extend_from_slice(&scale.to_le_bytes());
        }
        bytes.resize(format.page_bytes(), POISON);
    }
    bytes
}

fn query_bytes(spec: &LogitsSpec, noise: Noise) -> Vec<u8> {
    let format = spec.format;
    let row_elements = spec.heads * HEAD_DIM;
    let mut bytes = Vec::with_capacity(spec.lens.len() * row_elements * format.element_bytes());
    for (row, &len) in spec.lens.iter().enumerate() {
        // A row of length 0 is padding: its q is never trusted.
        if len == 0 {
            bytes.resize(bytes.len() + row_elements * format.element_bytes(), POISON);
            continue;
        }
        for at in 0..row_elements {
            let random =
                noise.bell((row * row_elements + at) as u64) * if format == KeyFormat::Fp8 { 4.0 } else { 1.0 };
            push_element(
                format,
                &mut bytes,
                match spec.data {
                    Data::NegativeDots => random.abs(),
                    Data::Saturated => largest(format).copysign(random),
                    Data::NanQuery if row == 0 && at == row_elements - 5 => f32::NAN,
                    _ => random,
                },
            );
        }
    }
    bytes
}

fn weights(spec: &LogitsSpec, noise: Noise) -> Vec<f32> {
    let weight = |i: u64| {
        let random = noise.bell(i) * 0.125;
        if spec.data == Data::NegativeWeights { -random.abs() } else { random }
    };
    (0..(spec.lens.len() * spec.heads) as u64).map(weight).collect()
}

#[cfg(test)]
#[path = "logits_tests.rs"]
mod tests;
