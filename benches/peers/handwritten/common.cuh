// What both hand-written schedules of paged MQA logits use. H = 64, D = 128, 64 keys a page, next_n = 1, tight pages.
//
// Parameters are those of Lathe's kernel of the same format, then `pages_per_cta`. FP8, STAGES, CTAS_PER_SM and GROUPS
// are defined by whoever compiles.

typedef unsigned char u8;
typedef unsigned long long u64;

#if FP8
#define KEY_PARAMS const u8 *q, const u8 *k_pages, long long, const float *, long long
constexpr int ROW_BYTES = 128;
constexpr int PAGE_BYTES = 8448;
#else
#define KEY_PARAMS const u8 *q, const u8 *k_pages, long long
constexpr int ROW_BYTES = 256;
constexpr int PAGE_BYTES = 16384;
#endif
#define LOGITS_PARAMS                                                                                          \
  KEY_PARAMS, const float *weights, const int *context_lens, const int *block_table, long long table_stride,  \
      float *logits, long long logits_stride, int, int, int pages_per_cta

constexpr int SCALES_OFFSET = 8192;
constexpr int CHUNKS = ROW_BYTES / 16;

// Plain loads: the compiler may hoist non-coherent ones above the wait for earlier kernels.
__device__ __forceinline__ int load(const int* p) {
  int r;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(r) : "l"(p));
  return r;
}
__device__ __forceinline__ float2 load(const float2* p) {
  float2 r;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "l"(p));
  return r;
}
__device__ __forceinline__ uint4 load(const uint4* p) {
  uint4 r;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
__device__ __forceinline__ float load_shared(unsigned at) {
  float r;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(r) : "r"(at));
  return r;
}
__device__ __forceinline__ uint4 load_shared_x4(unsigned at) {
  uint4 r;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(at));
  return r;
}
__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Weights of the two heads of each group of 8 that a lane has in its accumulators.
__device__ __forceinline__ void load_weights(float (&w)[16], const float* weights, int quad_lane) {
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const float2 v = load((const float2*)(weights + n * 8 + quad_lane * 2));
    w[n * 2] = v.x;
    w[n * 2 + 1] = v.y;
  }
}

// sum over the lane's heads of relu(dot) * weight, for its two keys, then over the lanes of the quad: lanes 0 and 1
// of a quad end up with keys 0 and 1.
template <class Dots>
__device__ __forceinline__ float score(Dots dot, const float (&w)[16], int quad_lane) {
  float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    s0 += fmaxf(dot(n, 0), 0.f) * w[2 * n];
    s1 += fmaxf(dot(n, 1), 0.f) * w[2 * n + 1];
    s2 += fmaxf(dot(n, 2), 0.f) * w[2 * n];
    s3 += fmaxf(dot(n, 3), 0.f) * w[2 * n + 1];
  }
  const float first = s0 + s1, second = s2 + s3;
  float keep = quad_lane & 1 ? second : first;
  const float send = quad_lane & 1 ? first : second;
  keep += __shfl_xor_sync(~0u, send, 1);
  return keep + __shfl_xor_sync(~0u, keep, 2);
}
