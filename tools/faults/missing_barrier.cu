// Turns 64 values round through shared memory, without the barrier between stores and loads.
extern "C" __global__ void __launch_bounds__(64) missing_barrier(int* y, const int* x) {
  __shared__ int tile[64];
  tile[threadIdx.x] = x[threadIdx.x];
  y[threadIdx.x] = tile[63 - threadIdx.x];
}
