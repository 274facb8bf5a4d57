//! CUDA text of whole kernels.

use expect_test::expect;
use lathe_codegen::handles::{Argument, Handle};
use lathe_codegen::ir::{Kernel, Phase};
use lathe_codegen::loc::Loc;
use lathe_codegen::prelude::*;
use lathe_codegen::target::Target;
use lathe_codegen::trace::{self, KernelSpec, trace};

fn argument<A: Argument>(name: &str) -> A {
    A::declare(name, Phase::AfterWait, Loc::caller())
}

fn named<H: Handle>(name: &str, handle: H) -> H {
    trace::with(|b| b.name(handle.id(), name));
    handle
}

fn when(cond: Mask, body: impl FnOnce()) {
    let loc = Loc::caller();
    trace::with(|b| b.begin_if(cond.id(), loc));
    body();
    trace::with(|b| b.end_if(loc));
}

/// Half a warp copies one key of 128 bf16 to its slot.
fn store() -> Kernel {
    let spec = KernelSpec {
        name: "store",
        doc: "Copies key i to slot slots[i].",
        warps: 4,
        ctas_per_sm: 8,
        loc: Loc::caller(),
    };
    trace(spec, || {
        let keys: Rows<bf16> = argument("keys");
        let slots: Slice<i64> = argument("slots");
        let pages: Rows<bf16, WritePart> = argument("pages");
        let count: Scalar<i32> = argument("count");
        let i = named("i", cta::x() * 8 + thread::id() / 16);
        let part = named("part", thread::id() % 16 * 8);
        pdl::launch_dependents();
        pdl::wait();
        when(i.lt(count), || {
            let slot = named("slot", slots.at(i).load());
            when(slot.ge(0i64), || {
                let key = named("key", keys.row(i).at(part).load_vector(8));
                pages.row(slot / 64i64).at(slot % 64i64 * 128i64).at(part).store_vector(key);
            });
        });
    })
    .expect("traces")
}

#[test]
fn the_store_kernel() {
    expect![[r#"
        typedef unsigned short bf16;

        __device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

        __device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

        __device__ __forceinline__ long long load(const long long* p) {
          long long v;
          asm volatile("ld.global.s64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
          return v;
        }

        __device__ __forceinline__ void load_x4(unsigned (&v)[4], const void* p) {
          asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(p) : "memory");
        }

        __device__ __forceinline__ void store_x4(void* p, const unsigned (&v)[4]) {
          asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                       :: "l"(p), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
        }

        // Copies key i to slot slots[i].
        extern "C" __global__ void __launch_bounds__(128, 8)
        store(const bf16* keys,
              long long keys_stride,
              const long long* slots,
              bf16* pages,
              long long pages_stride,
              int count) {
          const int thread = threadIdx.x;
          const int i = (int)blockIdx.x * 8 + thread / 16;
          const int part = thread % 16 * 8;
          launch_dependents();
          grid_dependency_wait();
          if (i < count) {
            const long long slot = load(slots + i);
            if (slot >= 0) {
              unsigned key[4];
              load_x4(key, keys + (unsigned)i * keys_stride + part);
              store_x4(pages + slot / 64 * pages_stride + slot % 64 * 128 + part, key);
            }
          }
        }
    "#]].assert_eq(&store().cuda(Target::Sm120a).expect("prints").source);
}

/// Paged logits in the shape of the real kernel, by builder calls.
fn logits(heads: i32, stages: i32, pages_per_cta: i32) -> Kernel {
    let spec = KernelSpec { name: "logits", doc: "", warps: 4, ctas_per_sm: 2, loc: Loc::caller() };
    trace(spec, || {
        let q: Rows<bf16> = argument("q");
        let k: Rows<bf16> = argument("k");
        let weights: Rows<f32> = argument("weights");
        let lens: Slice<i32> = argument("lens");
        let table: Rows<i32> = argument("table");
        let out: Rows<f32, WritePart> = argument("out");

        let row = named("row", cta::y());
        let first = named("first", cta::x() * pages_per_cta);
        let keys = named("keys", warp::id() * 16);
        let q_tile = named("q_tile", shared::<bf16>([heads, 128]).swizzle(Xor16));
        let ring = named("ring", shared::<bf16>([16, 128]).stages(stages).per_warp().swizzle(Xor16));

        pdl::launch_dependents();
        pdl::wait();
        let len = named("len", lens.at(row).load());
        let pages = table.row(row).slice(first, pages_per_cta).until(len.div_ceil(64)).load_lanes();
        named("pages", pages.len());
        q_tile.copy_async(q.row(row));
        commit();
        let w = named("w", weights.row(row).load_cols(heads));
        let k = k.skip(keys * 128);
        let fetch = |i: Scalar<i32>, stage: SharedTile<bf16>| {
            let page = named("page", pages.get(i));
            stage.copy_async(k.row(page));
        };
        for s in 0..stages {
            when(pages.len().gt(s), || fetch(s.into(), ring.stage(s)));
            commit();
        }
        wait_all_but(stages);
        cta::sync();
        let key = named("key", first * 64 + keys);
        let out = named("out_row", out.row(row).at(key));
        let limit = named("limit", len - key);
        let q = named("q_frag", q_tile.load_b());
        for (i, stage) in ring.turns(pages.len()) {
            named("i", i);
            named("stage", stage);
            wait_all_but(stages - 1);
            warp::sync();
            let dots = named("dots", mma_abt(stage.load_a(), q));
            let score = named("score", (relu(dots) * w).sum_cols());
            out.at(i * 64).store_rows(score, below(limit - i * 64));
            warp::sync();
            when((i + stages).lt(pages.len()), || fetch(i + stages, stage));
            commit();
        }
    })
    .expect("traces")
}

#[test]
fn the_logits_kernel() {
    expect![[r#"
        typedef unsigned short bf16;

        __device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

        __device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

        __device__ __forceinline__ int load(const int* p) {
          int v;
          asm volatile("ld.global.s32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
          return v;
        }

        // The address is computed beforehand, so that the load is not late: the compiler would do it where the mask holds.
        __device__ __forceinline__ int load_if(bool mask, const int* p, int otherwise) {
          asm volatile("" : "+l"(p));
          return mask ? load(p) : otherwise;
        }

        __device__ __forceinline__ void cp_async_16(unsigned to, const void* from) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
        }

        // Starts copying `rows` consecutive rows into a tile whose 16-byte chunks are permuted: `workers` threads share the work.
        template <int rows, int row_bytes, int workers>
        __device__ __forceinline__ void copy_tile_xor16(unsigned to, const void* from, int worker) {
          constexpr int chunks = row_bytes / 16;  // of a row
          constexpr int step = workers / chunks;  // rows a turn
          const int row = worker / chunks, chunk = worker % chunks;
          const unsigned first = to + row * row_bytes + (chunk ^ row % 8) * 16;
          const char* source = (const char*)from + worker * 16;
          #pragma unroll
          for (int i = 0; i < rows / step; ++i) {
        #if __CUDA_ARCH__ < 1000
            cp_async_16((first ^ i * step % 8 * 16) + i * step * row_bytes, source + i * step * row_bytes);
        #else  // for which the assembler would add one constant four times
            cp_async_16((first ^ i * step % 8 * 16) + i * step * row_bytes, source);
            source += step * row_bytes;
        #endif
          }
        }

        __device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

        __device__ __forceinline__ void load_x2(float (&v)[2], const float* p) {
          asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(v[0]), "=f"(v[1]) : "l"(p) : "memory");
        }

        template <int pending>
        __device__ __forceinline__ void cp_async_wait() {
          asm volatile("cp.async.wait_group %0;" :: "n"(pending) : "memory");
        }

        __device__ __forceinline__ void ldmatrix_x4(unsigned (&v)[2], unsigned (&w)[2], unsigned from) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v[0]), "=r"(v[1]), "=r"(w[0]), "=r"(w[1]) : "r"(from) : "memory");
        }

        __device__ __forceinline__ void ldmatrix_x4(unsigned (&v)[4], unsigned from) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
        }

        __device__ __forceinline__ void mma_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
          asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
              : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
              : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
        }

        // Sums two rows over the 4 lanes that hold them: even lanes return the sum of row `a`, odd ones that of row `b`.
        __device__ __forceinline__ float quad_sum(float a, float b, int lane) {
          const bool odd = lane % 2;
          const float sum = (odd ? b : a) + __shfl_xor_sync(0xffffffffu, odd ? a : b, 1);
          return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
        }

        extern "C" __global__ void __launch_bounds__(128, 2)
        logits(const bf16* q,
               long long q_stride,
               const bf16* k,
               long long k_stride,
               const float* weights,
               long long weights_stride,
               const int* lens,
               const int* table,
               long long table_stride,
               float* out,
               long long out_stride) {
          extern __shared__ __align__(1024) unsigned char shared_memory[];
          const unsigned shared = (unsigned)__cvta_generic_to_shared(shared_memory);
          const int thread = threadIdx.x;
          const int warp = threadIdx.x / 32;
          const int lane = threadIdx.x % 32;
          const int row = blockIdx.y;
          const int first = (int)blockIdx.x * 16;
          const int keys = warp * 16;
          const unsigned q_tile = shared;  // bf16 [64][128], xor16
          const unsigned ring = shared + 16384 + warp * 8192;  // bf16 [2 stages][16][128] of each warp, xor16
          launch_dependents();
          grid_dependency_wait();
          const int len = load(lens + row);
          const int pages = min(16, (len + 63) / 64 - first);
          const int table_value = load_if(lane < pages, table + (unsigned)row * table_stride + first + lane, 0);
          copy_tile_xor16<64, 256, 128>(q_tile, q + (unsigned)row * q_stride, thread);
          cp_async_commit();
          const float* weights_at = weights + (unsigned)row * weights_stride;
          float w[8][2];
          #pragma unroll
          for (int n = 0; n < 8; ++n) {
            load_x2(w[n], weights_at + (n * 8 + lane % 4 * 2));
          }
          const bf16* k_at = k + keys * 128;
          if (pages > 0) {
            const int page = __shfl_sync(0xffffffffu, table_value, 0);
            copy_tile_xor16<16, 256, 32>(ring, k_at + (unsigned)page * k_stride, lane);
          }
          cp_async_commit();
          if (pages > 1) {
            const int page = __shfl_sync(0xffffffffu, table_value, 1);
            copy_tile_xor16<16, 256, 32>(ring + 4096, k_at + (unsigned)page * k_stride, lane);
          }
          cp_async_commit();
          cp_async_wait<2>();
          __syncthreads();
          const int key = first * 64 + keys;
          float* out_row = out + (unsigned)row * out_stride + key;
          const int limit = len - key;
          const unsigned q_tile_lane = q_tile + lane % 8 * 256 + ((lane / 8) ^ (lane % 8)) * 16;
          unsigned q_frag[8][8][2];
          #pragma unroll
          for (int n = 0; n < 8; ++n) {
            #pragma unroll
            for (int k_2 = 0; k_2 < 4; ++k_2) {
              ldmatrix_x4(q_frag[n][k_2 * 2], q_frag[n][k_2 * 2 + 1], (q_tile_lane ^ (k_2 * 64)) + n * 2048);
            }
          }
          int stage_index = 0;
          #pragma unroll 1
          for (int i = 0; i < pages; ++i) {
            const unsigned stage = ring + stage_index * 4096;
            cp_async_wait<1>();
            __syncwarp();
            const unsigned ring_lane = stage + lane % 16 * 256 + ((lane / 16) ^ (lane % 8)) * 16;
            unsigned a[8][4];
            #pragma unroll
            for (int k_2 = 0; k_2 < 8; ++k_2) {
              ldmatrix_x4(a[k_2], ring_lane ^ (k_2 * 32));
            }
            float dots[8][4] = {};
            #pragma unroll
            for (int k_2 = 0; k_2 < 8; ++k_2) {
              #pragma unroll
              for (int n = 0; n < 8; ++n) {
                mma_bf16(dots[n], a[k_2], q_frag[n][k_2]);
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
            float* out_at = out_row + i * 64;
            const int lane_row = lane / 4 + lane % 2 * 8;
            if (lane % 4 < 2 && lane_row < limit - i * 64) out_at[lane_row] = score;
            __syncwarp();
            if (i + 2 < pages) {
              const int page = __shfl_sync(0xffffffffu, table_value, i + 2);
              copy_tile_xor16<16, 256, 32>(stage, k_at + (unsigned)page * k_stride, lane);
            }
            cp_async_commit();
            stage_index = 1 - stage_index;
          }
        }
    "#]].assert_eq(&logits(64, 2, 16).cuda(Target::Sm120a).expect("prints").source);
}

#[test]
fn the_cost_of_a_page_is_what_the_schedule_says() {
    let kernel = logits(64, 2, 16);
    let cost = kernel.cost();
    // Once a CTA: each of the 4 warps copies a quarter of the queries, and loads all of them and the weights.
    let (queries, weights, first_pages) = (64 * 256, 16 * 4 * 4, 2 * 16 * 256);
    assert_eq!(cost.cost.shared_read, 64 * 128 * 2);
    assert_eq!(cost.cost.global_read, queries / 4 + weights + first_pages + 2 * 128);
    // A page: 16 keys of 128 bf16 a warp, times 64 heads.
    let [page] = &cost.loops[..] else { panic!("one loop") };
    assert_eq!(page.turns, None);
    let page = page.total();
    assert_eq!((page.mma, page.flops), (8 * 8, 2 * 16 * 64 * 128 + 32 * (32 * 3 + 4)));
    assert_eq!((page.global_read, page.shared_written, page.shared_read), (16 * 256, 16 * 256, 16 * 256));
    assert_eq!(page.global_written, 16 * 4);
    assert!((180..260).contains(&page.issue), "{page:?}");
}

#[test]
fn known_turns_multiply() {
    let kernel = trace(KernelSpec { name: "k", doc: "", warps: 1, ctas_per_sm: 1, loc: Loc::caller() }, || {
        let out: Slice<f32, WritePart> = argument("out");
        let loc = Loc::caller();
        let [start, end, step] = [0, 10, 3].map(Scalar::<i32>::from);
        let i = trace::with(|b| b.begin_for(start.id(), end.id(), step.id(), trace::Unroll::Auto, loc));
        out.at(Scalar::<i32>::from_id(i)).store(1.0f32);
        trace::with(|b| b.end_for(loc));
    });
    let cost = kernel.expect("traces").cost();
    assert_eq!(cost.loops[0].turns, Some(4));
    assert_eq!(cost.total().global_written, 4 * 32 * 4);
}

#[test]
fn what_a_target_lacks_is_refused() {
    let kernel = logits(64, 8, 16);
    assert!(kernel.cuda(Target::Sm90a).is_ok());
    let error = kernel.cuda(Target::Sm120a).expect_err("too much shared memory").to_string();
    assert!(error.contains("needs 147456 bytes") && error.contains("at most 101376"), "{error}");
    let tiles =
        "`q_tile`, bf16 [64, 128]: 16384 bytes; `ring`, 8 stages of bf16 [16, 128] for each of 4 warps: 131072 bytes";
    assert!(error.starts_with("codegen/tests/cuda.rs:") && error.contains(tiles), "{error}");
}
