//! The kernel, and what the program knows of it.

use lathe::entry::{Entry, Variant};
use lathe::prelude::*;

use crate::bench::BENCHMARK;
use crate::cases;

/// page_max[r, g] = the largest, over the keys p of page g, of sum over h of w[r, h] * relu(q[r, h] . k[p])
#[kernel(warps = 4, ctas_per_sm = 2)]
pub fn page_max_logits(
    #[comptime] heads: i32,
    #[read] q: Slice<bf16>,
    #[read] k_pages: Rows<bf16>,
    #[read] weights: Slice<f32>,
    #[read] context_lens: Slice<i32>,
    #[read] block_table: Rows<i32>,
    #[write_part] page_max: Rows<f32>,
    next_n: Scalar<i32>,
) {
    let row = cta::y();
    let queries = shared::<bf16>([heads, 128]).swizzle(Xor16);
    let keys = shared::<bf16>([16, 128]).per_warp().swizzle(Xor16);
    let of_warp = shared::<f32>([1, 4]);

    pdl::wait();
    let len = context_lens.at(row).load();
    let table = block_table.row(row / next_n);
    queries.copy_async(q.at(row.to::<i64>() * i64::from(heads * 128)));
    commit();
    let w = weights.at(row * heads).load_cols(heads);
    wait_all_but(0);
    cta::sync();
    let q = queries.load_b();

    // The CTAs of a row take its pages in turn; a warp owns 16 keys of each page.
    for page in (cta::x()..len.div_ceil(64)).step_by(grid::x()) {
        let first = warp::id() * 16;
        keys.copy_async(k_pages.row(table.at(page).load()).at(first * 128));
        commit();
        wait_all_but(0);
        warp::sync();
        let dots = mma_abt(keys.load_a(), q);
        let scores = (relu(dots) * w).sum_cols();
        let largest = scores.max_rows(below(len - page * 64 - first));

        if lane::id() == 0 {
            of_warp.at(0, warp::id()).store(largest);
        }
        cta::sync();
        if thread::id() == 0 {
            let mut of_page = of_warp.at(0, 0).load();
            for warp in 1..4 {
                of_page = of_page.max(of_warp.at(0, warp).load());
            }
            page_max.row(row).at(page).store(of_page);
        }
        cta::sync();
    }
}

/// The kernel as the program knows it.
pub fn entry() -> Entry {
    Entry {
        name: "page_max_logits",
        about: "the largest logit of each page, for choosing pages before keys",
        file: file!(),
        source: include_str!("page_max.rs"),
        equivalents: &[],
        variants: |_| {
            let variant = |heads: usize| Variant {
                label: format!("H={heads}"),
                kernel: page_max_logits(heads as i32),
                cases: Box::new(move |scale| cases::all(heads, scale)),
            };
            [16, 32, 64].map(variant).into()
        },
        benchmark: Some(BENCHMARK),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use lathe::target::Target;

    #[test]
    fn the_cuda_reads_as_one_would_write_it() {
        let cuda = page_max_logits(64).unwrap().cuda(Target::Sm120a).unwrap();
        let kernel = &cuda.source[cuda.source.find("// page_max[").unwrap()..];
        expect![[r#"
            // page_max[r, g] = the largest, over the keys p of page g, of sum over h of w[r, h] * relu(q[r, h] . k[p])
            extern "C" __global__ void __launch_bounds__(128, 2)
            page_max_logits(const bf16* q,
                            const bf16* k_pages,
                            long long k_pages_stride,
                            const float* weights,
                            const int* context_lens,
                            const int* block_table,
                            long long block_table_stride,
                            float* page_max,
                            long long page_max_stride,
                            int next_n) {
              extern __shared__ __align__(1024) unsigned char shared_memory[];
              const unsigned shared = (unsigned)__cvta_generic_to_shared(shared_memory);
              const int thread = threadIdx.x;
              const int warp = threadIdx.x / 32;
              const int lane = threadIdx.x % 32;
              const int row = blockIdx.y;
              const unsigned queries = shared;  // bf16 [64][128], xor16
              const unsigned keys = shared + 16384 + warp * 4096;  // bf16 [16][128] of each warp, xor16
              const unsigned of_warp = shared + 32768;  // f32 [1][4]
              grid_dependency_wait();
              const int len = load(context_lens + row);
              const int* table = block_table + (unsigned)(row / next_n) * block_table_stride;
              copy_tile_xor16<64, 256, 128>(queries, q + (long long)row * 8192, thread);
              cp_async_commit();
              const float* weights_at = weights + row * 64;
              float w[8][2];
              #pragma unroll
              for (int n = 0; n < 8; ++n) {
                load_x2(w[n], weights_at + (n * 8 + lane % 4 * 2));
              }
              cp_async_wait<0>();
              __syncthreads();
              const unsigned queries_lane = queries + lane % 8 * 256 + ((lane / 8) ^ (lane % 8)) * 16;
              unsigned q_2[8][8][2];
              #pragma unroll
              for (int n = 0; n < 8; ++n) {
                #pragma unroll
                for (int k = 0; k < 4; ++k) {
                  ldmatrix_x4(q_2[n][k * 2], q_2[n][k * 2 + 1], (queries_lane ^ (k * 64)) + n * 2048);
                }
              }
              for (int page = (int)blockIdx.x; page < (len + 63) / 64; page += (int)gridDim.x) {
                const int first = warp * 16;
                const int block_table_value = load(table + page);
                copy_tile_xor16<16, 256, 32>(keys, k_pages + (unsigned)block_table_value * k_pages_stride + first * 128, lane);
                cp_async_commit();
                cp_async_wait<0>();
                __syncwarp();
                const unsigned keys_lane = keys + lane % 16 * 256 + ((lane / 16) ^ (lane % 8)) * 16;
                unsigned a[8][4];
                #pragma unroll
                for (int k = 0; k < 8; ++k) {
                  ldmatrix_x4(a[k], keys_lane ^ (k * 32));
                }
                float dots[8][4] = {};
                #pragma unroll
                for (int k = 0; k < 8; ++k) {
                  #pragma unroll
                  for (int n = 0; n < 8; ++n) {
                    mma_bf16(dots[n], a[k], q_2[n][k]);
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
                const float scores = quad_sum(sums[0] + sums[1], sums[2] + sums[3], lane);
                const int lane_row = lane / 4 + lane % 2 * 8;
                const float largest = warp_max(lane_row < len - page * 64 - first ? scores : __int_as_float(0xff800000));
                if (lane == 0) {
                  store_shared_float(of_warp + warp * 4, largest);
                }
                __syncthreads();
                if (thread == 0) {
                  const float element = load_shared_float(of_warp);
                  float of_page = element;
                  const float element_2 = load_shared_float(of_warp + 4);
                  of_page = fmaxf(of_page, element_2);
                  const float element_3 = load_shared_float(of_warp + 8);
                  of_page = fmaxf(of_page, element_3);
                  const float element_4 = load_shared_float(of_warp + 12);
                  of_page = fmaxf(of_page, element_4);
                  page_max[(unsigned)row * page_max_stride + page] = of_page;
                }
                __syncthreads();
              }
            }
        "#]].assert_eq(kernel);
    }
}
