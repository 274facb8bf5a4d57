// Kernels that move the bytes of a Lathe kernel along the same chain of dependent loads, and compute nothing: what no
// kernel can be much faster than. FLOOR is LOGITS or STORE, FP8 is 0 or 1.

typedef unsigned char u8;

__device__ __forceinline__ void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ __forceinline__ void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Plain loads: the compiler may hoist non-coherent ones above the wait for earlier kernels.
__device__ __forceinline__ int load(const int* p) {
  int r;
  asm volatile("ld.global.s32 %0, [%1];" : "=r"(r) : "l"(p));
  return r;
}
__device__ __forceinline__ long long load(const long long* p) {
  long long r;
  asm volatile("ld.global.s64 %0, [%1];" : "=l"(r) : "l"(p));
  return r;
}
__device__ __forceinline__ uint4 load(const uint4* p) {
  uint4 r;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}

#if FLOOR == LOGITS

// Length and page id, the page, a word for each of its keys. A page a CTA.
extern "C" __global__ void __launch_bounds__(128) move_bytes(
#if FP8
    const u8*, const u8* k_pages, long long, const float*, long long,
#else
    const u8*, const u8* k_pages, long long,
#endif
    const float*, const int* context_lens, const int* block_table, long long table_stride, float* logits,
    long long logits_stride, int, int, int) {
  constexpr int KEY_BYTES = FP8 ? 8192 : 16384, PAGE_BYTES = FP8 ? 8448 : 16384;
  launch_dependents();
  grid_dependency_wait();
  const int row = blockIdx.y, position = blockIdx.x * 64;
  const int page = load(block_table + row * table_stride + blockIdx.x);
  if (position >= load(context_lens + row)) return;
  const uint4* keys = (const uint4*)(k_pages + (size_t)(unsigned)page * PAGE_BYTES);
  unsigned sum = 0;
#pragma unroll
  for (int i = 0; i < KEY_BYTES / 16 / 128; ++i) {
    const uint4 v = load(keys + i * 128 + threadIdx.x);
    sum ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (threadIdx.x < 64) logits[row * logits_stride + position + threadIdx.x] = __uint_as_float(sum);
}

#else

// Slot and key of a row, and as many bytes as are stored of it, in the order of the rows. Half a warp a row.
extern "C" __global__ void __launch_bounds__(128) move_bytes(const u8* keys, long long, const long long* slots, u8* k_pages,
                                                             long long,
#if FP8
                                                             float* k_scales, long long,
#endif
                                                             int rows) {
  launch_dependents();
  grid_dependency_wait();
  const int row = blockIdx.x * 8 + threadIdx.x / 16, part = threadIdx.x % 16;
  if (row >= rows) return;
  const long long slot = load(slots + row);
  const uint4 key = load((const uint4*)(keys + row * 256ll) + part);
  if (slot < 0) return;
#if FP8
  ((uint2*)(k_pages + row / 64 * 8448ll + row % 64 * 128))[part] = make_uint2(key.x ^ key.y, key.z ^ key.w);
  if (part == 0) k_scales[row / 64 * 2112ll + row % 64] = __uint_as_float(key.x);
#else
  ((uint4*)(k_pages + row * 256ll))[part] = key;
#endif
}

#endif
