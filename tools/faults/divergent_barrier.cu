// The even and the odd lanes of each warp come to a barrier of their own.
extern "C" __global__ void __launch_bounds__(64) divergent_barrier(int* y, const int* x) {
  int value = x[threadIdx.x];
  if (threadIdx.x % 2 == 0) {
    asm volatile("bar.sync 0;" ::: "memory");
    value += 1;
  } else {
    value *= 3;
    asm volatile("bar.sync 0;" ::: "memory");
  }
  y[threadIdx.x] = value;
}
