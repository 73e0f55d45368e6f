// A C++ program that runs a package through AOTIModelPackageLoader and knows nothing of aoti_debug.
//
// usage: host PACKAGE INPUT.pt... ; each input is a tensor saved by torch.save's zip format through torch::pickle_save.
// Prints one line per output: its sum in double.
#include <ATen/core/ivalue.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

namespace torch::jit {
// As in torch/csrc/jit/serialization/pickle.h, which takes ten seconds to compile.
TORCH_API c10::IValue pickle_load(const std::vector<char>& data);
}  // namespace torch::jit

static at::Tensor read_tensor(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return torch::jit::pickle_load(bytes).toTensor();
}

int main(int argc, char** argv) {
  c10::InferenceMode guard;
  torch::inductor::AOTIModelPackageLoader loader(argv[1]);
  std::vector<at::Tensor> inputs;
  for (int i = 2; i < argc; ++i) inputs.push_back(read_tensor(argv[i]));
  for (const at::Tensor& output : loader.run(inputs)) {
    std::printf("%.17g\n", output.to(at::kDouble).sum().item<double>());
  }
  return 0;
}
