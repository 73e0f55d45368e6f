// Operators of the corpus that fail as only native code can. Those that write do so on the CPU.

#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cstdlib>

namespace {

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

}  // namespace

TORCH_LIBRARY(corpus_native, m) {
  for (const char* schema : {"throws", "segfaults", "aborts", "spins", "tail"}) {
    m.def((std::string(schema) + "(Tensor x) -> Tensor").c_str());
  }
  for (const char* schema : {"fill_past", "fill_before", "fill_all", "fill_half"}) {
    m.def((std::string(schema) + "(Tensor(a!) out, float value) -> ()").c_str());
  }
}

TORCH_LIBRARY_IMPL(corpus_native, CompositeExplicitAutograd, m) {
  m.impl("throws", throws);
  m.impl("segfaults", segfaults);
  m.impl("aborts", aborts);
  m.impl("spins", spins);
  m.impl("tail", tail);
  m.impl("fill_past", fill_past);
  m.impl("fill_before", fill_before);
  m.impl("fill_all", fill_all);
  m.impl("fill_half", fill_half);
}

TORCH_LIBRARY_IMPL(corpus_native, Meta, m) {
  m.impl("throws", like);
  m.impl("segfaults", like);
  m.impl("aborts", like);
  m.impl("spins", like);
  m.impl("tail", like_tail);
  for (const char* name : {"fill_past", "fill_before", "fill_all", "fill_half"}) m.impl(name, nothing);
}
