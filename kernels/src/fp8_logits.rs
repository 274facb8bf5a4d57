//! Paged MQA logits of e4m3 keys, each with a scale.

use lathe_codegen::benchmark::Benchmark;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_dsl::kernel;

use crate::benchmarks::logits;
use crate::cases::logits_list::logits_cases;
use crate::contract::KeyFormat;
use crate::equivalents;
use crate::launch::STAGES;

/// logits[r, p] = k_scales[p] * sum over h of weights[r, h] * relu(q[r, h] . k[p]), keys in pages of 64.
///
/// The CTAs of a row take its pages in turn, at most 32 each; a warp has 16 keys of every page, and rings of its own
/// for them and for their scales.
#[kernel(warps = 4, ctas_per_sm = ctas_per_sm)]
pub fn fp8_paged_mqa_logits(
    #[comptime] heads: i32,
    #[comptime] ctas_per_sm: u32,
    #[read] q: Slice<e4m3>,
    #[read] k_pages: Rows<e4m3>,
    #[read] k_scales: Rows<f32>,
    #[read] weights: Slice<f32>,
    #[read] context_lens: Slice<i32>,
    #[read] block_table: Rows<i32>,
    #[write_part] logits: Rows<f32>,
    table_pages: Scalar<i32>,
    clean_to: Scalar<i32>,
) {
    let (request, first, splits) = (cta::z(), cta::y(), grid::y());
    let row = request * grid::x() + cta::x();
    let keys = warp::id() * 16;
    let q_tile = shared::<e4m3>([heads, 128]).swizzle(Xor16);
    let ring = shared::<e4m3>([16, 128]).stages(STAGES).per_warp().swizzle(Xor16);
    let scale_ring = shared::<f32>([1, 16]).stages(STAGES).per_warp();

    pdl::launch_dependents();
    pdl::wait();

    section("The row's queries and weights, and one page id a lane");
    let my_page = first + lane::id() * splits;
    let page_ids = block_table.row(request).at(my_page).load_if(my_page.lt(table_pages), 0);
    let len = context_lens.at(row).load();
    q_tile.copy_async(q.at(row.to::<i64>() * i64::from(heads * 128)));
    commit();
    let w = weights.at(row * heads).load_cols(heads);
    let row_pages = len.div_ceil(64);

    let (k, scales) = (k_pages.skip(keys * 128), k_scales.skip(keys));
    let mut due = first; // the page to fetch next,
    let mut holder = Scalar::from(0); // and the lane that has its id
    let mut fetch_next = |stage: Scalar<i32>| {
        if due < row_pages {
            let page = page_ids.of_lane(holder);
            ring.stage(stage).copy_async(k.row(page));
            scale_ring.stage(stage).copy_async(scales.row(page));
        }
        commit();
        due += splits;
        holder += 1;
    };
    for s in 0..STAGES {
        fetch_next(s.into());
    }

    wait_all_but(STAGES);
    cta::sync();
    let queries = q_tile.load_b();

    section("A page a turn");
    let scores = logits.row(row).at(keys);
    let mut stage = Scalar::from(0);
    for page in (first..row_pages).step_by(splits) {
        wait_all_but(STAGES - 1);
        warp::sync();
        let dots = mma_abt(ring.stage(stage).load_a(), queries);
        let score = (relu(dots) * w).sum_cols() * scale_ring.stage(stage).load_rows();
        scores.at(page * 64).store_rows(score, below(len - keys - page * 64));
        warp::sync();
        fetch_next(stage);
        stage = (stage + 1 == STAGES).select(0, stage + 1);
    }

    section("What the caller wants cleaned, past the row's end");
    for p in (len + first * 128 + thread::id()..clean_to).step_by(splits * 128) {
        logits.row(row).at(p).store(f32::NEG_INFINITY);
    }
}

/// The kernel as the program knows it.
pub fn entry() -> Entry {
    Entry {
        name: "fp8_paged_mqa_logits",
        about: "indexer logits over paged e4m3 keys with a scale a key",
        file: file!(),
        source: include_str!("fp8_logits.rs"),
        equivalents: equivalents::LOGITS,
        variants: |target| {
            let ctas_per_sm = ctas_per_sm(target);
            [16, 32, 64]
                .map(move |heads| Variant {
                    label: format!("H={heads}"),
                    kernel: fp8_paged_mqa_logits(heads, ctas_per_sm),
                    cases: Box::new(move |scale| logits_cases(KeyFormat::Fp8, heads as usize, scale)),
                })
                .into()
        },
        benchmark: Some(Benchmark {
            axes: logits::AXES,
            sizes: logits::sizes,
            configurations: |size, machine| {
                let kernel = |_| fp8_paged_mqa_logits(size.heads as i32, ctas_per_sm(machine.target));
                logits::schedules(size, machine, &[STAGES], kernel)
            },
            work: |size| logits::work(KeyFormat::Fp8, size),
            workload: |size| logits::workload(KeyFormat::Fp8, size),
        }),
    }
}

/// Where fp8 products run as f16, converted fragments take the registers of a third CTA.
fn ctas_per_sm(target: Target) -> u32 {
    if target.capability() >= 120 { 3 } else { 2 }
}
