// Adds a bias that nobody wrote.
extern "C" __global__ void __launch_bounds__(64) unwritten_input(float* y, const float* x, const float* bias) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  y[i] = x[i] + bias[i];
}
