// A device half whose memory is host memory and whose streams do everything at once. Tensors that the test marks are
// "on" it: the shim's answer about their device is replaced.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "device.h"
#include "statistics.h"
#include "strided.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr size_t kRing = 8;  // results that may wait on a stream

std::mutex g_mutex;
std::set<void*> g_marked;
std::map<void*, std::deque<aoti_debug::device::StatsResult>> g_results;
std::atomic<int> g_capturing{0}, g_error{0}, g_copies_fail{0}, g_crumbs_fail{0}, g_no_staging{0};
std::atomic<uint64_t> g_copied{0}, g_staging{0}, g_most_staging{0};
uint8_t* g_crumbs = nullptr;

}  // namespace

EXPORT void f_mark(AtenTensorHandle tensor) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_marked.insert(tensor);
}
EXPORT void f_set(const char* what, int value) {
  if (strcmp(what, "capturing") == 0) g_capturing = value;
  if (strcmp(what, "error") == 0) g_error = value;
  if (strcmp(what, "copies fail") == 0) g_copies_fail = value;
  if (strcmp(what, "crumbs fail") == 0) g_crumbs_fail = value;
  if (strcmp(what, "no staging") == 0) g_no_staging = value;
}
EXPORT uint64_t f_copied() { return g_copied; }
EXPORT uint64_t f_most_staging() { return g_most_staging; }

// The library is linked so that these come before libtorch's.
AOTITorchError aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* type) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  *type = g_marked.count(tensor) != 0 ? 1 : 0;
  return AOTI_TORCH_SUCCESS;
}
AOTITorchError aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  *index = g_marked.count(tensor) != 0 ? 0 : -1;
  return AOTI_TORCH_SUCCESS;
}

namespace aoti_debug::device {

bool owns(int32_t device_type) { return device_type == 1; }

bool register_crumbs(void* base, size_t) {
  g_crumbs = static_cast<uint8_t*>(base);
  return g_crumbs_fail == 0;
}

bool write_crumb(void*, size_t offset, uint32_t value) {
  __atomic_store_n(reinterpret_cast<uint32_t*>(g_crumbs + offset), value, __ATOMIC_RELAXED);
  return true;
}

bool is_capturing(void*) { return g_capturing != 0; }

int32_t pending_error(void*, char* text, size_t text_bytes) {
  snprintf(text, text_bytes, "%s", g_error != 0 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "");
  return g_error;
}

bool begin_copy(void*, const TensorView& view, size_t first_byte, size_t bytes, void* host, uint64_t* ticket) {
  *ticket = first_byte;
  std::vector<uint8_t> whole(static_cast<size_t>(view.numel) * view.element_bytes);
  memcpy(host, StridedReader(view).read(0, view.numel, whole.data()) + first_byte, bytes);
  g_copied += bytes;
  return g_copies_fail == 0;
}

bool wait_copy(uint64_t) { return g_error == 0; }

void* allocate_staging(size_t bytes) {
  if (g_no_staging != 0) return nullptr;
  g_staging += bytes;
  if (g_staging > g_most_staging) g_most_staging = g_staging.load();
  return malloc(bytes);
}
void free_staging(void* memory) { free(memory); }

bool begin_stats(void* stream, const TensorView& view, bool with_statistics) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  auto& results = g_results[stream];
  if (results.size() == kRing) return false;
  StatsResult& result = results.emplace_back();
  memset(&result, 0, sizeof(result));
  host_statistics(view, &result.stats);
  if (!with_statistics || view.numel > 64) return true;
  std::vector<uint8_t> elements(static_cast<size_t>(view.numel) * view.element_bytes);
  const uint8_t* from = StridedReader(view).read(0, view.numel, elements.data());
  memcpy(result.values, from, elements.size());
  result.stats.value_bytes = static_cast<uint32_t>(elements.size());
  return true;
}

int take_stats(void* stream, StatsResult* results, int capacity, bool wait) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_error != 0) return wait ? -1 : 0;
  auto& ready = g_results[stream];
  int count = 0;
  for (; count < capacity && !ready.empty(); ready.pop_front()) results[count++] = ready.front();
  return count;
}

}  // namespace aoti_debug::device
