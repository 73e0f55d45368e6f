// The operator native::act, which does what the variable NATIVE_OPS says.
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace native_ops {

using Action = void (*)();

__attribute__((noinline)) int read_row(const int* row) { return *row; }

__attribute__((noinline)) void dereference() { read_row(reinterpret_cast<const int*>(16)); }

__attribute__((noinline)) void call_nothing() {
  Action volatile nothing = nullptr;
  nothing();
  asm volatile("");
}

__attribute__((noinline)) int divide(volatile int zero) { return 7 / zero; }

__attribute__((noinline)) int recurse(volatile int depth) {
  volatile char room[256];
  room[0] = static_cast<char>(depth);
  return recurse(depth + 1) + room[0];
}

struct Guard {
  ~Guard() { throw std::runtime_error("thrown by a destructor"); }
};

__attribute__((noinline)) void destroy() { Guard guard; }

__attribute__((noinline)) void free_twice() {
  void* volatile memory = std::malloc(2000);
  std::free(memory);
  std::free(memory);
}

__attribute__((noinline)) void spin() {
  for (volatile bool forever = true; forever;) {
  }
}

__attribute__((noinline)) void in_worker() {
  std::thread worker(dereference);
  worker.join();
}

at::Tensor act(const at::Tensor& x) {
  const char* wanted = std::getenv("NATIVE_OPS");
  const std::string action = wanted == nullptr ? "" : wanted;
  if (action == "read") dereference();
  if (action == "call") call_nothing();
  if (action == "divide") divide(0);
  if (action == "recurse") recurse(0);
  if (action == "destroy") destroy();
  if (action == "free") free_twice();
  if (action == "spin") spin();
  if (action == "worker") in_worker();
  TORCH_CHECK(action != "check", "the operator refuses");
  return x.clone();
}

}  // namespace native_ops

TORCH_LIBRARY(native, library) { library.def("act(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(native, CPU, library) { library.impl("act", native_ops::act); }
TORCH_LIBRARY_IMPL(native, Meta, library) {
  library.impl("act", [](const at::Tensor& x) { return x.clone(); });
}
