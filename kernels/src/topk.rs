//! Top-k of a row of logits, as slots of the index-K pool.

use lathe_codegen::benchmark::{Benchmark, Configuration};
use lathe_codegen::contract::Scale;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_dsl::{device, kernel};

use crate::benchmarks;
use crate::cases::topk::topk_cases;
use crate::contract::topk::TOP_K;
use crate::equivalents;
use crate::launch::topk_grid;

const WARPS: i32 = 16;
const THREADS: i32 = WARPS * 32;

/// A digit of a 32-bit key has 11 bits: shifts 22, 11 and 0.
const WIDTH: i32 = 11;
const BINS: i32 = 1 << WIDTH;
const BINS_A_THREAD: i32 = BINS / THREADS;

/// Writes the pool slots of the `k` largest logits of each row, in any order: a radix select, digit by digit from the
/// top, then one pass that collects. A row of at most `k` keeps its order and ends in -1.
#[kernel(warps = WARPS)]
pub fn topk_page_transform(
    #[comptime] k: i32,
    #[read] logits: Rows<f32>,
    #[read] context_lens: Slice<i32>,
    #[read] block_table: Rows<i32>,
    #[write_all] indices: Slice<i32>,
    next_n: Scalar<i32>,
) {
    let histogram = shared::<i32>([1, BINS]);
    let warp_totals = shared::<i32>([1, WARPS]);
    let found = shared::<i32>([1, 2]); // the digit, and how many keys above it are settled
    let taken = shared::<i32>([1, 2]); // entries written: above the k-th key, equal to it

    let row = cta::x();
    let start = thread::id();
    pdl::launch_dependents();
    pdl::wait();
    let len = context_lens.at(row).load();
    let logits = logits.row(row);
    let table = block_table.row(row / next_n);
    let out = indices.at(row.to::<i64>() * i64::from(k));

    if len <= k {
        for i in (start..k).step_by(THREADS) {
            let within = i < len;
            let page = table.at(i / 64).load_if(within, 0);
            out.at(i).store(within.select((page * 64) | (i % 64), -1));
        }
    } else {
        // `kth` grows into the k-th largest key; `wanted` of the keys that share its digits so far are still to choose.
        let mut kth = Scalar::from(0u32);
        let mut wanted = Scalar::from(k);
        for pass in Scalar::from(0)..3 {
            let shift = (22 - pass * WIDTH).to::<u32>();
            for bin in (start..BINS).step_by(THREADS) {
                histogram.at(0, bin).store(0);
            }
            cta::sync();
            for i in (start..len).step_by(THREADS) {
                let digits = sortable(logits.at(i).load()) >> shift;
                if digits >> WIDTH as u32 == (kth >> shift) >> WIDTH as u32 {
                    histogram.at(0, digits.to::<i32>() & (BINS - 1)).atomic_add(1);
                }
            }
            cta::sync();

            // Each thread sums some bins, from the top; a scan over threads says whose bins hold the k-th key.
            let top = BINS - 1 - start * BINS_A_THREAD;
            let mut own = Scalar::from(0);
            for bin in Scalar::from(0)..BINS_A_THREAD {
                own += histogram.at(0, top - bin).load();
            }
            let through = scan(own);
            if lane::id() == 31 {
                warp_totals.at(0, warp::id()).store(through);
            }
            cta::sync();
            let mut above = through - own;
            for warp in Scalar::from(0)..warp::id() {
                above += warp_totals.at(0, warp).load();
            }
            if above < wanted && above + own >= wanted {
                for bin in Scalar::from(0)..BINS_A_THREAD {
                    let count = histogram.at(0, top - bin).load();
                    if above < wanted && above + count >= wanted {
                        found.at(0, 0).store(top - bin);
                        found.at(0, 1).store(above);
                    }
                    above += count;
                }
            }
            cta::sync();
            kth = kth | (found.at(0, 0).load().to::<u32>() << shift);
            wanted -= found.at(0, 1).load();
        }

        if start < 2 {
            taken.at(0, start).store(0);
        }
        cta::sync();
        for i in (start..len).step_by(THREADS) {
            let key = sortable(logits.at(i).load());
            if key >= kth {
                // Keys above the k-th fill from the front, keys equal to it from the back, as far as they are wanted.
                let equal = key == kth;
                let at = taken.at(0, equal.select(1, 0)).atomic_add(1);
                if !equal || at < wanted {
                    let page = table.at(i / 64).load();
                    out.at(equal.select(k - 1 - at, at)).store((page * 64) | (i % 64));
                }
            }
        }
    }
}

/// An unsigned key in the order of the floats; NaN is the smallest.
#[device]
fn sortable(x: Scalar<f32>) -> Scalar<u32> {
    let bits = x.bits();
    let negative = (bits >> 31) == 1;
    let key = negative.select(!bits, bits | 0x8000_0000);
    (x == x).select(key, 0)
}

/// Inclusive sums over the lanes of a warp.
#[device]
fn scan(x: Scalar<i32>) -> Scalar<i32> {
    [1, 2, 4, 8, 16].into_iter().fold(x, |sum, by| sum + (lane::id() >= by).select(sum.shuffle_up(by), 0))
}

/// The kernel as the program knows it.
pub fn entry() -> Entry {
    Entry {
        name: "topk_page_transform",
        about: "selects the K largest logits of each row, exactly, as slots of the index-K pool",
        file: file!(),
        source: include_str!("topk.rs"),
        equivalents: equivalents::TOPK,
        variants: |_| {
            let variant = |k: usize| Variant {
                label: format!("K={k}"),
                kernel: topk_page_transform(k as i32),
                cases: Box::new(move |scale: Scale| topk_cases(k, scale)),
            };
            TOP_K.map(variant).into_iter().collect()
        },
        benchmark: Some(Benchmark {
            axes: benchmarks::topk::AXES,
            sizes: benchmarks::topk::sizes,
            configurations: |size, _| {
                let (kernel, grid) =
                    (topk_page_transform(size.top_k as i32), topk_grid((size.batch * size.next_n) as usize));
                vec![Configuration { parameters: Vec::new(), kernel, grid }]
            },
            work: benchmarks::topk::work,
            workload: benchmarks::topk::workload,
        }),
    }
}
