// Copies to shared memory asynchronously, and reads it without waiting for the copy.
extern "C" __global__ void __launch_bounds__(64) missing_wait(int* y, const int* x) {
  __shared__ int tile[64];
  const unsigned to = (unsigned)__cvta_generic_to_shared(tile + threadIdx.x);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(x + threadIdx.x) : "memory");
  asm volatile("cp.async.commit_group;" ::: "memory");
  y[threadIdx.x] = tile[threadIdx.x];
}
