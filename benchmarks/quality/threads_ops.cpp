// Operators that share state between threads as the variable PLANTED says, for threads.py: store and load, between
// which a model has a kernel; touch, which is given a weight that it may write to; and ones that look similar and are
// right.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr int64_t kMost = 1 << 16;

const std::string& planted() {
  static const std::string name = std::getenv("PLANTED") == nullptr ? "" : std::getenv("PLANTED");
  return name;
}

// Adds neighbours by way of a buffer.
void neighbours(const float* in, float* out, float* buffer, int64_t n) {
  for (int64_t i = 0; i < n; ++i) buffer[i] = in[i] * 2;
  for (int64_t i = 0; i < n; ++i) out[i] = buffer[i] + buffer[(i + 1) % n];
}

float* static_buffer() {
  static std::vector<float> buffer(kMost);
  return buffer.data();
}

float entry(int64_t i) {
  float value = static_cast<float>(i);
  for (int step = 0; step < 8; ++step) value = std::sin(value + static_cast<float>(step));
  return value;
}

// A table that the first call fills, in milliseconds; that it is there is said before it is, as without a lock.
const float* lazy_table() {
  static std::vector<float> table(kMost);
  static volatile bool is_begun = false;
  if (!is_begun) {
    is_begun = true;
    for (int64_t i = 0; i < kMost; ++i) table[i] = entry(i);
  }
  return table.data();
}

const float* safe_table() {
  static const std::vector<float> table = [] {
    std::vector<float> values(kMost);
    for (int64_t i = 0; i < kMost; ++i) values[i] = entry(i);
    return values;
  }();
  return table.data();
}

const float* kept_pointer = nullptr;  // to the input of the last store
volatile float kept_scale = 1;        // of the last store
int inside = 0;                       // calls of store that have begun and not ended; not atomic

float largest(const float* in, int64_t n) {
  float found = 0;
  for (int64_t i = 0; i < n; ++i) found = std::max(found, std::fabs(in[i]));
  return found;
}

at::Tensor store(const at::Tensor& x) {
  const std::string& what = planted();
  const float* in = x.data_ptr<float>();
  at::Tensor result = at::empty_like(x);
  float* out = result.data_ptr<float>();
  const int64_t n = x.numel();
  if (what == "scratch") {
    neighbours(in, out, static_buffer(), n);
  } else if (what == "mutex") {
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    neighbours(in, out, static_buffer(), n);
  } else if (what == "thread_local") {
    thread_local std::vector<float> buffer(kMost);
    neighbours(in, out, buffer.data(), n);
  } else if (what == "lazy" || what == "safe static") {
    const float* table = what == "lazy" ? lazy_table() : safe_table();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] + table[i];
  } else if (what == "counter") {
    ++*const_cast<volatile int*>(&inside);
    for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]) * static_cast<float>(*const_cast<volatile int*>(&inside));
    --*const_cast<volatile int*>(&inside);
  } else if (what == "static tensor") {
    static at::Tensor work = at::empty_like(x);
    work.copy_(x);
    work.mul_(3);
    result.copy_(work);
  } else if (what == "atomic counter") {
    static std::atomic<int> calls{0};
    calls.fetch_add(1);
    std::memcpy(out, in, x.nbytes());
  } else {
    std::memcpy(out, in, x.nbytes());
  }
  if (what == "kept pointer") kept_pointer = out;
  if (what == "global") kept_scale = largest(in, n);
  return result;
}

at::Tensor load(const at::Tensor& x, const at::Tensor& stored) {
  const std::string& what = planted();
  if (what == "alias") {  // the result lies in memory that all calls share
    std::memcpy(static_buffer(), x.data_ptr(), x.nbytes());
    return at::from_blob(static_buffer(), x.sizes(), x.options());
  }
  const float* in = x.data_ptr<float>();
  const float* kept = what == "kept pointer" && kept_pointer != nullptr ? kept_pointer : stored.data_ptr<float>();
  const float scale = what == "global" ? kept_scale : largest(stored.data_ptr<float>(), stored.numel());
  at::Tensor result = at::empty_like(x);
  float* out = result.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] + kept[i] * scale;
  return result;
}

// Halves a weight while it works, and doubles it afterwards, which is exact.
at::Tensor touch(const at::Tensor& x, at::Tensor& weight) {
  if (planted() != "weight") return x.clone();
  float* values = weight.data_ptr<float>();
  for (int64_t i = 0; i < weight.numel(); ++i) values[i] *= 0.5F;
  at::Tensor result = x.clone();
  float* out = result.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = std::tanh(out[i]);
  for (int64_t i = 0; i < weight.numel(); ++i) values[i] *= 2;
  return result;
}

at::Tensor like(const at::Tensor& x) { return at::empty_like(x); }

}  // namespace

TORCH_LIBRARY(planted, m) {
  m.def("store(Tensor x) -> Tensor");
  m.def("load(Tensor x, Tensor stored) -> Tensor");
  m.def("touch(Tensor x, Tensor(a!) weight) -> Tensor");
}
TORCH_LIBRARY_IMPL(planted, CPU, m) {
  m.impl("store", store);
  m.impl("load", load);
  m.impl("touch", touch);
}
TORCH_LIBRARY_IMPL(planted, Meta, m) {
  m.impl("store", like);
  m.impl("load", [](const at::Tensor& x, const at::Tensor&) { return like(x); });
  m.impl("touch", [](const at::Tensor& x, at::Tensor&) { return like(x); });
}
