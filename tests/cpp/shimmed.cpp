// The C shim of aotidebugtest::shimmed (tests/models.py).
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

extern "C" AOTITorchError aoti_torch_cpu_shimmed(AtenTensorHandle x, double factor, AtenTensorHandle* ret0) {
  return aoti_torch_cpu_mul_Scalar(x, factor, ret0);
}
