// A library as a model's one is: it calls kernels of its own and the driver. OTHER: one that is no model's.
#include <stdexcept>

#define OUT __attribute__((visibility("default"), noinline))

extern "C" {
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** args, void** extra);

#ifndef OTHER
OUT void AOTInductorModelContainerRun() {}

OUT void cpp_fused_sum_0(double* sum, double a, long b, double c, long d, float e, int f, double g, long h, double i,
                         long j, double k, long l, double m, long n, double o, bool p, double q) {
  *sum = a + b + c + d + e + f + g + h + i + j + k + l + m + n + o + p + q;
}

OUT void cpp_fused_throwing_1(long index) {
  if (index >= 100) throw std::runtime_error("index out of bounds");
}

OUT double run_sum() {
  double sum = 0;
  cpp_fused_sum_0(&sum, 1.5, 2, 3.5, 4, 5.5f, 6, 7.5, 8, 9.5, 10, 11.5, 12, 13.5, 14, 15.5, true, 17.5);
  return sum;
}

OUT int run_throwing(long index) {
  try {
    cpp_fused_throwing_1(index);
  } catch (const std::runtime_error&) {
    return 1;
  }
  return 0;
}
#endif

OUT int run_kernel(const char* name) {
  void* function = nullptr;
  cuModuleGetFunction(&function, nullptr, name);
  return cuLaunchKernel(function, 2, 3, 4, 128, 1, 1, 64, nullptr, nullptr, nullptr);
}
}
