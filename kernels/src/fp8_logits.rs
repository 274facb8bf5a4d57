//! Paged MQA logits of e4m3 keys, each with a scale.

use lathe_codegen::benchmark::Benchmark;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_dsl::kernel;

use crate::benchmarks::logits;
use crate::cases::logits::LogitsSpec;
use crate::cases::logits_list::logits_specs;
use crate::contract::KeyFormat;
use crate::equivalents;
use crate::launch::{LEAST_WAVES, STAGES, Schedule, fp8_ctas_per_sm, fp8_logits_launch, fp8_schedules};
use crate::partition::{Share, Walk};
use crate::reference::bounds::{C_MMA_FP8, C_WGMMA_FP8};

/// logits[r, p] = k_scales[p] * sum over h of weights[r, h] * relu(q[r, h] . k[p]), keys in pages of 64.
///
/// A CTA walks pages of a row, at most 32 at a time: of a row of its own, or, where its launch fills the device several times
/// (`waves`), its share of all rows. A warp has 16 keys of each page, and rings of its own for them and for their scales.
/// On Hopper, whose `mma.sync` has no fp8, the four warps multiply together by `wgmma`, the queries in shared memory;
/// elsewhere each for itself, the queries in registers.
#[kernel(warps = 4, ctas_per_sm = fp8_ctas_per_sm(target))]
pub fn fp8_paged_mqa_logits(
    #[comptime] heads: i32,
    #[comptime] waves: i32,
    #[comptime] stages: i32,
    #[comptime] target: Target,
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
    let wgmma = target.capability() == 90;
    let row_of = |request: Scalar<i32>| request * grid::x() + cta::x();
    let (request, first, splits) = (cta::z(), cta::y(), grid::y());
    let row = row_of(request);
    let keys = warp::id() * 16;
    let ring = shared::<e4m3>([16, 128]).stages(stages).per_warp().swizzle(Xor16);
    let q_tile = shared::<e4m3>([heads, 128]).swizzle(Xor16);
    let scale_ring = shared::<f32>([1, 16]).stages(stages).per_warp();

    // The lanes hold the ids of the pages, one each.
    let score = |row: Scalar<i32>, walk: Walk, page_ids: Scalar<i32>| {
        q_tile.copy_async(q.at(row.to::<i64>() * i64::from(heads * 128)));
        commit();

        let (k, scales) = (k_pages.skip(keys * 128), k_scales.skip(keys));
        let fetch = |there_is: Mask, page_ids: Scalar<i32>, lane: i32, stage: Scalar<i32>| {
            if there_is {
                let page = page_ids.of_lane(lane);
                ring.stage(stage).copy_async(k.row(page));
                scale_ring.stage(stage).copy_async(scales.row(page));
            }
            commit();
        };
        let (begin, step) = (walk.first * 64, walk.step * 64);
        for s in 0..stages {
            fetch((begin + step * s).lt(walk.len), page_ids, s, s.into());
        }
        let last_fetch = walk.len - step * stages;
        let mut next_ids = page_ids.shuffle_down(stages); // the next page's in lane 0
        let w = weights.at(row * heads).load_cols(heads);

        wait_all_but(stages);
        if wgmma {
            fence::async_proxy();
        }
        cta::sync(); // the queries are there, all of them
        let queries = (!wgmma).then(|| q_tile.load_b());

        section("A page a turn");
        let mut scores = logits.row(row).at(begin + keys);
        let mut stage = Scalar::from(0);
        for start in (begin..walk.len).step_by(step) {
            wait_all_but(stages - 1);
            warp::sync();
            let fragment = ring.stage(stage).load_a();
            let dots = match queries {
                Some(queries) => mma_abt(fragment, queries),
                None => {
                    let product = wgmma::product(fragment, q_tile);
                    wgmma::commit();
                    product.wait_all_but(0)
                }
            };
            let score = (relu(dots) * w).sum_cols() * scale_ring.stage(stage).load_rows();
            scores.store_rows(score, below(walk.len - keys - start));
            scores = scores.at(step);
            warp::sync();
            fetch(start.lt(last_fetch), next_ids, 0, stage);
            next_ids = next_ids.shuffle_down(1);
            stage = ring.next(stage);
        }
    };

    pdl::wait();

    let len = context_lens.at(row).load();
    if waves == 1 {
        let my_page = first + lane::id() * splits;
        let page_ids = block_table.row(request).at(my_page).load_if(my_page.lt(table_pages), 0);
        warp::sync(); // or the assembler asks for the queries first, and the pages, which wait for their ids, come later
        score(row, Walk { request, first, step: splits, len }, page_ids);
    } else {
        for walk in Share::of_cta(context_lens, waves).walks() {
            let my_page = walk.first + lane::id() * walk.step;
            let within = (my_page * 64).lt(walk.len);
            let page_ids = block_table.row(walk.request).at(my_page).load_if(within, 0);
            cta::sync(); // every warp has used the queries of the walk before
            score(row_of(walk.request), walk, page_ids);
        }
    }

    // Not before: measured, CTAs that start to wait while pages are fetched make either call up to 9 % longer.
    pdl::launch_dependents();

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
            let variant = |heads: i32, Schedule { waves, stages }| Variant {
                label: if waves == 1 { format!("H={heads}") } else { format!("H={heads} balanced") },
                kernel: fp8_paged_mqa_logits(heads, waves, stages, target),
                cases: Box::new(move |scale| {
                    let specs = logits_specs(KeyFormat::Fp8, heads as usize, waves, scale).into_iter();
                    specs.map(|spec| LogitsSpec { c: c_fp8(target), ..spec }.case()).collect()
                }),
            };
            let balanced = if target.capability() == 90 { 3 } else { STAGES };
            let schedules = [(1, STAGES), (LEAST_WAVES, balanced)].map(|(waves, stages)| Schedule { waves, stages });
            schedules.into_iter().flat_map(|schedule| [16, 32, 64].map(|heads| variant(heads, schedule))).collect()
        },
        benchmark: Some(Benchmark {
            axes: logits::AXES,
            sizes: logits::sizes,
            configurations: |size, machine| {
                let (batch, next_n) = (size.batch as usize, size.next_n as usize);
                let rule = fp8_logits_launch(machine.target, batch, next_n, size.max_len().into(), machine.sms);
                let wave = fp8_ctas_per_sm(machine.target) * machine.sms;
                logits::configurations(size, wave, rule, &fp8_schedules(machine.target), |schedule| {
                    fp8_paged_mqa_logits(size.heads as i32, schedule.waves, schedule.stages, machine.target)
                })
            },
            work: |size| logits::work(KeyFormat::Fp8, size),
            workload: |size| logits::workload(KeyFormat::Fp8, size),
        }),
    }
}

/// How far a logit may be off: `wgmma` accumulates short.
fn c_fp8(target: Target) -> f64 {
    if target.capability() == 90 { C_WGMMA_FP8 } else { C_MMA_FP8 }
}
