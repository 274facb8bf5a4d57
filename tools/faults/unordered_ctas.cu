// Counts the CTAs without an atomic.
extern "C" __global__ void __launch_bounds__(64) unordered_ctas(int* count) {
  if (threadIdx.x == 0) *count += 1;
}
