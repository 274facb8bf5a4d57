// Schedule Z: 4 warps a CTA, each with 16 keys of a page and a private ring of cp.async stages; keys on M of mma.sync,
// Q in registers as B fragments. fp8 is converted to f16, since sm_90 has no e4m3 mma.sync.

constexpr int WARPS = 4;
constexpr int KEYS = 16;
constexpr int STAGE_BYTES = KEYS * ROW_BYTES + (FP8 ? 128 : 0);
constexpr int Q_BYTES = 64 * ROW_BYTES;

__device__ __forceinline__ void copy_16(unsigned to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_all_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
__device__ __forceinline__ uint4 ldmatrix_x4(unsigned at) {
  uint4 r;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "r"(at));
  return r;
}
__device__ __forceinline__ void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                    unsigned b1) {
#if FP8
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#else
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#endif
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// Four e4m3 values become two pairs of f16.
__device__ __forceinline__ void to_f16(unsigned x, unsigned& low, unsigned& high) {
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h;}"
      : "=r"(low), "=r"(high)
      : "r"(x));
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, CTAS_PER_SM) paged_mqa_logits(LOGITS_PARAMS) {
  extern __shared__ __align__(128) u8 shared_memory[];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = lane >> 2, quad_lane = lane & 3;
  const unsigned q_tile = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned ring = q_tile + Q_BYTES + warp * STAGES * STAGE_BYTES;
  launch_dependents();
  grid_dependency_wait();

  const int row = blockIdx.y, first = blockIdx.x * pages_per_cta;
  const bool has_page = first + lane < table_stride && lane < pages_per_cta;
  const int page_ids = has_page ? load(block_table + row * table_stride + first + lane) : 0;
  const int len = load(context_lens + row);
#pragma unroll
  for (int i = 0; i < 64 * CHUNKS / (WARPS * 32); ++i) {
    const int unit = i * WARPS * 32 + threadIdx.x, r = unit / CHUNKS, c = unit % CHUNKS;
    copy_16(q_tile + r * ROW_BYTES + ((c ^ (r & 7)) * 16), q + (size_t)row * Q_BYTES + unit * 16);
  }
  commit();
  float w[16];
  load_weights(w, weights + row * 64, quad_lane);
  const int pages = min(pages_per_cta, ((len + 63) >> 6) - first);

  constexpr int ROWS_A_COPY = 512 / ROW_BYTES;
  const int copy_row = lane / CHUNKS, copy_chunk = lane % CHUNKS;
  auto fetch = [&](int i, int stage) {
    const u8* page = k_pages + (size_t)(unsigned)__shfl_sync(~0u, page_ids, i) * PAGE_BYTES;
    const u8* from = page + warp * KEYS * ROW_BYTES + lane * 16;
    const unsigned to = ring + stage * STAGE_BYTES + copy_row * ROW_BYTES;
#pragma unroll
    for (int j = 0; j < KEYS / ROWS_A_COPY; ++j) {
      const int swizzle = copy_chunk ^ copy_row ^ ((j * ROWS_A_COPY) & 7);
      copy_16(to + j * 512 + swizzle * 16, from + j * 512);
    }
    if (FP8 && lane < KEYS / 4) {
      copy_16(ring + stage * STAGE_BYTES + KEYS * ROW_BYTES + lane * 16, page + SCALES_OFFSET + warp * KEYS * 4 + lane * 16);
    }
  };
#pragma unroll
  for (int s = 0; s < STAGES; ++s) {
    if (s < pages) fetch(s, s);
    commit();
  }
  wait_all_but<STAGES>();
  __syncthreads();
  if (pages <= 0) return;

  uint4 queries[32];
#pragma unroll
  for (int n = 0; n < 8; ++n) {
#pragma unroll
    for (int i = 0; i < CHUNKS / 4; ++i) {
      const int r = lane & 7, c = lane >> 3;
      const uint4 x = ldmatrix_x4(q_tile + (n * 8 + r) * ROW_BYTES + (((4 * i + c) ^ r) * 16));
#if FP8
      uint4 a, b;
      to_f16(x.x, a.x, a.y);
      to_f16(x.y, a.z, a.w);
      to_f16(x.z, b.x, b.y);
      to_f16(x.w, b.z, b.w);
      queries[n * 4 + 2 * i] = a;
      queries[n * 4 + 2 * i + 1] = b;
#else
      queries[n * 4 + i] = x;
#endif
    }
  }

  const int a_row = (lane & 7) + ((lane >> 3) & 1) * 8, a_chunk = lane >> 4;
  float* out = logits + row * logits_stride + first * 64 + warp * KEYS;
  int rest = len - first * 64 - warp * KEYS;
  int stage = 0;
#pragma unroll 1
  for (int i = 0; i < pages; ++i) {
    wait_all_but<STAGES - 1>();
    __syncwarp();
    float dots[8][4] = {};
#pragma unroll
    for (int k = 0; k < CHUNKS / 2; ++k) {
      const uint4 a = ldmatrix_x4(ring + a_row * ROW_BYTES + stage * STAGE_BYTES + (((2 * k + a_chunk) ^ (a_row & 7)) * 16));
#if FP8
      unsigned x0, x1, x2, x3, y0, y1, y2, y3;
      to_f16(a.x, x0, x2);
      to_f16(a.y, x1, x3);
      to_f16(a.z, y0, y2);
      to_f16(a.w, y1, y3);
#pragma unroll
      for (int n = 0; n < 8; ++n) mma(dots[n], x0, x1, x2, x3, queries[n * 4 + k].x, queries[n * 4 + k].y);
#pragma unroll
      for (int n = 0; n < 8; ++n) mma(dots[n], y0, y1, y2, y3, queries[n * 4 + k].z, queries[n * 4 + k].w);
#else
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const uint4& b = queries[n * 4 + (k >> 1)];
        mma(dots[n], a.x, a.y, a.z, a.w, k & 1 ? b.z : b.x, k & 1 ? b.w : b.y);
      }
#endif
    }
    float result = score([&](int n, int e) { return dots[n][e]; }, w, quad_lane);
    const int key = group + 8 * (quad_lane & 1);
    if (FP8) result *= load_shared(ring + stage * STAGE_BYTES + KEYS * ROW_BYTES + key * 4);
    if (quad_lane < 2 && key < rest) out[key] = result;
    __syncwarp();
    if (i + STAGES < pages) fetch(i + STAGES, stage);
    commit();
    out += 64;
    rest -= 64;
    if (++stage == STAGES) stage = 0;
  }
}
