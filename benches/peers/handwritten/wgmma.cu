// Schedule W: GROUPS warpgroups a CTA, each walking pages of its own on wgmma; two bulk copies a page on one mbarrier;
// keys (A) from registers, Q (B) permuted once into 128-byte-swizzled shared memory.

constexpr int HALF_BYTES = 32 * ROW_BYTES;
// The second half lies 64 bytes further, so that reads of 16 bytes a lane hit each bank equally.
constexpr int SKEW = 64;
constexpr int SCALE_BYTES = FP8 ? 256 : 0;
constexpr int STAGE_BYTES = (2 * HALF_BYTES + SKEW + SCALE_BYTES + 127) / 128 * 128;
constexpr int Q_BYTES = 64 * ROW_BYTES;
constexpr int THREADS = GROUPS * 128;
constexpr int RAW = Q_BYTES / 16 / THREADS;
constexpr int STEPS = ROW_BYTES / 64;

__device__ __forceinline__ void barrier_init(unsigned barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n.reg .pred done;\nL_wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra.uni L_out;\n"
      "bra.uni L_wait;\nL_out:\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
__device__ __forceinline__ void copy_bulk(unsigned to, const void* from, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ bool elect_one() {
  unsigned elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected;
}
#if FP8
#define WGMMA "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"
#define WGMMA_END ", p, 1, 1;}"
#else
#define WGMMA "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
#define WGMMA_END ", p, 1, 1, 0;}"
#endif
__device__ __forceinline__ void wgmma(float (&d)[32], unsigned a0, unsigned a1, unsigned a2, unsigned a3, u64 b,
                                      int accumulate) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; " WGMMA
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21,"
               " %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36" WGMMA_END
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                 "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(accumulate));
}
// Keeps the compiler from moving accumulators across the asynchronous multiplication.
__device__ __forceinline__ void pin(float (&d)[32]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS_PER_SM) paged_mqa_logits(LOGITS_PARAMS) {
  extern __shared__ __align__(1024) u8 shared_memory[];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, group = lane >> 2, quad_lane = lane & 3;
  const int warpgroup = warp >> 2, quarter = warp & 3, thread = threadIdx.x & 127;
  const unsigned q_tile = (unsigned)__cvta_generic_to_shared(shared_memory);
  const unsigned ring = q_tile + Q_BYTES + warpgroup * STAGES * STAGE_BYTES;
  const unsigned barriers = q_tile + Q_BYTES + GROUPS * STAGES * STAGE_BYTES + warpgroup * STAGES * 8;
  if (thread < STAGES) barrier_init(barriers + thread * 8);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  launch_dependents();
  grid_dependency_wait();

  const int row = blockIdx.y, first = (blockIdx.x * GROUPS + warpgroup) * pages_per_cta;
  const bool has_page = first + lane < table_stride && lane < pages_per_cta;
  const int page_ids = has_page ? load(block_table + row * table_stride + first + lane) : 0;
  const int len = load(context_lens + row);
  uint4 raw[RAW];
#pragma unroll
  for (int i = 0; i < RAW; ++i) raw[i] = load((const uint4*)(q + (size_t)row * Q_BYTES) + threadIdx.x + i * THREADS);
  float w[16];
  load_weights(w, weights + row * 64, quad_lane);
  const int pages = min(pages_per_cta, ((len + 63) >> 6) - first);
  __syncwarp();

  auto fetch = [&](int i, int stage) {
    const int page = __shfl_sync(~0u, page_ids, i);
    if (elect_one()) {
      const u8* from = k_pages + (size_t)(unsigned)page * PAGE_BYTES;
      const unsigned to = ring + stage * STAGE_BYTES, barrier = barriers + stage * 8;
      barrier_expect(barrier, 2 * HALF_BYTES + SCALE_BYTES);
      copy_bulk(to, from, HALF_BYTES, barrier);
      copy_bulk(to + HALF_BYTES + SKEW, from + HALF_BYTES, HALF_BYTES + SCALE_BYTES, barrier);
    }
  };
  if (quarter == 0) {
#pragma unroll 1
    for (int s = 0; s < STAGES; ++s) {
      if (s < pages) fetch(s, s);
    }
  }
  // A lane reads 16 bytes of a key at a time, so Q's columns are permuted to match, then swizzled.
#pragma unroll
  for (int i = 0; i < RAW; ++i) {
    const int unit = threadIdx.x + i * THREADS, head = unit / CHUNKS, c = unit % CHUNKS, j = c >> 2, t = c & 3;
    const unsigned words[4] = {raw[i].x, raw[i].y, raw[i].z, raw[i].w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int step = 2 * j + (e >> 1), chunk = (step & 3) * 2 + (e & 1);
      *(unsigned*)(shared_memory + (step >> 2) * 8192 + head * 128 + ((chunk ^ (head & 7)) * 16) + t * 4) = words[e];
    }
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (pages <= 0) return;

  const unsigned key_bytes = (group & 1) * (HALF_BYTES + SKEW) + (quarter * 8 + (group >> 1)) * ROW_BYTES + quad_lane * 16;
  const int key = (group & 1) * 32 + quarter * 8 + (group >> 1) + 4 * (quad_lane & 1);
  const u64 q_descriptor = (u64)((q_tile & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
  float* out = logits + row * logits_stride + first * 64 + key;
  int rest = len - first * 64 - key;
  int stage = 0;
  unsigned phase = 0;
#pragma unroll 1
  for (int i = 0; i < pages; ++i) {
    barrier_wait(barriers + stage * 8, phase);
    const unsigned keys = ring + stage * STAGE_BYTES + key_bytes;
    float dots[32];
    uint4 low[STEPS], high[STEPS];
#pragma unroll
    for (int j = 0; j < STEPS; ++j) {
      low[j] = load_shared_x4(keys + j * 64);
      high[j] = load_shared_x4(keys + 4 * ROW_BYTES + j * 64);
    }
    const float scale = FP8 ? load_shared(ring + stage * STAGE_BYTES + 2 * HALF_BYTES + SKEW + key * 4) : 1.f;
    pin(dots);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < STEPS; ++j) {
      const u64 b = q_descriptor + (j >> 1) * 512 + (j & 1) * 4;
      wgmma(dots, low[j].x, high[j].x, low[j].y, high[j].y, b, j != 0);
      wgmma(dots, low[j].z, high[j].z, low[j].w, high[j].w, b + 2, 1);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    // All four warps have read the stage.
    asm volatile("bar.sync %0, 128;" ::"r"(warpgroup + 1) : "memory");
    if (quarter == 0 && i + STAGES < pages) fetch(i + STAGES, stage);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    pin(dots);
    const float result = score([&](int n, int e) { return dots[4 * n + e]; }, w, quad_lane);
    if (quad_lane < 2 && rest > 0) *out = result * scale;
    out += 64;
    rest -= 64;
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
}
