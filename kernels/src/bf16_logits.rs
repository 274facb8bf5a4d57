//! Paged MQA logits of bf16 keys.

use lathe_codegen::benchmark::Benchmark;
use lathe_codegen::entry::{Entry, Variant};
use lathe_codegen::prelude::*;
use lathe_dsl::kernel;

use crate::benchmarks::logits;
use crate::cases::logits_list::logits_cases;
use crate::contract::KeyFormat;
use crate::equivalents;
use crate::launch::{BF16_CTAS_PER_SM, LEAST_WAVES, STAGES, Schedule, bf16_logits_launch, bf16_schedules};
use crate::partition::{Share, Walk};

/// logits[r, p] = sum over h of weights[r, h] * relu(q[r, h] . k[p]), keys in pages of 64.
///
/// A CTA walks pages of a row, at most 32 at a time: of a row of its own, or, where its launch fills the device several
/// times (`waves`), its share of all rows. A warp has 16 keys of every page, and a ring of its own for them.
#[kernel(warps = 4, ctas_per_sm = BF16_CTAS_PER_SM)]
pub fn bf16_paged_mqa_logits(
    #[comptime] heads: i32,
    #[comptime] waves: i32,
    #[comptime] stages: i32,
    #[read] q: Slice<bf16>,
    #[read] k_pages: Rows<bf16>,
    #[read] weights: Slice<f32>,
    #[read] context_lens: Slice<i32>,
    #[read] block_table: Rows<i32>,
    #[write_part] logits: Rows<f32>,
    table_pages: Scalar<i32>,
    clean_to: Scalar<i32>,
) {
    let row_of = |request: Scalar<i32>| request * grid::x() + cta::x();
    let (request, first, splits) = (cta::z(), cta::y(), grid::y());
    let row = row_of(request);
    let keys = warp::id() * 16;
    let q_tile = shared::<bf16>([heads, 128]).swizzle(Xor16);
    let ring = shared::<bf16>([16, 128]).stages(stages).per_warp().swizzle(Xor16);

    // The lanes hold the ids of the pages, one each.
    let score = |row: Scalar<i32>, walk: Walk, page_ids: Scalar<i32>| {
        q_tile.copy_async(q.at(row.to::<i64>() * i64::from(heads * 128)));
        commit();
        let w = weights.at(row * heads).load_cols(heads);

        let step = walk.step * 64;
        let k = k_pages.skip(keys * 128);
        let fetch = |there_is: Mask, holder: Scalar<i32>, stage: SharedTile<bf16>| {
            if there_is {
                let page = page_ids.of_lane(holder);
                stage.copy_async(k.row(page));
            }
            commit();
        };
        let mut due = walk.first * 64; // where the page to fetch next begins,
        let mut holder = Scalar::from(0); // and the lane that has its id
        for s in 0..stages {
            fetch(due.lt(walk.len), holder, ring.stage(s));
            due += step;
            holder += 1;
        }

        wait_all_but(stages);
        cta::sync(); // the queries are there, all of them
        let queries = q_tile.load_b();

        section("A page a turn");
        let mut scores = logits.row(row).at(walk.first * 64 + keys);
        for (start, stage) in ring.turns(walk.first * 64..walk.len).step_by(step) {
            wait_all_but(stages - 1);
            warp::sync();
            let dots = mma_abt(stage.load_a(), queries);
            let score = (relu(dots) * w).sum_cols();
            scores.store_rows(score, below(walk.len - keys - start));
            scores = scores.at(step);
            warp::sync();
            // Both say the same. Where rows are shared there is no register for `due`; on own rows, it is what was measured.
            if waves == 1 {
                fetch(due.lt(walk.len), holder, stage);
                due += step;
            } else {
                fetch(start.lt(walk.len - step * stages), holder, stage);
            }
            holder += 1;
        }
    };

    pdl::wait();

    let len = if waves == 1 {
        section("The row's queries and weights, and one page id a lane");
        let my_page = first + lane::id() * splits;
        let page_ids = block_table.row(request).at(my_page).load_if(my_page.lt(table_pages), 0);
        let len = context_lens.at(row).load();
        warp::sync(); // or the assembler asks for the queries first, and the pages, which wait for their ids, come later
        score(row, Walk { request, first, step: splits, len }, page_ids);
        len
    } else {
        let len = context_lens.at(row).load();
        for walk in Share::of_cta(context_lens, waves).walks() {
            let my_page = walk.first + lane::id() * walk.step;
            let within = (my_page * 64).lt(walk.len);
            let page_ids = block_table.row(walk.request).at(my_page).load_if(within, 0);
            cta::sync(); // every warp has read the queries of the walk before
            score(row_of(walk.request), walk, page_ids);
        }
        len
    };

    // Not before: measured, CTAs that start to wait while pages are fetched make either call up to 9 % longer.
    pdl::launch_dependents();

    section("What the caller wants cleaned, past the row's end");
    for p in (len + first * 128 + thread::id()..clean_to).step_by(splits * 128) {
        logits.row(row).at(p).store(f32::NEG_INFINITY);
    }
}

/// The kernel as the program knows it, in the schedules of [`bf16_logits_launch`].
pub fn entry() -> Entry {
    Entry {
        name: "bf16_paged_mqa_logits",
        about: "indexer logits over paged bf16 keys",
        file: file!(),
        source: include_str!("bf16_logits.rs"),
        equivalents: equivalents::LOGITS,
        variants: |target| {
            let variant = |heads: i32, Schedule { waves, stages }| Variant {
                label: match (waves, stages) {
                    (1, STAGES) => format!("H={heads}"),
                    (1, _) => format!("H={heads} deep"),
                    _ => format!("H={heads} balanced"),
                },
                kernel: bf16_paged_mqa_logits(heads, waves, stages),
                cases: Box::new(move |scale| logits_cases(KeyFormat::Bf16, heads as usize, waves, scale)),
            };
            // The number of waves is one constant of the code.
            let schedules = bf16_schedules(target).into_iter().filter(|schedule| schedule.waves <= LEAST_WAVES);
            schedules.flat_map(|schedule| [16, 32, 64].map(|heads| variant(heads, schedule))).collect()
        },
        benchmark: Some(Benchmark {
            axes: logits::AXES,
            sizes: logits::sizes,
            configurations: |size, machine| {
                let (batch, next_n) = (size.batch as usize, size.next_n as usize);
                let rule = bf16_logits_launch(machine.target, batch, next_n, size.max_len().into(), machine.sms);
                let wave = BF16_CTAS_PER_SM * machine.sms;
                logits::configurations(size, wave, rule, &bf16_schedules(machine.target), |schedule| {
                    bf16_paged_mqa_logits(size.heads as i32, schedule.waves, schedule.stages)
                })
            },
            work: |size| logits::work(KeyFormat::Bf16, size),
            workload: |size| logits::workload(KeyFormat::Bf16, size),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use lathe_codegen::target::Target;

    #[test]
    fn the_cuda_reads_as_one_would_write_it() {
        let cuda = bf16_paged_mqa_logits(64, 1, STAGES).unwrap().cuda(Target::Sm120a).unwrap();
        assert_eq!(cuda.shared_bytes, 64 * 256 + 4 * 2 * 16 * 256);
        let kernel = &cuda.source[cuda.source.find("// logits").unwrap()..];
        expect![[r#"
            // logits[r, p] = sum over h of weights[r, h] * relu(q[r, h] . k[p]), keys in pages of 64.
            //
            // A CTA walks pages of a row, at most 32 at a time: of a row of its own, or, where its launch fills the device several
            // times (`waves`), its share of all rows. A warp has 16 keys of every page, and a ring of its own for them.
            extern "C" __global__ void __launch_bounds__(128, 2)
            bf16_paged_mqa_logits(const bf16* q,
                                  const bf16* k_pages,
                                  long long k_pages_stride,
                                  const float* weights,
                                  const int* context_lens,
                                  const int* block_table,
                                  long long block_table_stride,
                                  float* logits,
                                  long long logits_stride,
                                  int table_pages,
                                  int clean_to) {
              extern __shared__ __align__(1024) unsigned char shared_memory[];
              const unsigned shared = (unsigned)__cvta_generic_to_shared(shared_memory);
              const int thread = threadIdx.x;
              const int warp = threadIdx.x / 32;
              const int lane = threadIdx.x % 32;
              const int request = blockIdx.z;
              const int first = blockIdx.y;
              const int splits = gridDim.y;
              const int row = request * (int)gridDim.x + (int)blockIdx.x;
              const int keys = warp * 16;
              const unsigned q_tile = shared;  // bf16 [64][128], xor16
              const unsigned ring = shared + 16384 + warp * 8192;  // bf16 [2 stages][16][128] of each warp, xor16
              grid_dependency_wait();

              // The row's queries and weights, and one page id a lane
              const int my_page = first + lane * splits;
              const int page_ids = load_if(my_page < table_pages, block_table + (unsigned)request * block_table_stride + my_page, 0);
              const int len = load(context_lens + row);
              __syncwarp();
              copy_tile_xor16<64, 256, 128>(q_tile, q + (long long)row * 8192, thread);
              cp_async_commit();
              const float* weights_at = weights + row * 64;
              float w[8][2];
              #pragma unroll
              for (int n = 0; n < 8; ++n) {
                load_x2(w[n], weights_at + (n * 8 + lane % 4 * 2));
              }
              const int step = splits * 64;
              const bf16* k_pages_at = k_pages + keys * 128;
              int due = first * 64;
              int holder = 0;
              const unsigned ring_stage = ring;
              if (due < len) {
                const int page = __shfl_sync(0xffffffffu, page_ids, holder);
                copy_tile_xor16<16, 256, 32>(ring_stage, k_pages_at + (unsigned)page * k_pages_stride, lane);
              }
              cp_async_commit();
              due += step;
              holder += 1;
              const unsigned ring_stage_2 = ring + 4096;
              if (due < len) {
                const int page = __shfl_sync(0xffffffffu, page_ids, holder);
                copy_tile_xor16<16, 256, 32>(ring_stage_2, k_pages_at + (unsigned)page * k_pages_stride, lane);
              }
              cp_async_commit();
              due += step;
              holder += 1;
              cp_async_wait<2>();
              __syncthreads();
              const unsigned q_tile_lane = q_tile + lane % 8 * 256 + ((lane / 8) ^ (lane % 8)) * 16;
              unsigned queries[8][8][2];
              #pragma unroll
              for (int n = 0; n < 8; ++n) {
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                  ldmatrix_x4(queries[n][k * 2], queries[n][k * 2 + 1], (q_tile_lane ^ (k * 64)) + n * 2048);
                }
              }

              // A page a turn
              float* scores = logits + (unsigned)row * logits_stride + (first * 64 + keys);
              int stage_index = 0;
              #pragma unroll 1
              for (int start = first * 64; start < len; start += step) {
                const unsigned stage = ring + stage_index * 4096;
                cp_async_wait<1>();
                __syncwarp();
                const unsigned ring_lane = stage + lane % 16 * 256 + ((lane / 16) ^ (lane % 8)) * 16;
                unsigned a[8][4];
                #pragma unroll
                for (int k = 0; k < 8; ++k) {
                  ldmatrix_x4(a[k], ring_lane ^ (k * 32));
                }
                float dots[8][4] = {};
                #pragma unroll
                for (int k = 0; k < 8; ++k) {
                  #pragma unroll
                  for (int n = 0; n < 8; ++n) {
                    mma_bf16(dots[n], a[k], queries[n][k]);
                  }
                }
                float sums[4] = {};
                #pragma unroll
                for (int n = 0; n < 8; ++n) {
                  #pragma unroll
                  for (int e = 0; e < 4; ++e) {
                    sums[e] += fmaxf(dots[n][e], 0.0f) * w[n][e % 2];
                  }
                }
                const float score = quad_sum(sums[0] + sums[1], sums[2] + sums[3], lane);
                const int lane_row = lane / 4 + lane % 2 * 8;
                if (lane % 4 < 2 && lane_row < len - keys - start) scores[lane_row] = score;
                scores += step;
                __syncwarp();
                if (due < len) {
                  const int page = __shfl_sync(0xffffffffu, page_ids, holder);
                  copy_tile_xor16<16, 256, 32>(stage, k_pages_at + (unsigned)page * k_pages_stride, lane);
                }
                cp_async_commit();
                due += step;
                holder += 1;
                stage_index = 1 - stage_index;
              }
              launch_dependents();

              // What the caller wants cleaned, past the row's end
              for (int p = len + first * 128 + thread; p < clean_to; p += splits * 128) {
                logits[(unsigned)row * logits_stride + p] = __int_as_float(0xff800000);
              }
            }
        "#]].assert_eq(kernel);
    }

    #[test]
    fn another_head_count_is_refused() {
        let errors = bf16_paged_mqa_logits(20, 1, STAGES).unwrap_err().to_string();
        assert!(errors.contains("multiple of 8"), "{errors}");
    }
}
