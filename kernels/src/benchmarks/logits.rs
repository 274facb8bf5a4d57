//! Timing the paged MQA logits kernels.
//!
//! The pool repeats a block of random pages, so that gigabytes cost no more than megabytes to make; every page of the
//! pool is still a page of its own in memory. Rows follow a shuffled block table whose tail is `i32::MAX`.

use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};

use lathe_codegen::benchmark::{Axis, Configuration, Content, Memory, Role, Size, SizeError, Work, Workload};
use lathe_codegen::contract::{Arg, POISON, ScalarValue, Verdict};
use lathe_codegen::dtype::Dtype;
use lathe_codegen::ir::Kernel;
use lathe_codegen::trace::TraceErrors;
use rayon::prelude::*;

use super::{one_of, within};
use crate::cases::Noise;
use crate::contract::logits::MAX_ROWS;
use crate::contract::rules::lens_ratio_1;
use crate::contract::{HEAD_DIM, HEADS, KeyFormat, MAX_NEXT_N, PAGE_SLOTS, SCALES_OFFSET};
use crate::launch::{MAX_WALK, Schedule, balanced_grid, logits_grid_of_walk};
use crate::reference::bounds::{C_MMA_BF16, C_WGMMA_FP8, Diff, MAX_DIFF};
use crate::reference::convert::{f64_to_bf16, f64_to_e4m3};
use crate::reference::logits::{Key, Logit, QueryRow};

/// What a size of the logits kernels is made of.
pub const AXES: &[Axis] = &[Axis::Batch, Axis::Keys, Axis::NextN, Axis::Heads];

/// Batches and lengths of decode steps, from launch-bound to bandwidth-bound.
pub fn sizes() -> Vec<Size> {
    [
        (1, 1_024),
        (1, 4_096),
        (1, 16_384),
        (1, 65_536),
        (4, 16_384),
        (4, 65_536),
        (16, 4_096),
        (16, 16_384),
        (64, 4_096),
        (64, 16_384),
        (64, 65_536),
        (128, 65_536),
    ]
    .map(|(batch, keys)| Size::new(batch, keys))
    .into()
}

/// Warps that make the logits of a page together.
const WARPS_A_PAGE: u64 = 4;

/// Few CTAs leave SMs idle, and very many cost time to start: a search skips them, but for a page a CTA.
const USEFUL_CTAS: RangeInclusive<u64> = 200..=12_000;

/// The kernel as the launch rule has it, then with each of `schedules` and the grids of all walks, or of its waves. The device
/// has room for `wave` CTAs.
pub fn configurations(
    size: &Size,
    wave: u32,
    rule: (Schedule, [u32; 3]),
    schedules: &[Schedule],
    kernel: impl Fn(Schedule) -> Result<Kernel, TraceErrors>,
) -> Vec<Configuration> {
    let (batch, next_n, max_len) = (size.batch as usize, size.next_n as usize, u64::from(size.max_len()));
    let pages = max_len.div_ceil(PAGE_SLOTS as u64);
    let many_waves = schedules.iter().any(|schedule| schedule.waves > 1);
    let configuration = |(schedule, grid): (Schedule, [u32; 3])| {
        let pages_per_cta = pages.div_ceil(u64::from(grid[1].max(1))) as u32;
        let mut parameters = vec![("pages_per_cta", pages_per_cta), ("stages", schedule.stages.unsigned_abs())];
        parameters.extend(many_waves.then_some(("waves", schedule.waves.unsigned_abs())));
        Configuration { parameters, kernel: kernel(schedule), grid }
    };
    let of_schedule = |schedule: &Schedule| {
        let schedule = *schedule;
        if schedule.waves > 1 {
            return vec![(schedule, balanced_grid(wave, schedule.waves, batch, next_n))];
        }
        let walks = [1, 2, 3, 4, 6, 8, 11, 16, 24, MAX_WALK].into_iter().filter(move |walk| *walk <= pages);
        let grids = walks.map(move |walk| (walk, logits_grid_of_walk(batch, next_n, max_len, walk)));
        let useful =
            grids.filter(move |(walk, [x, splits, z])| *walk == 1 || USEFUL_CTAS.contains(&u64::from(x * splits * z)));
        useful.map(move |(_, grid)| (schedule, grid)).collect()
    };
    let others = schedules.iter().flat_map(of_schedule).filter(|other| *other != rule);
    std::iter::once(rule).chain(others).map(configuration).collect()
}

/// Refuses sizes that no kernel computes.
fn accept(size: &Size) -> Result<(), SizeError> {
    one_of("heads", size.heads.into(), &HEADS)?;
    within("next_n", size.next_n.into(), 1, MAX_NEXT_N as u64)?;
    within("batch", size.batch.into(), 1, MAX_ROWS as u64 / u64::from(size.next_n))?;
    within("keys", size.max_len().into(), 1, MAX_KEYS)?;
    within("batch * keys", u64::from(size.batch) * u64::from(size.max_len()), 1, MAX_POSITIONS)
}

/// Each input read once, each logit written once, every key multiplied with every query of its request.
pub fn work(format: KeyFormat, size: &Size) -> Result<Work, SizeError> {
    accept(size)?;
    let pages = |len: u64| len.div_ceil(PAGE_SLOTS as u64);
    let (mut keys, mut entries, mut logits, mut turns) = (0, 0, 0, 0);
    for len in size.lengths() {
        keys += u64::from(len);
        entries += pages(len.into());
        for row in lens_ratio_1(len as i32, size.next_n as i32) {
            logits += row as u64;
            turns += pages(row as u64) * WARPS_A_PAGE;
        }
    }
    let rows = u64::from(size.batch) * u64::from(size.next_n);
    let heads = u64::from(size.heads);
    let key_bytes = (HEAD_DIM * format.element_bytes()) as u64;
    let scale_bytes = if format == KeyFormat::Fp8 { 4 } else { 0 };
    Ok(Work {
        read: keys * (key_bytes + scale_bytes) + rows * (heads * (key_bytes + 4) + 4) + entries * 4,
        written: logits * 4,
        streamed: keys * key_bytes,
        flops: 2 * logits * heads * HEAD_DIM as u64,
        multiplies: Some(format.dtype()),
        chain: 2,
        turns,
    })
}

/// Memory, arguments and judge; the arguments are those of [`LogitsSpec::case`](crate::cases::logits::LogitsSpec::case).
pub fn workload(format: KeyFormat, size: &Size) -> Result<Workload, SizeError> {
    accept(size)?;
    let problem = Arc::new(Problem::new(format, *size));
    let args = problem.args();
    let expected = OnceLock::new();
    Ok(Workload {
        memory: problem.memory(),
        args,
        judge: Box::new(move |after| problem.judge(&after[0], expected.get_or_init(|| problem.expected()))),
    })
}

/// Longest row: 2^24 keys, far beyond any model.
const MAX_KEYS: u64 = 1 << 24;

/// Most positions of a batch: their block table fills half a gigabyte, and their keys more than any device has.
const MAX_POSITIONS: u64 = 1 << 33;

/// Pages of the block that a pool repeats.
const BLOCK_PAGES: usize = 4_096;

/// Logits compared with the reference at a size, at least one of each page of each row.
const COMPARED: usize = 1 << 17;

/// Rows of logits start this many elements apart, or a multiple: a sector of memory is never shared by two rows.
const ROW_ALIGNMENT: usize = 256;

/// Poison, as a logit's bits.
const UNWRITTEN: u32 = u32::from_le_bytes([POISON; 4]);

/// The data of a size, on the host.
pub(super) struct Problem {
    pub(super) format: KeyFormat,
    pub(super) size: Size,
    /// Length of each row, `[B, next_n]`.
    pub(super) lens: Vec<i32>,
    q: Vec<u8>,
    weights: Vec<f32>,
    pub(super) table: Vec<i32>,
    pub(super) table_stride: usize,
    pub(super) logits_stride: usize,
    pages: usize,
    block: Arc<[u8]>,
    /// What a kernel before this one stores as the last key of each row, `[B, next_n]`: pages with the key in slot 0.
    pub(super) stored: Vec<Vec<u8>>,
}

impl Problem {
    pub(super) fn new(format: KeyFormat, size: Size) -> Problem {
        let noise = Noise::new(0x6265_6e63);
        let lengths = size.lengths();
        let lens: Vec<i32> = lengths.iter().flat_map(|&len| lens_ratio_1(len as i32, size.next_n as i32)).collect();
        let table_stride = (size.max_len() as usize).div_ceil(PAGE_SLOTS);
        let row_pages: Vec<usize> = lengths.iter().map(|&len| (len as usize).div_ceil(PAGE_SLOTS)).collect();
        let pages: usize = row_pages.iter().sum();
        let mut ids: Vec<i32> = (1..=pages as i32).collect();
        noise.stream(1).shuffle(&mut ids);
        let mut table = vec![i32::MAX; lengths.len() * table_stride];
        let mut rest = &ids[..];
        for (request, &pages) in row_pages.iter().enumerate() {
            let (own, others) = rest.split_at(pages);
            table[request * table_stride..][..pages].copy_from_slice(own);
            rest = others;
        }
        let elements = lens.len() * size.heads as usize * HEAD_DIM;
        let spread = if format == KeyFormat::Fp8 { 4.0 } else { 1.0 };
        let q = (0..elements as u64).into_par_iter().map(|i| noise.stream(2).bell(i) * spread);
        let weights = (0..(lens.len() * size.heads as usize) as u64).map(|i| noise.stream(3).bell(i) * 0.125);
        Problem {
            q: encode(format, &q.collect::<Vec<f32>>()),
            weights: weights.collect(),
            lens,
            table,
            table_stride,
            logits_stride: (size.max_len() as usize).next_multiple_of(ROW_ALIGNMENT),
            pages: pages + 1,
            block: block(format),
            stored: Vec::new(),
            format,
            size,
        }
    }

    /// The arguments of the logits kernels over [`memory`](Self::memory).
    pub(super) fn args(&self) -> Vec<Arg> {
        let element = self.format.element_bytes() as i64;
        let page_bytes = self.format.page_bytes() as i64;
        let pointer = |buffer, strides| Arg::Pointer { buffer, offset: 0, strides };
        let mut args = vec![pointer(0, vec![]), pointer(1, vec![page_bytes / element])];
        if self.format == KeyFormat::Fp8 {
            args.push(Arg::Pointer { buffer: 1, offset: SCALES_OFFSET as u64, strides: vec![page_bytes / 4] });
        }
        args.extend([
            pointer(2, vec![]),
            pointer(3, vec![]),
            pointer(4, vec![self.table_stride as i64]),
            pointer(5, vec![self.logits_stride as i64]),
            Arg::Scalar(ScalarValue::I32(self.size.max_len().div_ceil(PAGE_SLOTS as u32) as i32)),
            Arg::Scalar(ScalarValue::I32(0)),
        ]);
        args
    }

    pub(super) fn memory(&self) -> Vec<Memory> {
        let memory = |name: &str, dtype, len: usize, content, role| Memory {
            name: name.to_owned(),
            dtype,
            len: len as u64,
            content,
            role,
        };
        let bytes =
            |name, dtype, bytes: Vec<u8>| memory(name, dtype, bytes.len(), Content::Bytes(bytes.into()), Role::Input);
        let pool = self.pages * self.format.page_bytes();
        vec![
            bytes("q", self.format.dtype(), self.q.clone()),
            memory("k_pages", self.format.pool_dtype(), pool, Content::Repeated(self.block.clone()), Role::Input),
            bytes("weights", Dtype::F32, self.weights.iter().flat_map(|w| w.to_le_bytes()).collect()),
            bytes("context_lens", Dtype::I32, self.lens.iter().flat_map(|len| len.to_le_bytes()).collect()),
            bytes("block_table", Dtype::I32, self.table.iter().flat_map(|page| page.to_le_bytes()).collect()),
            memory("logits", Dtype::F32, self.lens.len() * self.logits_stride * 4, Content::Poison, Role::Output),
        ]
    }

    fn page(&self, id: i32) -> &[u8] {
        let bytes = self.format.page_bytes();
        &self.block[id as usize % BLOCK_PAGES * bytes..][..bytes]
    }

    /// The key that was stored just now at a position of a row, in slot 0 of a page.
    fn stored_key(&self, row: usize, position: usize) -> Option<&[u8]> {
        if self.stored.is_empty() {
            return None;
        }
        let next_n = self.size.next_n as usize;
        let of_request = row / next_n * next_n..(row / next_n + 1) * next_n;
        of_request.into_iter().find(|&row| self.lens[row] as usize == position + 1).map(|row| &self.stored[row][..])
    }

    /// The positions of a row that are compared: as many of each page as the budget allows, at random, and the last.
    fn positions(&self, row: usize) -> Vec<usize> {
        let pages: usize = self.lens.iter().map(|&len| (len as usize).div_ceil(PAGE_SLOTS)).sum();
        let each = (COMPARED / pages.max(1)).clamp(1, PAGE_SLOTS);
        let noise = Noise::new(5).stream(row as u64);
        let len = self.lens[row] as usize;
        (0..len.div_ceil(PAGE_SLOTS))
            .flat_map(|page| {
                let first = noise.below(page as u64, PAGE_SLOTS as u64) as usize;
                (0..each).map(move |i| page * PAGE_SLOTS + (first + i) % PAGE_SLOTS)
            })
            .filter(|&position| position + 1 < len)
            .chain(len.checked_sub(1))
            .collect()
    }

    pub(super) fn expected(&self) -> Vec<Vec<(usize, Logit)>> {
        let heads = self.size.heads as usize;
        let q_bytes = heads * HEAD_DIM * self.format.element_bytes();
        let row = |row: usize| {
            let query =
                QueryRow::new(self.format, &self.q[row * q_bytes..][..q_bytes], &self.weights[row * heads..][..heads]);
            let table = &self.table[row / self.size.next_n as usize * self.table_stride..];
            let logit = |&p: &usize| {
                let key = match self.stored_key(row, p) {
                    Some(page) => Key::of_page(self.format, page, 0),
                    None => Key::of_page(self.format, self.page(table[p / PAGE_SLOTS]), p % PAGE_SLOTS),
                };
                (p, query.logit(&key))
            };
            self.positions(row).par_iter().map(logit).collect()
        };
        (0..self.lens.len()).into_par_iter().map(row).collect()
    }

    pub(super) fn judge(&self, logits: &[u8], expected: &[Vec<(usize, Logit)>]) -> Verdict {
        let rows: Vec<(f64, Option<String>)> = logits
            .par_chunks(self.logits_stride * 4)
            .zip(expected)
            .enumerate()
            .map(|(row, (logits, expected))| self.judge_row(row, logits, expected))
            .collect();
        let worst_row_diff = rows.iter().map(|(diff, _)| *diff).fold(0.0, f64::max);
        let failures = rows.into_iter().filter_map(|(_, failure)| failure).take(8).collect();
        Verdict { worst_row_diff, failures }
    }

    /// The row's difference, and its first mistake.
    fn judge_row(&self, row: usize, logits: &[u8], expected: &[(usize, Logit)]) -> (f64, Option<String>) {
        let words: Vec<u32> = logits.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let len = self.lens[row] as usize;
        if let Some(p) = words[..len].iter().position(|&word| word == UNWRITTEN) {
            return (f64::NAN, Some(format!("row {row} (length {len}) position {p}: never written")));
        }
        if let Some(p) = words[len..].iter().position(|&word| word != UNWRITTEN) {
            let p = len + p;
            return (f64::NAN, Some(format!("row {row} (length {len}) position {p}: past the length, and written")));
        }
        // The kernels' own checks know which arithmetic each one has; here the widest bound will do.
        let c = if self.format == KeyFormat::Bf16 { C_MMA_BF16 } else { C_WGMMA_FP8 };
        let mut diff = Diff::default();
        let mut failure = None;
        for &(p, logit) in expected {
            let got = f64::from(f32::from_bits(words[p]));
            diff.add(got, logit.value);
            let bound = c * logit.magnitude;
            let off = (got - logit.value).abs();
            if (off.is_nan() || off > bound) && failure.is_none() {
                let wanted = logit.value;
                failure = Some(format!("row {row} position {p}: got {got:e}, expected {wanted:e} within {bound:.1e}"));
            }
        }
        let diff = diff.value();
        if failure.is_none() && (diff.is_nan() || diff > MAX_DIFF) {
            failure = Some(format!("row {row} (length {len}): calc_diff is {diff:.1e}, at most {MAX_DIFF:e}"));
        }
        (diff, failure)
    }
}

fn encode(format: KeyFormat, values: &[f32]) -> Vec<u8> {
    match format {
        KeyFormat::Bf16 => values.par_iter().flat_map_iter(|&x| f64_to_bf16(x.into()).to_le_bytes()).collect(),
        KeyFormat::Fp8 => values.par_iter().map(|&x| f64_to_e4m3(x.into())).collect(),
    }
}

/// Random pages, made once for each format.
fn block(format: KeyFormat) -> Arc<[u8]> {
    static BLOCKS: [OnceLock<Arc<[u8]>>; 2] = [OnceLock::new(), OnceLock::new()];
    BLOCKS[format as usize]
        .get_or_init(|| {
            (0..BLOCK_PAGES as u64).into_par_iter().flat_map_iter(|id| page(format, id)).collect::<Vec<u8>>().into()
        })
        .clone()
}

fn page(format: KeyFormat, id: u64) -> Vec<u8> {
    let noise = Noise::new(4).stream(id);
    // e4m3 data fills its range, as quantised keys do.
    let spread = if format == KeyFormat::Fp8 { 100.0 } else { 1.0 };
    let values = (0..(PAGE_SLOTS * HEAD_DIM) as u64).map(|i| noise.bell(i) * spread);
    match format {
        KeyFormat::Bf16 => values.flat_map(|x| f64_to_bf16(x.into()).to_le_bytes()).collect(),
        KeyFormat::Fp8 => {
            let scale = |slot: u64| noise.stream(1).bell(slot).abs() * 0.01 + 0.001;
            let scales = (0..PAGE_SLOTS as u64).flat_map(|slot| scale(slot).to_le_bytes());
            values.map(|x| f64_to_e4m3(x.into())).chain(scales).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(format: KeyFormat) -> (Problem, Workload) {
        let size = Size { next_n: 2, heads: 16, long_row: Some(300), captured_for: Some(400), ..Size::new(3, 100) };
        (Problem::new(format, size), workload(format, &size).unwrap())
    }

    /// Logits as the reference computes them, over poison.
    fn right(problem: &Problem) -> Vec<u8> {
        let mut out = vec![POISON; problem.lens.len() * problem.logits_stride * 4];
        for (row, logits) in problem.expected().into_iter().enumerate() {
            assert_eq!(logits.len(), problem.lens[row] as usize, "a small size is compared whole");
            for (p, logit) in logits {
                let at = (row * problem.logits_stride + p) * 4;
                out[at..at + 4].copy_from_slice(&(logit.value as f32).to_le_bytes());
            }
        }
        out
    }

    #[test]
    fn the_reference_passes_its_own_judge() {
        for format in [KeyFormat::Bf16, KeyFormat::Fp8] {
            let (problem, workload) = small(format);
            assert_eq!(problem.lens, [299, 300, 99, 100, 99, 100]);
            assert_eq!((workload.judge)(&[right(&problem)]).failures, Vec::<String>::new());
        }
    }

    #[test]
    fn a_logit_left_out_swapped_or_written_too_far_is_found() {
        let (problem, workload) = small(KeyFormat::Bf16);
        let spoiled = |change: &dyn Fn(&mut [u8])| {
            let mut out = right(&problem);
            change(&mut out);
            (workload.judge)(&[out]).failures.join("; ")
        };
        let row_1 = problem.logits_stride * 4;
        assert!(
            spoiled(&|out| out[row_1 + 40..row_1 + 44].fill(POISON)).contains("row 1 (length 300) position 10: never")
        );
        assert!(
            spoiled(&|out| out[row_1 + 1200..row_1 + 1204].fill(0)).contains("row 1 (length 300) position 300: past")
        );
        assert!(spoiled(&|out| out.copy_within(row_1 + 4..row_1 + 8, row_1)).contains("row 1 position 0: got"));
        assert!(spoiled(&|out| out[row_1..row_1 + 4].copy_from_slice(&f32::NAN.to_le_bytes())).contains("got NaN"));
    }

    #[test]
    fn a_large_size_is_compared_on_every_page_of_every_row() {
        let problem = Problem::new(KeyFormat::Fp8, Size { heads: 16, ..Size::new(20, 65_536) });
        for row in [0, 19] {
            let mut pages: Vec<usize> = problem.positions(row).iter().map(|p| p / PAGE_SLOTS).collect();
            pages.dedup();
            assert_eq!(pages, (0..1024).collect::<Vec<_>>());
        }
    }

    #[test]
    fn the_work_is_each_input_read_once_and_each_logit_written_once() {
        let work = work(KeyFormat::Fp8, &Size::new(2, 128)).unwrap();
        let expected = Work {
            read: 2 * (128 * 132 + 64 * 128 + 64 * 4 + 4 + 2 * 4),
            written: 2 * 128 * 4,
            streamed: 2 * 128 * 128,
            flops: 2 * 2 * 128 * 64 * 128,
            multiplies: Some(Dtype::E4m3),
            chain: 2,
            turns: 4 * 4,
        };
        assert_eq!(work, expected);
    }

    #[test]
    fn a_size_that_no_kernel_computes_is_refused_by_name() {
        let refused = |size: Size| workload(KeyFormat::Bf16, &size).err().unwrap().to_string();
        assert_eq!(refused(Size { heads: 48, ..Size::new(1, 64) }), "heads is 48, accepted: 16, 32, 64");
        assert_eq!(refused(Size { next_n: 7, ..Size::new(1, 64) }), "next_n is 7, accepted: 1 to 6");
        assert_eq!(refused(Size::new(0, 64)), "batch is 0, accepted: 1 to 65535");
        assert_eq!(refused(Size::new(1, 0)), "keys is 0, accepted: 1 to 16777216");
        let huge = refused(Size::new(60_000, 1 << 20));
        assert_eq!(huge, "batch * keys is 62914560000, accepted: 1 to 8589934592");
    }
}
