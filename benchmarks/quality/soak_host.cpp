// A host of instrumented packages, for soak.py: loads them again and again and calls them from many threads.
//
// usage: soak_host LAUNCHES PLAIN PLAIN INPUT PACKAGE LAUNCHES_OF_A_CALL PACKAGE LAUNCHES_OF_A_CALL
//
// SOAK_LEVELS names the levels that the packages are loaded at, in turn. Every output is compared with that of its
// PLAIN, bit for bit, while the weights are replaced by equal ones: updated in place, on the inactive side, swapped and
// folded. After each load it prints `LAUNCHES RESIDENT_BYTES OPEN_FILES`; exits with 1 after a line that says what went
// wrong.
#include <dirent.h>
#include <malloc.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kThreads = 8;
constexpr size_t kRunners = 4;
constexpr int kCallsOfALoad = 100;

using Loader = torch::inductor::AOTIModelPackageLoader;

at::Tensor read_tensor(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return torch::jit::pickle_load(bytes).toTensor();
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(a.contiguous().data_ptr(), b.contiguous().data_ptr(), a.nbytes()) == 0;
}

size_t open_files() {
  size_t count = 0;
  DIR* directory = opendir("/proc/self/fd");
  while (directory != nullptr && readdir(directory) != nullptr) ++count;
  if (directory != nullptr) closedir(directory);
  return count;
}

// Memory of this process that belongs to no file: torch keeps the libraries of packages mapped.
size_t anonymous_bytes() {
  malloc_trim(0);
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  size_t kib = 0;
  while (file >> word) {
    if (word == "Anonymous:") file >> kib;
  }
  return kib * 1024;
}

// Replaces the weights by equal ones, in place or on the inactive side. No call may run meanwhile: torch's own packages
// crash and compute something else if weights change under a call.
void update_weights(Loader& loader, bool inactive) {
  auto* runner = loader.get_runner();
  std::unordered_map<std::string, at::Tensor> weights;
  for (const auto& [name, tensor] : runner->extract_constants_map(/*use_inactive=*/false)) {
    weights.emplace(name, tensor.clone());
  }
  loader.load_constants(weights, /*use_inactive=*/inactive, /*check_full_update=*/true);
  if (inactive) runner->swap_constant_buffer();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) return 2;
  c10::InferenceMode guard;
  const long wanted = std::atol(argv[1]);
  const std::string levels = std::getenv("SOAK_LEVELS");
  const at::Tensor input = read_tensor(argv[4]);
  setenv("AOTI_DEBUG_LEVEL", "0", 1);
  const at::Tensor all_expected[] = {Loader(argv[2], "model", false, 1).run({input})[0],
                                     Loader(argv[3], "model", false, 1).run({input})[0]};
  std::atomic<long> launches{0};
  std::atomic<bool> wrong{false};
  for (int load = 0; launches < wanted && !wrong; ++load) {
    setenv("AOTI_DEBUG_LEVEL", std::string(1, levels[static_cast<size_t>(load * 2) % (levels.size() + 1)]).c_str(), 1);
    const int package = 5 + load % 2 * 2;
    const at::Tensor& expected = all_expected[load % 2];
    Loader loader(argv[package], "model", false, kRunners);
    const long of_a_call = std::atol(argv[package + 1]);
    for (const bool inactive : {false, true}) {
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread) {
        threads.emplace_back([&] {
          c10::InferenceMode inner;
          for (int i = 0; i < kCallsOfALoad / kThreads / 2; ++i) {
            if (!equal_bits(loader.run({input})[0], expected)) wrong = true;
            launches += of_a_call;
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      update_weights(loader, inactive);
    }
    std::printf("%ld %zu %zu\n", launches.load(), anonymous_bytes(), open_files());
    std::fflush(stdout);
  }
  if (wrong) std::fprintf(stderr, "soak_host: another output than that of the plain package\n");
  return wrong ? 1 : 0;
}
