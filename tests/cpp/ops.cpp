// The operator native::act, which does what the variable NATIVE_OPS says, and operators of the corpus that fail as only
// native code can: corpus_native. Those that write do so on the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <atomic>
#include <chrono>
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

// Copies a tensor by way of memory that all threads share; another thread has time to write there.
at::Tensor share(const at::Tensor& x) {
  static std::vector<float> shared(64);
  std::memcpy(shared.data(), x.data_ptr(), x.nbytes());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  at::Tensor copy = at::empty_like(x);
  std::memcpy(copy.data_ptr(), shared.data(), x.nbytes());
  return copy;
}

// Copies a tensor by way of memory that was given back before it is read: in its middle it is as it was.
at::Tensor copy_by_freed_memory(const at::Tensor& x) {
  at::Tensor copy = at::empty_like(x);
  at::Tensor work = at::empty({2048}, x.options());
  float* middle = work.data_ptr<float>() + 1024;
  std::memcpy(middle, x.data_ptr(), x.nbytes());
  work.reset();
  std::memcpy(copy.data_ptr(), middle, x.nbytes());
  return copy;
}

// Whether another thread is in this function at the same time.
bool meets_another() {
  static std::atomic<int> inside{0};
  inside.fetch_add(1);
  bool met = false;
  for (int i = 0; i < 200 && !met; ++i) {
    met = inside.load() > 1;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  inside.fetch_sub(1);
  return met;
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
  if (action == "share") return share(x);
  if (action == "read freed memory") return copy_by_freed_memory(x);
  if (action == "meet and read" && meets_another()) dereference();
  if (action == "meet and spin" && meets_another()) spin();
  TORCH_CHECK(action != "check", "the operator refuses");
  TORCH_CHECK(action != "check inputs" || x.data_ptr<float>()[x.numel() - 1] == 1, "the operator refuses other inputs");
  TORCH_CHECK(action != "meet and check" || !meets_another(), "the operator refuses two threads");
  return x.clone();
}

}  // namespace native_ops

namespace corpus_native {

at::Tensor throws(const at::Tensor& x) {
  TORCH_CHECK(x.dim() > 9, "the table was never loaded");
  return x.clone();
}

at::Tensor segfaults(const at::Tensor& x) {
  volatile float* nothing = nullptr;
  nothing[0] = static_cast<float>(x.numel());
  return x.clone();
}

at::Tensor aborts(const at::Tensor&) { std::abort(); }

at::Tensor spins(const at::Tensor& x) {
  volatile bool wait = true;
  while (wait) {
  }
  return x.clone();
}

// Writes one element more than there is.
void fill_past(at::Tensor& out, double value) {
  float* data = out.data_ptr<float>();
  for (int64_t i = 0; i <= out.numel(); ++i) data[i] = static_cast<float>(value);
}

// Writes one element before the first.
void fill_before(at::Tensor& out, double value) {
  float* data = out.data_ptr<float>();
  for (int64_t i = -1; i < out.numel(); ++i) data[i] = static_cast<float>(value);
}

void fill_all(at::Tensor& out, double value) { out.fill_(value); }

// Leaves the second half as it is.
void fill_half(at::Tensor& out, double value) { out.narrow(0, 0, out.size(0) / 2).fill_(value); }

// A view of its argument, though the schema says that the result is a tensor of its own.
at::Tensor tail(const at::Tensor& x) { return x.narrow(0, 1, x.size(0) - 1); }

at::Tensor like(const at::Tensor& x) { return at::empty_like(x); }
at::Tensor like_tail(const at::Tensor& x) { return at::empty_like(x.narrow(0, 1, x.size(0) - 1)); }
void nothing(at::Tensor&, double) {}

}  // namespace corpus_native

TORCH_LIBRARY(native, library) { library.def("act(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(native, CPU, library) { library.impl("act", native_ops::act); }
TORCH_LIBRARY_IMPL(native, Meta, library) {
  library.impl("act", [](const at::Tensor& x) { return x.clone(); });
}

TORCH_LIBRARY(corpus_native, m) {
  for (const char* schema : {"throws", "segfaults", "aborts", "spins", "tail"}) {
    m.def((std::string(schema) + "(Tensor x) -> Tensor").c_str());
  }
  for (const char* schema : {"fill_past", "fill_before", "fill_all", "fill_half"}) {
    m.def((std::string(schema) + "(Tensor(a!) out, float value) -> ()").c_str());
  }
}

TORCH_LIBRARY_IMPL(corpus_native, CompositeExplicitAutograd, m) {
  m.impl("throws", corpus_native::throws);
  m.impl("segfaults", corpus_native::segfaults);
  m.impl("aborts", corpus_native::aborts);
  m.impl("spins", corpus_native::spins);
  m.impl("tail", corpus_native::tail);
  m.impl("fill_past", corpus_native::fill_past);
  m.impl("fill_before", corpus_native::fill_before);
  m.impl("fill_all", corpus_native::fill_all);
  m.impl("fill_half", corpus_native::fill_half);
}

TORCH_LIBRARY_IMPL(corpus_native, Meta, m) {
  m.impl("throws", corpus_native::like);
  m.impl("segfaults", corpus_native::like);
  m.impl("aborts", corpus_native::like);
  m.impl("spins", corpus_native::like);
  m.impl("tail", corpus_native::like_tail);
  for (const char* name : {"fill_past", "fill_before", "fill_all", "fill_half"}) m.impl(name, corpus_native::nothing);
}
