//! Top-k of a row of logits, as slots of the index-K pool.

use std::array::from_fn;

use lathe_codegen::benchmark::{Benchmark, Configuration};
use lathe_codegen::contract::Scale;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_dsl::{Traced, device, kernel};

use crate::benchmarks;
use crate::cases::topk::topk_cases;
use crate::contract::topk::TOP_K;
use crate::equivalents;
use crate::launch::topk_grid;

const WARPS: i32 = 32;
const THREADS: i32 = WARPS * 32;

/// Bits of a digit of a rank: a float's sign, its exponent and three bits of its mantissa make the first, so that logits of
/// one magnitude spread over several bins.
const WIDTH: u32 = 12;
const BINS: i32 = 1 << WIDTH;
/// Two whole digits, and what is left of 32 bits.
const DIGITS: i32 = 3;

/// Entries that fit in shared memory: once fewer may be selected, the row is read for the last time.
const CANDIDATES: i32 = 8192;

/// Vectors of 4 logits that a thread has in flight.
const VECTORS: i32 = 4;

/// Writes the pool slots of the `k` largest logits of each row, in any order. A row of at most `k` keeps its order and
/// ends in -1.
///
/// A radix select on ranks, which ascend as the logits descend: the digits of the k-th rank are found one after the other,
/// by histograms of the row until what may be selected fits in shared memory, then by histograms of that.
#[kernel(warps = WARPS)]
pub fn topk_page_transform(
    #[comptime] k: i32,
    #[read] logits: Rows<f32>,
    #[read] context_lens: Slice<i32>,
    #[read] block_table: Rows<i32>,
    #[write_all] indices: Slice<i32>,
    next_n: Scalar<i32>,
) {
    let digits = Digits::new();
    let taken = shared::<i32>([2, 2]); // candidates; entries before the k-th rank, and tied with it
    let ranks = shared::<u32>([1, CANDIDATES]);
    let positions = shared::<i32>([1, CANDIDATES]);

    let row = cta::x();
    let start = thread::id();
    digits.clear();
    if start < 4 {
        taken.at(start / 2, start % 2).store(0);
    }
    cta::sync();
    pdl::launch_dependents();
    pdl::wait();
    let len = context_lens.at(row).load();
    let table = block_table.row(row / next_n);
    let out = indices.at(row.to::<i64>() * i64::from(k));

    if len <= k {
        for i in (start..k).step_by(THREADS) {
            let within = i < len;
            let page = table.at(i / 64).load_if(within, 0);
            out.at(i).store(within.select((page * 64) | (i % 64), -1));
        }
    } else {
        let row = Row::of(logits.row(row), len);
        let mut kth = Kth::of(k, len);

        section("Digits of the row, until what may be selected fits");
        for digit in Scalar::from(0)..DIGITS {
            if digit == 0 || kth.before + kth.among >= CANDIDATES {
                row.each_turn(|turn| {
                    for group in turn.groups {
                        if group.is_there {
                            for x in group.logits {
                                digits.count(kth, rank(x));
                            }
                        }
                    }
                });
                kth = digits.find(kth);
            }
        }

        section(
            "What may be selected; where it does not fit, all that ties with the k-th goes last, as far as there is room",
        );
        let fits = kth.before + kth.among < CANDIDATES;
        let mut from = Scalar::from(0u32);
        let mut through = fits.select(kth.last, kth.first - 1);
        for _ in Scalar::from(0)..fits.select(1, 2) {
            row.each_turn(|turn| {
                let mut hits = Scalar::from(0u32); // a bit for each logit of the turn
                for (i, (is_there, x)) in turn.logits().enumerate() {
                    hits |= (is_there && rank(x) - from <= through - from).select(1 << i, 0);
                }
                let count = hits.count_ones();
                let [mut next] = reserve(taken, 0, [count.warp_sum()]);
                for _ in Scalar::from(0)..count.warp_max() {
                    let lanes = (hits != 0).ballot();
                    let at = next + lanes_below(lanes);
                    if hits != 0 && at < CANDIDATES {
                        let position = turn.position(hits.find_first() - 1);
                        ranks.at(0, at).store(rank(row.start.at(position).load()));
                        positions.at(0, at).store(position);
                    }
                    hits &= hits - 1;
                    next += lanes.count_ones();
                }
            });
            cta::sync(); // all that goes first is there before any that ties
            (from, through) = (kth.first, kth.last);
        }

        section("The digits that are left");
        let candidates = (kth.before + kth.among).min(CANDIDATES);
        for _ in Scalar::from(1)..DIGITS {
            if kth.among > kth.wanted {
                for i in (start..candidates).step_by(THREADS) {
                    digits.count(kth, ranks.at(0, i).load());
                }
                kth = digits.find(kth);
            }
        }

        section(
            "What comes before the k-th rank fills from the front, what ties with it from the back, as far as wanted",
        );
        for first in (Scalar::from(0)..candidates).step_by(THREADS) {
            let is_there = first + start < candidates;
            let i = is_there.select(first + start, 0);
            let rank = ranks.at(0, i).load();
            let position = positions.at(0, i).load();
            let page = table.at(position / 64).load();
            let is_before = is_there && rank < kth.first;
            let ties = is_there && rank >= kth.first && rank <= kth.last;
            let (before, tied) = (is_before.ballot(), ties.ballot());
            let [front, back] = reserve(taken, 1, [before.count_ones(), tied.count_ones()]);
            let (front, back) = (front + lanes_below(before), back + lanes_below(tied));
            if is_before || ties && back < kth.wanted {
                out.at(is_before.select(front, k - 1 - back)).store((page * 64) | (position % 64));
            }
        }
    }
}

/// A row of logits, as the CTA reads it: in vectors, but for the few before and behind those that are aligned.
#[derive(Clone, Copy)]
struct Row {
    start: Place<f32>,
    head: Scalar<i32>,
    vectors: Scalar<i32>,
    ragged: Scalar<i32>,
}

/// Logits that a thread looks at in one turn.
struct Turn {
    groups: Vec<Group>,
    vector: Scalar<i32>,
    single: Scalar<i32>,
}

/// Logits that are there or not together.
struct Group {
    is_there: Mask,
    logits: Vec<Scalar<f32>>,
}

impl Row {
    /// A row of at least 4 logits.
    fn of(start: Place<f32>, len: Scalar<i32>) -> Self {
        let head = (4 - start.elements_past(16)) & 3;
        let vectors = (len - head) / 4;
        Row { start, head, vectors, ragged: len - vectors * 4 }
    }

    /// Calls `visit` until each logit of the row was in one turn of one thread. All threads take as many turns.
    #[device]
    fn each_turn(self, visit: impl Fn(Turn)) {
        let thread = thread::id();
        let single = thread + (thread < self.head).select(0, self.vectors * 4);
        let aligned = self.start.at(self.head);
        for first in (Scalar::from(0)..self.vectors).step_by(VECTORS * THREADS) {
            let mut groups = Vec::new();
            for i in 0..VECTORS {
                let vector = first + thread + i * THREADS;
                let is_there = vector < self.vectors;
                let loaded = aligned.at(vector * 4).load_vector_if(4, is_there, 0.0);
                groups.push(Group { is_there, logits: loaded.elements::<4>().into() });
            }
            // The first turn also has those that are in no vector.
            let is_there = first == 0 && thread < self.ragged;
            groups.push(Group { is_there, logits: vec![self.start.at(single).load_if(is_there, 0.0)] });
            visit(Turn { groups, vector: self.head + (first + thread) * 4, single });
        }
    }
}

impl Turn {
    /// Each with whether it is there.
    fn logits(&self) -> impl Iterator<Item = (Mask, Scalar<f32>)> {
        self.groups.iter().flat_map(|group| group.logits.iter().map(|x| (group.is_there, *x)))
    }

    /// Where logit `i` of the turn lies in the row.
    #[device]
    fn position(&self, i: Scalar<i32>) -> Scalar<i32> {
        (i < 4 * VECTORS).select(self.vector + i / 4 * (4 * THREADS) + i % 4, self.single)
    }
}

/// What is known of the k-th rank: it is one of `first..=last`.
#[derive(Clone, Copy, Traced)]
struct Kth {
    first: Scalar<u32>,
    last: Scalar<u32>,
    /// Where the next digit begins.
    shift: Scalar<u32>,
    /// How many entries have ranks before these, how many have these, and how many of those are to be selected.
    before: Scalar<i32>,
    among: Scalar<i32>,
    wanted: Scalar<i32>,
}

impl Kth {
    /// Nothing is known.
    fn of(k: i32, len: Scalar<i32>) -> Self {
        let shift = Scalar::from(32 - WIDTH);
        Kth { first: 0.into(), last: u32::MAX.into(), shift, before: 0.into(), among: len, wanted: k.into() }
    }
}

/// Where a CTA counts digits.
#[derive(Clone, Copy)]
struct Digits {
    histogram: SharedTile<i32>,
    warp_totals: SharedTile<i32>,
    found: SharedTile<i32>,
}

impl Digits {
    fn new() -> Self {
        Digits {
            histogram: shared::<i32>([1, BINS + 4]), // behind the bins, what is counted for nothing
            warp_totals: shared::<i32>([1, WARPS]),
            found: shared::<i32>([1, 3]), // the digit, how many have a smaller one, how many have it
        }
    }

    /// Empties the thread's bins: each has 4.
    fn clear(self) {
        const { assert!(BINS == 4 * THREADS) };
        self.histogram.at(0, thread::id() * 4).store_vector(Vector::of(&[Scalar::from(0); 4]));
    }

    /// Counts the next digit of a rank; of one that is not the k-th, behind the digits.
    fn count(self, kth: Kth, rank: Scalar<u32>) {
        let digit = (rank - kth.first) >> kth.shift;
        let behind = ((kth.last - kth.first) >> kth.shift) + 1;
        self.histogram.at(0, digit.min(behind).to::<i32>()).atomic_add(1);
    }

    /// Knows a digit more, when all threads have counted that of all entries; empties the bins.
    #[device]
    fn find(self, kth: Kth) -> Kth {
        cta::sync();
        let counts = self.histogram.at(0, thread::id() * 4).load_vector(4).elements::<4>();
        self.clear();
        let own = counts[0] + counts[1] + counts[2] + counts[3];
        let through = scan(own);
        if lane::id() == 31 {
            self.warp_totals.at(0, warp::id()).store(through);
        }
        cta::sync();
        let earlier_warps = (lane::id() < warp::id()).select(self.warp_totals.at(0, lane::id()).load(), 0).warp_sum();
        let mut before = earlier_warps + through - own;
        for (i, count) in (0..).zip(counts) {
            if before < kth.wanted && before + count >= kth.wanted {
                self.found.at(0, 0).store(thread::id() * 4 + i);
                self.found.at(0, 1).store(before);
                self.found.at(0, 2).store(count);
            }
            before += count;
        }
        cta::sync();
        let [digit, smaller, among] = [0, 1, 2].map(|i| self.found.at(0, i).load());
        let first = kth.first + (digit.to::<u32>() << kth.shift);
        Kth {
            first,
            last: first + ((Scalar::from(1u32) << kth.shift) - 1),
            shift: kth.shift.max(WIDTH) - WIDTH,
            before: kth.before + smaller,
            among,
            wanted: kth.wanted - smaller,
        }
    }
}

/// The order of floats from the largest down: infinity has a rank above 0, NaN the last.
#[device]
fn rank(x: Scalar<f32>) -> Scalar<u32> {
    let negative = (x.bits().to::<i32>() >> 31).to::<u32>();
    (x == x).select(x.bits() ^ (!negative & 0x7fff_ffff), u32::MAX)
}

/// Inclusive sums over the lanes of a warp.
#[device]
fn scan(x: Scalar<i32>) -> Scalar<i32> {
    [1, 2, 4, 8, 16].into_iter().fold(x, |sum, by| sum + (lane::id() >= by).select(sum.shuffle_up(by), 0))
}

/// How many of `lanes` come before this one.
fn lanes_below(lanes: Scalar<u32>) -> Scalar<i32> {
    (lanes & ((Scalar::from(1u32) << lane::id().to::<u32>()) - 1)).count_ones()
}

/// Takes the next places for the warp in the lists that row `lists` of `taken` counts, so many in each: the first of each.
#[device]
fn reserve<const N: usize>(taken: SharedTile<i32>, lists: i32, counts: [Scalar<i32>; N]) -> [Scalar<i32>; N] {
    // A lane a list.
    let own = (1..N).fold(counts[0], |own, i| (lane::id() == i as i32).select(counts[i], own));
    let mut first = Scalar::from(0);
    if lane::id() < N as i32 {
        first = taken.at(lists, lane::id()).atomic_add(own);
    }
    from_fn(|i| first.of_lane(i as i32))
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
