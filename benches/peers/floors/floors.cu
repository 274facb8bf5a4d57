// Kernels that move the bytes of a Lathe kernel along the same chain of dependent loads, and compute nothing: what no
// kernel can be much faster than. FLOOR is LOGITS, STORE, FUSED or TOPK, FP8 is 0 or 1.

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

#elif FLOOR == TOPK

// Length, the row once, page ids of 2,048 of its entries, a word for each. A CTA a row, 16 bytes a thread four times in
// flight; rows begin at multiples of 16 bytes.
extern "C" __global__ void __launch_bounds__(1024) move_bytes(const float* logits, long long logits_stride,
                                                              const int* context_lens, const int* block_table,
                                                              long long table_stride, int* indices, int) {
  launch_dependents();
  grid_dependency_wait();
  const int row = blockIdx.x, len = load(context_lens + row), vectors = len / 4;
  const uint4* keys = (const uint4*)(logits + row * logits_stride);
  unsigned sum = 0;
  for (int i = threadIdx.x; i < vectors; i += 4096) {
    uint4 v[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) v[u] = i + u * 1024 < vectors ? load(keys + i + u * 1024) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int u = 0; u < 4; ++u) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < 2048; i += 1024) {
    const unsigned position = (sum + i * 977u) % len;
    indices[row * 2048 + i] = load(block_table + row * table_stride + position / 64) * 64 + position % 64;
  }
}

#elif FLOOR == FUSED

// Slot, length and values of a row, and where it completes a group of 4 its rotation, the weights, and as many bytes as are
// stored of it, in the order of the rows. Half a warp a row, those of a warp 4 apart, ROWS rows in flight.
extern "C" __global__ void __launch_bounds__(128) move_bytes(const u8* x, long long, const float* norm_weight,
                                                              const float* cos_sin, const int* slots, const int* seq_lens,
                                                              u8* k_pages, long long,
#if FP8
                                                              float* k_scales, long long,
#endif
                                                              float, int rows) {
  launch_dependents();
  grid_dependency_wait();
  const int first = blockIdx.x * 8 * ROWS + threadIdx.x / 32 + threadIdx.x % 32 / 16 * 4, part = threadIdx.x % 16;
  int slot[ROWS], seq_len[ROWS];
  uint4 values[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const int row = min(first + i * 8, rows - 1);
    slot[i] = load(slots + row);
    seq_len[i] = load(seq_lens + row);
    values[i] = load((const uint4*)(x + row * 256ll) + part);
  }
  __syncwarp();  // or the compiler fetches values only of tokens that complete a group
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const int row = first + i * 8;
    if (row >= rows || slot[i] < 0 || seq_len[i] % 4 != 0) continue;
    const uint4* angles = (const uint4*)(cos_sin + (seq_len[i] - 4) * 64 + max(part - 8, 0) * 4);
    const uint4* weights = (const uint4*)(norm_weight + part * 8);
    uint4 key = values[i];
    const uint4* const sources[] = {angles, angles + 8, weights, weights + 1};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4 v = load(sources[i]);
      key.x ^= v.x, key.y ^= v.y, key.z ^= v.z, key.w ^= v.w;
    }
    const int place = row / 4;
#if FP8
    ((uint2*)(k_pages + place / 64 * 8448ll + place % 64 * 128))[part] = make_uint2(key.x ^ key.y, key.z ^ key.w);
    if (part == 0) k_scales[place / 64 * 2112ll + place % 64] = __uint_as_float(key.x);
#else
    ((uint4*)(k_pages + place * 256ll))[part] = key;
#endif
  }
}

#else

// Slot and key of a row, and as many bytes as are stored of it, in the order of the rows. Half a warp a row, ROWS rows in
// flight.
extern "C" __global__ void __launch_bounds__(128) move_bytes(const u8* keys, long long, const long long* slots, u8* k_pages,
                                                             long long,
#if FP8
                                                             float* k_scales, long long,
#endif
                                                             int rows) {
  launch_dependents();
  grid_dependency_wait();
  const int first = blockIdx.x * 8 * ROWS + threadIdx.x / 16, part = threadIdx.x % 16;
  long long slot[ROWS];
  uint4 key[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const int row = min(first + i * 8, rows - 1);
    slot[i] = load(slots + row);
    key[i] = load((const uint4*)(keys + row * 256ll) + part);
  }
  __syncwarp();  // or the compiler fetches a key only where its slot has come and is not negative
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const int row = first + i * 8;
    if (row >= rows || slot[i] < 0) continue;
#if FP8
    ((uint2*)(k_pages + row / 64 * 8448ll + row % 64 * 128))[part] = make_uint2(key[i].x ^ key[i].y, key[i].z ^ key[i].w);
    if (part == 0) k_scales[row / 64 * 2112ll + row % 64] = __uint_as_float(key[i].x);
#else
    ((uint4*)(k_pages + row * 256ll))[part] = key[i];
#endif
  }
}

#endif
