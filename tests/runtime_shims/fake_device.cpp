// A device half whose memory is host memory and whose streams do everything at once. Tensors that the test marks are
// "on" it (marked_tensors.h).
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "marked_tensors.h"
#include "statistics/statistics.h"
#include "tensors/elements.h"
#include "tensors/strided.h"
#include "tensors/torch_shim.h"

extern "C" __attribute__((weak)) void h_exempt_allocations(int change);  // of the harness, where there is one

namespace {

constexpr size_t kRing = 8;  // results that may wait on a stream

std::mutex g_mutex;
std::map<void*, std::deque<aoti_debug::device::StatsResult>> g_results;
std::atomic<int> g_capturing{0}, g_error{0}, g_copies_fail{0}, g_crumbs_fail{0}, g_no_staging{0};
std::atomic<int> g_kernels{0};   // that measured
std::atomic<int> g_measured{0};  // tensors
std::atomic<uint64_t> g_copied{0}, g_staging{0}, g_most_staging{0};
std::atomic<int> g_no_graph_nodes{0};
std::atomic<int> g_tears{0};                         // replays do not end the storing of statistics
std::atomic<int> g_unread{0};                        // 1: no kernel for statistics is launched
std::atomic<int> g_guards_fail{0};                   // 1: guards are not filled, 2: not compared
std::vector<std::pair<void*, std::string>> g_order;  // what was asked of which stream
std::atomic<int> g_keeps_order{0};
std::deque<GuardDamage> g_damages;  // taken when somebody waits, or after an error
constexpr uint8_t kGuard = 0x5a;
std::atomic<int> g_flight_fails{0}, g_flight_waits{0};
std::atomic<int> g_hangs{0};  // a kernel runs on: nothing behind it happens
constexpr uint64_t kBehindHang = ~uint64_t{0};
uint8_t* g_crumbs = nullptr;
std::vector<std::function<void()>> g_graph;  // what a replay does
uint8_t* g_flight = nullptr;
std::map<void*, std::deque<std::function<void()>>> g_work;  // what streams have yet to do for the flight recorder

// What a device does in memory of its own.
struct DeviceMemory {
  DeviceMemory() { exempt(1); }
  ~DeviceMemory() { exempt(-1); }
  static void exempt(int change) {
    if (h_exempt_allocations != nullptr) h_exempt_allocations(change);
  }
};

void add_node(std::function<void()> what) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_graph.push_back(std::move(what));
}

void wait_for_end() {
  while (g_hangs != 0) usleep(1000);
}

void work(void* stream, std::function<void()> what) {
  if (g_flight_waits == 0) return what();
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_work[stream].push_back(std::move(what));
}

void note(void* stream, const char* what) {
  if (g_keeps_order == 0) return;
  const DeviceMemory memory;
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_order.emplace_back(stream, what);
}

}  // namespace

// What was asked of the device so far, "STREAM:what " each, and forgets it. Returns how many bytes there are.
EXPORT size_t f_order(char* text, size_t bytes) {
  const DeviceMemory memory;
  const std::lock_guard<std::mutex> lock(g_mutex);
  std::string all;
  for (const auto& [stream, what] : g_order) {
    all += std::to_string(reinterpret_cast<uintptr_t>(stream)) + ":" + what + " ";
  }
  g_order.clear();
  snprintf(text, bytes, "%s", all.c_str());
  return all.size();
}

static void pass_replays(uint32_t count);  // that leave nothing

EXPORT void f_set(const char* what, int value) {
  if (strcmp(what, "capturing") == 0) g_capturing = value;
  if (strcmp(what, "error") == 0) g_error = value;
  if (strcmp(what, "hangs") == 0) g_hangs = value;
  if (strcmp(what, "copies fail") == 0) g_copies_fail = value;
  if (strcmp(what, "crumbs fail") == 0) g_crumbs_fail = value;
  if (strcmp(what, "replay") == 0) {
    for (int i = 0; i < value; ++i) g_graph[static_cast<size_t>(i)]();
  }
  if (strcmp(what, "passed replays") == 0) pass_replays(static_cast<uint32_t>(value));
  if (strcmp(what, "no staging") == 0) g_no_staging = value;
  if (strcmp(what, "no graph nodes") == 0) g_no_graph_nodes = value;
  if (strcmp(what, "tears") == 0) g_tears = value;
  if (strcmp(what, "unread") == 0) g_unread = value;
  if (strcmp(what, "guards fail") == 0) g_guards_fail = value;
  if (strcmp(what, "flight fails") == 0) g_flight_fails = value;
  if (strcmp(what, "flight waits") == 0) g_flight_waits = value;
  if (strcmp(what, "keeps order") == 0) g_keeps_order = value;
}
EXPORT void f_work(void* stream, int count) {
  for (; count > 0 && !g_work[stream].empty(); --count) {
    g_work[stream].front()();
    g_work[stream].pop_front();
  }
}
EXPORT int f_kernels() { return g_kernels; }
EXPORT int f_measured() { return g_measured; }
EXPORT uint64_t f_copied() { return g_copied; }
EXPORT uint64_t f_most_staging() { return g_most_staging; }

namespace aoti_debug::device {

bool owns(int32_t device_type) { return device_type == 1; }

bool register_crumbs(void* base, size_t) {
  g_crumbs = static_cast<uint8_t*>(base);
  return g_crumbs_fail == 0;
}

bool write_crumb(void* stream, size_t offset, uint32_t value) {
  const DeviceMemory memory;
  note(stream, "crumb");
  if (g_capturing != 0) {
    add_node([=] { memcpy(g_crumbs + offset, &value, sizeof(value)); });
    return true;
  }
  __atomic_store_n(reinterpret_cast<uint32_t*>(g_crumbs + offset), value, __ATOMIC_RELAXED);
  return true;
}

// The statistics of a tensor in the last replays.
struct FakeKept {
  explicit FakeKept(uint32_t replays) : results(replays) {}

  std::atomic<uint32_t> last{0};
  std::vector<StatsResult> results;
};

// A call that is captured, and the tensor whose statistics were added last.
struct FakeCapture {
  uint32_t replays = 0;
  StatsResult result{};
  std::deque<CapturedWatch> found;
  std::deque<FakeKept> kept;
};

static std::deque<FakeCapture> g_captures;

static void add_replays(uint32_t count) {
  for (FakeCapture& call : g_captures) call.replays += count;
}

void* begin_captured(void*, CrumbWord first, size_t replays_offset) {
  const DeviceMemory memory;
  if (g_no_graph_nodes != 0) return nullptr;
  FakeCapture* const call = [] {
    const std::lock_guard<std::mutex> lock(g_mutex);
    return &g_captures.emplace_back();
  }();
  add_node([=] {
    ++call->replays;
    memcpy(g_crumbs + replays_offset, &call->replays, sizeof(uint32_t));
    memcpy(g_crumbs + first.offset, &first.value, sizeof(uint32_t));
  });
  return call;
}

static void find_specials(const TensorView& view, StatsResult* result);

bool add_stats(void* captured, void*, const TensorView& view) {
  const DeviceMemory memory;
  FakeCapture* const call = static_cast<FakeCapture*>(captured);
  const std::vector<int64_t> sizes(view.sizes, view.sizes + view.ndim), strides(view.strides, view.strides + view.ndim);
  add_node([=] {
    TensorView mine = view;
    mine.sizes = sizes.data();
    mine.strides = strides.data();
    call->result = StatsResult{};
    host_statistics(mine, &call->result.stats);
    call->result.stats.numel = static_cast<uint64_t>(view.numel);
    if (call->result.stats.integer == 0) find_specials(mine, &call->result);
  });
  return true;
}

const CapturedWatch* add_watch(void* captured, void*, const WatchNode* nodes, uint32_t count) {
  const DeviceMemory memory;
  FakeCapture* const call = static_cast<FakeCapture*>(captured);
  CapturedWatch* const found = &call->found.emplace_back();
  const std::vector<WatchNode> condition(nodes, nodes + count);
  add_node([=] {
    ++found->evaluated;
    const StatsResult& result = call->result;
    const uint32_t statistic = condition_holds(condition.data(), count, result.stats);
    if (statistic == WATCH_NUMBER || found->hits++ != 0) return;
    found->replay = call->replays;
    found->statistic = statistic;
    found->stats = result.stats;
    found->nan_index = result.nan_index;
    found->pos_inf_index = result.pos_inf_index;
    found->neg_inf_index = result.neg_inf_index;
  });
  return found;
}

static void measure(const TensorView& view, StatsWanted wanted, StatsResult* result);

void keep_stats(void* captured, void*, const TensorView* views, int count, StatsWanted wanted, uint32_t replays,
                const void** kept) {
  const DeviceMemory memory;
  FakeCapture* const call = static_cast<FakeCapture*>(captured);
  std::vector<std::function<void()>> work;
  for (int i = 0; i < count; ++i) {
    FakeKept* const mine = &call->kept.emplace_back(replays);
    const TensorView view = views[i];
    const std::vector<int64_t> sizes(view.sizes, view.sizes + view.ndim),
        strides(view.strides, view.strides + view.ndim);
    kept[i] = mine;
    work.push_back([=] {
      TensorView same = view;
      same.sizes = sizes.data();
      same.strides = strides.data();
      measure(same, wanted, &mine->results[call->replays % mine->results.size()]);
      mine->last = g_tears != 0 ? UINT32_MAX : call->replays;
    });
  }
  add_node([work] {
    for (const auto& each : work) each();
  });
}

Kept read_last(const void* kept, StatsResult* result, uint32_t* replay) {
  const FakeKept& mine = *static_cast<const FakeKept*>(kept);
  *replay = mine.last;
  if (*replay == 0) return Kept::kNothing;
  if (*replay == UINT32_MAX) return Kept::kTorn;
  *result = mine.results[*replay % mine.results.size()];
  return Kept::kWhole;
}

Kept read_replay(const void* kept, uint32_t replay, StatsResult* result) {
  const FakeKept& mine = *static_cast<const FakeKept*>(kept);
  if (mine.last < replay) return Kept::kNothing;
  if (mine.last - replay >= mine.results.size()) return Kept::kTorn;
  *result = mine.results[replay % mine.results.size()];
  return Kept::kWhole;
}

bool unregister_flight() { return true; }

bool register_flight(void* base, size_t) {
  g_flight = static_cast<uint8_t*>(base);
  return g_flight_fails == 0;
}

bool write_flight(void* stream, size_t offset, uint32_t value) {
  const DeviceMemory memory;
  work(stream, [=] { __atomic_store_n(reinterpret_cast<uint32_t*>(g_flight + offset), value, __ATOMIC_RELAXED); });
  return true;
}

bool copy_to_flight(void* stream, uint64_t address, size_t bytes, void* host) {
  const DeviceMemory memory;
  if (g_copies_fail != 0) return false;
  work(stream, [=] { memcpy(host, reinterpret_cast<const void*>(static_cast<uintptr_t>(address)), bytes); });
  return true;
}

void* current_stream(int32_t) { return nullptr; }

bool wait_stream(void* stream) {
  const DeviceMemory memory;
  note(stream, "wait");
  return g_error == 0;
}

bool is_capturing(void*) { return g_capturing != 0; }

int32_t pending_error(void*, char* text, size_t text_bytes) {
  snprintf(text, text_bytes, "%s", g_error != 0 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "");
  return g_error;
}

bool begin_copy(void* stream, const TensorView& view, size_t first_byte, size_t bytes, void* host, uint64_t* ticket) {
  const DeviceMemory memory;
  note(stream, "copy");
  *ticket = g_hangs != 0 ? kBehindHang : first_byte;
  std::vector<uint8_t> whole(static_cast<size_t>(view.numel) * view.element_bytes);
  memcpy(host, StridedReader(view).read(0, view.numel, whole.data()) + first_byte, bytes);
  g_copied += bytes;
  return g_copies_fail == 0;
}

bool wait_copy(uint64_t ticket) {
  if (ticket == kBehindHang) wait_for_end();
  return g_error == 0;
}

bool write_memory(void*, uint64_t address, size_t bytes, const void* host) {
  if (g_copies_fail != 0) return false;
  memcpy(reinterpret_cast<void*>(address), host, bytes);
  return true;
}

void* allocate_staging(size_t bytes) {
  if (g_no_staging != 0) return nullptr;
  g_staging += bytes;
  if (g_staging > g_most_staging) g_most_staging = g_staging.load();
  return malloc(bytes);
}
void free_staging(void* memory) { free(memory); }

// The first of each kind of special values.
static void find_specials(const TensorView& view, StatsResult* result) {
  std::vector<uint8_t> elements(static_cast<size_t>(view.numel) * view.element_bytes);
  const uint8_t* from = StridedReader(view).read(0, view.numel, elements.data());
  for (int64_t i = view.numel - 1; i >= 0; --i) {
    const double value = element_value(view.dtype, from + static_cast<size_t>(i) * view.element_bytes);
    if (std::isnan(value)) result->nan_index = static_cast<uint64_t>(i);
    if (std::isinf(value)) (value > 0 ? result->pos_inf_index : result->neg_inf_index) = static_cast<uint64_t>(i);
  }
}

static void measure(const TensorView& view, StatsWanted wanted, StatsResult* result) {
  memset(result, 0, sizeof(*result));
  if (g_unread != 0) {
    constexpr char kWhy[] = "CUDA_ERROR_OUT_OF_MEMORY";
    result->stats.reserved[0] = STATS_SKIPPED;
    result->stats.value_bytes = sizeof(kWhy) - 1;
    memcpy(result->values, kWhy, sizeof(kWhy) - 1);
    return;
  }
  host_statistics(view, &result->stats);
  if (result->stats.integer == 0) find_specials(view, result);
  if (wanted != StatsWanted::kAll || view.numel > 64) return;
  std::vector<uint8_t> elements(static_cast<size_t>(view.numel) * view.element_bytes);
  const uint8_t* from = StridedReader(view).read(0, view.numel, elements.data());
  memcpy(result->values, from, elements.size());
  result->stats.value_bytes = static_cast<uint32_t>(elements.size());
}

int begin_stats(void* stream, const TensorView* views, int count, StatsWanted wanted) {
  note(stream, "statistics");
  const DeviceMemory memory;
  const std::lock_guard<std::mutex> lock(g_mutex);
  auto& results = g_results[stream];
  ++g_kernels;
  for (int i = 0; i < count; ++i) {
    if (results.size() == kRing) return i;
    ++g_measured;
    measure(views[i], wanted, &results.emplace_back());
  }
  return count;
}

int take_stats(void* stream, StatsResult* results, int capacity, bool wait) {
  const DeviceMemory memory;
  if (wait) wait_for_end();
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (g_error != 0) return wait ? -1 : 0;
  auto& ready = g_results[stream];
  int count = 0;
  for (; count < capacity && !ready.empty(); ready.pop_front()) results[count++] = ready.front();
  return count;
}

void forget_stats(void* stream) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_results[stream].clear();
}

void end_run() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (auto& [stream, results] : g_results) results.clear();
  g_damages.clear();
}

bool fill_guarded(void* stream, const GuardedMemory& memory, uint8_t poison) {
  if (g_guards_fail == 1) return false;
  note(stream, "fill");
  const uint64_t guard = guard_bytes(memory.bytes);
  uint8_t* const data = reinterpret_cast<uint8_t*>(memory.data);
  memset(data - guard, kGuard, guard);
  memset(data, poison, memory.bytes);
  memset(data + memory.bytes, kGuard, guard);
  return true;
}

// Only the byte behind the buffer counts.
bool check_guards(void* stream, const GuardedLaunch& launch, const GuardedMemory* memories, uint32_t count) {
  const DeviceMemory memory;
  if (g_guards_fail == 2) return false;
  note(stream, "guards");
  const std::lock_guard<std::mutex> lock(g_mutex);
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t* const behind = reinterpret_cast<uint8_t*>(memories[i].data) + memories[i].bytes;
    if (*behind == kGuard) continue;
    GuardDamage damage{};
    damage.call = launch.call;
    damage.launch = launch.launch;
    damage.allocation = memories[i].allocation;
    damage.first = damage.last = static_cast<int64_t>(memories[i].bytes);
    damage.damaged = 1;
    g_damages.push_back(damage);
    *behind = kGuard;
  }
  return true;
}

int take_damage(void*, GuardDamage* damages, int capacity, bool wait) {
  if (g_error != 0 && wait) return -1;
  if (!wait && g_error == 0) return 0;
  const std::lock_guard<std::mutex> lock(g_mutex);
  int count = 0;
  for (; count < capacity && !g_damages.empty(); g_damages.pop_front()) damages[count++] = g_damages.front();
  return count;
}

}  // namespace aoti_debug::device

static void pass_replays(uint32_t count) { aoti_debug::device::add_replays(count); }
