// Adds neighbours; the last thread's neighbour lies past the end of x.
extern "C" __global__ void __launch_bounds__(64) past_the_end(float* y, const float* x) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[i] + x[i + 1];
}
