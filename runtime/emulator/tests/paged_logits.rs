//! A kernel written outside of Lathe, as serving engines write theirs for sm_120: tensor maps, an mbarrier ring, warp roles
//! that trade registers, named barriers. It agrees with a reference of plain loops under every schedule, and what could be
//! wrong with it is found.

mod common;

use std::sync::LazyLock;

use common::{Memory, Numbers, schedules, text};
use lathe_emulator::{CpAsync, FindingKind, Kernel, Launch, Module, Options, Report, TensorMap, TensorSwizzle};

const HEADS: usize = 64;
const DIM: usize = 128;
const PAGE: usize = 64;
/// Bytes of a page: 64 keys and their scales, and what other layers keep behind them.
const RECORD: usize = 8448 + 1024;
const SHARED: u32 = (HEADS * DIM + 3 * PAGE * DIM + 3 * PAGE * 4 + 2 * PAGE * 4 + 7 * 8) as u32;
/// Logits of a row lie so many elements apart.
const STRIDE: usize = 320;
const UNWRITTEN: u32 = 0xffff_ffff;

/// The value of an e4m3 number: 4 bits of exponent, 3 of mantissa, no infinities.
fn e4m3(bits: u8) -> f64 {
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * mantissa / 8.0 * 2f64.powi(-6),
        _ => sign * (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    }
}

static E4M3: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|bits| e4m3(bits as u8)));

/// Queries, pages, weights, lengths and pages of rows; the last page of each row is followed by keys of NaN.
struct Problem {
    queries: Vec<u8>,
    pages: Vec<u8>,
    weights: Vec<f32>,
    lens: Vec<i32>,
    table: Vec<i32>,
}

impl Problem {
    fn new(lens: &[i32]) -> Self {
        let mut numbers = Numbers::new(5);
        let mut finite = |_| loop {
            let bits = (numbers.bits() >> 20) as u8;
            if bits & 0x7f != 0x7f {
                return bits;
            }
        };
        let columns = STRIDE / PAGE;
        let pages = lens.len() * columns + 1;
        let queries = (0..lens.len() * HEADS * DIM).map(&mut finite).collect();
        let mut memory: Vec<u8> = (0..pages * RECORD).map(&mut finite).collect();
        let weights = (0..lens.len() * HEADS).map(|i| (i as f32 * 0.7).sin()).collect();
        // Pages in an order of their own; what lies past a row's end must not be looked at.
        let mut table = vec![i32::MAX; lens.len() * columns];
        let mut next = pages;
        for (row, &len) in lens.iter().enumerate() {
            for i in 0..(len as usize).div_ceil(PAGE) {
                next -= 1;
                table[row * columns + i] = next as i32;
                let page = &mut memory[next * RECORD..][..RECORD];
                for slot in 0..PAGE {
                    let scale = 0.25 + slot as f32 / 100.0;
                    page[8192 + 4 * slot..][..4].copy_from_slice(&scale.to_le_bytes());
                    if i * PAGE + slot >= len as usize {
                        page[slot * DIM..][..DIM].fill(0x7f);
                    }
                }
            }
        }
        Self { queries, pages: memory, weights, lens: lens.to_vec(), table }
    }

    /// A logit, and how far an f32 sum may be from it.
    fn logit(&self, row: usize, position: usize) -> (f64, f64) {
        let page = self.table[row * (STRIDE / PAGE) + position / PAGE] as usize;
        let slot = position % PAGE;
        let page = &self.pages[page * RECORD..][..RECORD];
        let scale = f64::from(f32::from_le_bytes(page[8192 + 4 * slot..][..4].try_into().unwrap()));
        let key = &page[slot * DIM..][..DIM];
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for head in 0..HEADS {
            let query = &self.queries[(row * HEADS + head) * DIM..][..DIM];
            let weight = f64::from(self.weights[row * HEADS + head]);
            let products = query.iter().zip(key).map(|(q, k)| E4M3[*q as usize] * E4M3[*k as usize]);
            sum += weight * products.clone().sum::<f64>().max(0.0);
            magnitude += weight.abs() * products.map(f64::abs).sum::<f64>();
        }
        // 128 products and 64 heads are added in f32: far fewer roundings than 2^-24 times their number.
        (scale * sum, 1e-6 * scale * magnitude)
    }

    fn run(&self, kernel: &Kernel, ctas: u32, options: &Options) -> (Report, Vec<f32>) {
        let mut m = Memory::default();
        let (rows, pages) = (self.lens.len(), self.pages.len() / RECORD);
        let (queries, memory) = (m.with("queries", &self.queries), m.with("pages", &self.pages));
        let (weights, lens) = (m.with("weights", &self.weights), m.with("lens", &self.lens));
        let table = m.with("table", &self.table);
        let logits = m.with("logits", &vec![UNWRITTEN; rows * STRIDE]);
        let of = |address, dims, strides, box_dims| {
            let swizzle = TensorSwizzle::B128;
            TensorMap { address, element_bytes: 1, dims, strides, box_dims, swizzle }.encode().unwrap()
        };
        let (dim, heads) = (DIM as u64, HEADS as u64);
        let query_map = of(queries, vec![dim, rows as u64 * heads], vec![dim], vec![DIM as u32, HEADS as u32]);
        let key_dims = vec![dim, PAGE as u64, pages as u64];
        let key_map = of(memory, key_dims, vec![dim, RECORD as u64], vec![DIM as u32, PAGE as u32, 1]);
        let launch = Launch::new([ctas, rows as u32, 1], [256, 1, 1]).dynamic_shared(SHARED);
        let launch = launch.arg(query_map).arg(key_map).arg(memory).arg(RECORD as i64);
        let launch = launch.arg(weights).arg(lens).arg(table).arg((STRIDE / PAGE) as i64);
        let launch = launch.arg(logits).arg(STRIDE as i64);
        let report = common::run(kernel, &launch, &mut m, options);
        (report, m.read(logits, rows * STRIDE))
    }

    /// What is wrong with some logits.
    fn wrong(&self, logits: &[f32]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (row, &len) in self.lens.iter().enumerate() {
            for position in 0..STRIDE {
                let found = logits[row * STRIDE + position];
                if position >= len as usize {
                    if found.to_bits() != UNWRITTEN {
                        wrong.push(format!("[{row}][{position}] = {found}, past the row's length {len}"));
                    }
                    continue;
                }
                let (expected, bound) = self.logit(row, position);
                let distance = (f64::from(found) - expected).abs();
                if distance.is_nan() || distance > bound {
                    wrong.push(format!("[{row}][{position}] = {found}, expected {expected} within {bound}"));
                }
            }
        }
        wrong
    }
}

fn kernel() -> Kernel {
    common::kernel("paged_logits", "paged_logits")
}

#[test]
fn it_agrees_with_the_reference_under_every_schedule() {
    let problem = Problem::new(&[300, 0, 64, 129]);
    for (ctas, options) in [1, 2].into_iter().flat_map(|ctas| schedules().into_iter().map(move |o| (ctas, o))) {
        let (report, logits) = problem.run(&kernel(), ctas, &options);
        assert_eq!(report.findings, [], "{options:?}");
        assert_eq!(problem.wrong(&logits), Vec::<String>::new(), "{options:?}");
    }
}

#[test]
fn the_comparison_sees_one_wrong_key() {
    let problem = Problem::new(&[70]);
    let (_, mut logits) = problem.run(&kernel(), 1, &Options::default());
    logits.swap(3, 66);
    assert_eq!(problem.wrong(&logits).len(), 2);
}

/// The kernel with one instruction changed: the `n`th that holds `what`.
fn faulty(what: &str, n: usize, change: impl Fn(&str) -> String) -> Kernel {
    let text = text("paged_logits");
    let (at, _) = text.match_indices(what).nth(n).unwrap_or_else(|| panic!("`{what}` stands less than {n} times"));
    let end = at + text[at..].find(';').unwrap();
    let changed = format!("{}{}{}", &text[..at], change(&text[at..end]), &text[end..]);
    Module::parse(changed).unwrap().entry("paged_logits").unwrap()
}

fn line_of(what: &str) -> u32 {
    let path = format!("{}/tests/fixtures/paged_logits.cu", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().position(|l| l.contains(what)).unwrap_or_else(|| panic!("no line has {what}")) as u32 + 1
}

#[track_caller]
fn found(kernel: &Kernel, kind: FindingKind, at: &str) {
    let (problem, line) = (Problem::new(&[300]), line_of(at));
    for cp_async in [CpAsync::Eager, CpAsync::Late] {
        let options = Options { cp_async, seed: 1, ..Options::default() };
        let (report, _) = problem.run(kernel, 1, &options);
        let here = |f: &lathe_emulator::Finding| f.kind == kind && f.access.sources.iter().any(|s| s.line == line);
        let all: Vec<_> = report.findings.iter().map(|f| (f.kind, &f.detail, &f.access.sources)).collect();
        assert!(report.findings.iter().any(here), "{kind:?} at line {line}, {cp_async:?}: {all:#?}");
    }
}

/// The number of waits before the one that lies after `what` in the text.
fn waits_before(what: &str) -> usize {
    let text = text("paged_logits");
    text[..text.find(what).unwrap()].matches("mbarrier.try_wait").count()
}

#[test]
fn a_removed_wait_is_a_copy_in_flight_where_the_keys_are_read() {
    // The consumers' waits follow the place where they take registers: for the queries, then for a stage.
    let n = waits_before("setmaxnreg.inc") + 1;
    let k = faulty("mbarrier.try_wait", n, |_| "setp.ge.s32 p, 1, 0".to_owned());
    found(&k, FindingKind::CopyInFlight, "ldmatrix_x4(a[k], chunk_of(tile");
}

#[test]
fn a_wrong_byte_count_is_barrier_misuse() {
    // Keys without their scales.
    let n = 1;
    let k = faulty("mbarrier.arrive.expect_tx", n, |line| {
        let (rest, _) = line.rsplit_once(", ").unwrap();
        format!("{rest}, 8192")
    });
    let (problem, options) = (Problem::new(&[300]), Options::default());
    for cp_async in [CpAsync::Eager, CpAsync::Late] {
        let (report, _) = problem.run(&k, 1, &Options { cp_async, ..options.clone() });
        let misused = report.findings.iter().find(|f| f.kind == FindingKind::BarrierMisuse);
        let misused = misused.unwrap_or_else(|| panic!("{cp_async:?}: {:#?}", report.findings));
        assert!(misused.detail.contains("256 bytes"), "{misused:?}");
    }
}

#[test]
fn a_stage_that_is_filled_before_it_is_empty_is_found() {
    let n = waits_before("setmaxnreg.inc") - 1;
    let k = faulty("mbarrier.try_wait", n, |_| "setp.ge.s32 p, 1, 0".to_owned());
    found(&k, FindingKind::CopyInFlight, "load_box_3d(s.keys[stage]");
}

#[test]
fn a_removed_named_barrier_is_a_race() {
    let k = faulty("bar.sync 1, 128", 0, |_| "bar.warp.sync -1".to_owned());
    found(&k, FindingKind::SharedRace, "logits[row * logits_stride + position] = scores[threadIdx.x]");
}
