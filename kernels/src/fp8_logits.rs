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
use crate::launch::{STAGES, Schedule, fp8_logits_launch, fp8_warpgroups_per_sm};
use crate::reference::bounds::{C_MMA_FP8, C_WGMMA_FP8};

/// logits[r, p] = k_scales[p] * sum over h of weights[r, h] * relu(q[r, h] . k[p]), keys in pages of 64.
///
/// The warpgroups of a row's CTAs take its pages in turn, at most 32 each; a warp has 16 keys of each page, and rings of its
/// own for them and for their scales. On Hopper, whose `mma.sync` has no fp8, the four warps multiply together by `wgmma`,
/// the queries in shared memory; elsewhere each for itself, the queries in registers.
#[kernel(warps = 4 * warpgroups as u32, ctas_per_sm = fp8_warpgroups_per_sm(target) / warpgroups as u32)]
pub fn fp8_paged_mqa_logits(
    #[comptime] heads: i32,
    #[comptime] warpgroups: i32,
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
    let request = cta::z();
    let row = request * grid::x() + cta::x();
    let (first, splits) = (cta::y() * warpgroups + warpgroup::id(), grid::y() * warpgroups);
    let keys = warpgroup::warp() * 16;
    let q_tile = shared::<e4m3>([heads, 128]).swizzle(Xor16);
    let ring = shared::<e4m3>([16, 128]).stages(stages).per_warp().swizzle(Xor16);
    let scale_ring = shared::<f32>([1, 16]).stages(stages).per_warp();

    pdl::wait();

    section("The row's queries and weights, and one page id a lane");
    let my_page = first + lane::id() * splits;
    let page_ids = block_table.row(request).at(my_page).load_if(my_page.lt(table_pages), 0);
    let len = context_lens.at(row).load();
    warp::sync(); // or the assembler asks for the queries first, and the pages, which wait for their ids, come later
    q_tile.copy_async(q.at(row.to::<i64>() * i64::from(heads * 128)));
    commit();
    let step = splits * 64;

    let (k, scales) = (k_pages.skip(keys * 128), k_scales.skip(keys));
    let mut due = first * 64; // where the page to fetch next begins,
    let mut holder = Scalar::from(0); // and the lane that has its id
    let mut fetch_next = |stage: Scalar<i32>| {
        if due < len {
            let page = page_ids.of_lane(holder);
            ring.stage(stage).copy_async(k.row(page));
            scale_ring.stage(stage).copy_async(scales.row(page));
        }
        commit();
        due += step;
        holder += 1;
    };
    for s in 0..stages {
        fetch_next(s.into());
    }
    let w = weights.at(row * heads).load_cols(heads);

    wait_all_but(stages);
    if wgmma {
        fence::async_proxy();
    }
    cta::sync();
    let queries = (!wgmma).then(|| q_tile.load_b());

    section("A page a turn");
    let mut scores = logits.row(row).at(first * 64 + keys);
    let mut stage = Scalar::from(0);
    for start in (first * 64..len).step_by(step) {
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
        scores.store_rows(score, below(len - keys - start));
        scores = scores.at(step);
        warp::sync();
        fetch_next(stage);
        stage = ring.next(stage);
    }

    // Not before: measured, CTAs that start to wait while pages are fetched make either call up to 9 % longer.
    pdl::launch_dependents();

    section("What the caller wants cleaned, past the row's end");
    let threads = warpgroups * 128;
    for p in (len + cta::y() * threads + thread::id()..clean_to).step_by(splits * 128) {
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
            let variant = |label, heads, warpgroups, stages| Variant {
                label,
                kernel: fp8_paged_mqa_logits(heads, warpgroups, stages, target),
                cases: Box::new(move |scale| {
                    let specs = logits_specs(KeyFormat::Fp8, heads as usize, scale).into_iter();
                    specs.map(|spec| LogitsSpec { c: c_fp8(target), ..spec }.case()).collect()
                }),
            };
            let of_heads = [16, 32, 64].into_iter();
            if target.capability() != 90 {
                return of_heads.map(|heads| variant(format!("H={heads}"), heads, 1, STAGES)).collect();
            }
            let alone = of_heads.clone().map(|heads| variant(format!("H={heads}"), heads, 1, 3));
            let pairs = of_heads.map(|heads| variant(format!("H={heads} paired"), heads, 2, 3));
            alone.chain(pairs).collect()
        },
        benchmark: Some(Benchmark {
            axes: logits::AXES,
            sizes: logits::sizes,
            configurations: |size, machine| {
                let (batch, next_n) = (size.batch as usize, size.next_n as usize);
                let rule = fp8_logits_launch(machine.target, batch, next_n, size.max_len().into(), machine.sms);
                let (warpgroups, stages): (&[i32], _) =
                    if machine.target.capability() == 90 { (&[1, 2, 4], [2, 3]) } else { (&[1], [STAGES, STAGES + 1]) };
                let with = |&warpgroups: &i32| stages.map(|stages| Schedule { warpgroups, stages });
                let schedules: Vec<_> = warpgroups.iter().flat_map(with).collect();
                logits::configurations(size, rule, &schedules, |Schedule { warpgroups, stages }| {
                    fp8_paged_mqa_logits(size.heads as i32, warpgroups, stages, machine.target)
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
