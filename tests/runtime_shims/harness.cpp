// What the tests drive through ctypes: site tables that Python fills, the functions that generated code calls, and some
// of the runtime's insides.
#include <dlfcn.h>
#include <pthread.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "aoti_debug.h"
#include "crash/breadcrumb_pace.h"
#include "formats/content_hash.h"
#include "formats/guard_zones.h"
#include "formats/journal_format.h"
#include "machine/clock.h"
#include "machine/parallel.h"
#include "run/configuration.h"
#include "saving/safetensors_file.h"
#include "statistics/statistics.h"
#include "tensors/hashing.h"
#include "tensors/strided.h"
#include "watch/watchpoints.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr uint32_t kSites = 64;
constexpr uint32_t kKernels = 8;
AotiDebugSite g_sites[kSites];
AotiDebugKernel g_kernels[kKernels];
char g_filter[1024];
constexpr char kManifest[] =
    "{\"format\": 1, \"tool_version\": \"0.1.0\", \"torch_version\": \"2.13.0\", \"sites\": []}";

__attribute__((constructor)) void name_sites() {
  for (AotiDebugSite& site : g_sites) site.kernel = "";
}

std::atomic<uint64_t> g_allocations{0};  // of this library, since h_fail_allocations
std::atomic<uint64_t> g_first_failing{0}, g_n_failing{0};
std::atomic<const char*> g_failure{nullptr};
thread_local int t_exempt = 0;

using Wait = int (*)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
Wait g_wait = nullptr;                // found at once: who unloads the library has the lock that a search takes
std::atomic<bool> g_set_back{false};  // the clock that threads wait by, for long

__attribute__((constructor)) void find_wait() {
  g_wait = reinterpret_cast<Wait>(dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
}

void* allocate(size_t bytes) {
  if (t_exempt == 0 && g_allocations.fetch_add(1) - g_first_failing.load() < g_n_failing.load()) {
    if (const char* failure = g_failure.load()) throw std::runtime_error(failure);
    throw std::bad_alloc();
  }
  void* memory = malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The library is linked so that these come before those of libstdc++, for its strings, too.
void* operator new(size_t bytes) { return allocate(bytes); }
void* operator new[](size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { free(memory); }
void operator delete[](void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
void operator delete[](void* memory, size_t) noexcept { free(memory); }
template class std::basic_string<char>;

// Whether this library's waits of a time last until somebody wakes the thread.
EXPORT void h_set_clock_back(int is_set_back) { g_set_back = is_set_back != 0; }

extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                      const timespec* until) {
  return g_set_back ? pthread_cond_wait(condition, mutex) : g_wait(condition, mutex, clock, until);
}

// From now on `count` allocations throw, after `first` others: std::bad_alloc, or what `failure` says.
EXPORT void h_fail_allocations(uint64_t first, uint64_t count, const char* failure) {
  g_n_failing = 0;
  g_failure = failure;
  g_first_failing = first;
  g_allocations = 0;
  g_n_failing = count;
}
// Not those of a thread between a 1 and a -1.
EXPORT void h_exempt_allocations(int change) { t_exempt += change; }
EXPORT uint64_t h_allocations() { return g_allocations; }

extern "C" AOTI_DEBUG_HIDDEN const AotiDebugPackage aoti_debug_package = {
    AOTI_DEBUG_ABI,        3,       g_sites, g_kernels, kSites, kKernels, g_filter, kManifest,
    sizeof(kManifest) - 1, nullptr, nullptr};

EXPORT AotiDebugSite* h_sites() { return g_sites; }
EXPORT AotiDebugKernel* h_kernels() { return g_kernels; }
EXPORT char* h_filter() { return g_filter; }

EXPORT uint32_t h_level() { return aoti_debug_level(); }
EXPORT uint32_t h_level_of_call(uint32_t kind) { return aoti_debug_level_of_call(kind); }
EXPORT void h_call_begin(AotiDebugCall* call, uint32_t kind, const void* model, void* stream) {
  aoti_debug_call_begin(call, kind, model, stream);
}
EXPORT void h_call_end(AotiDebugCall* call, uint32_t failed) { aoti_debug_call_end(call, failed); }
EXPORT uint32_t h_launch_begin(AotiDebugLaunch* launch, uint32_t site, const AotiDebugValue* values,
                               uint32_t n_values) {
  return aoti_debug_launch_begin(launch, &g_sites[site], values, n_values);
}
EXPORT void h_launch_end(AotiDebugLaunch* launch, const AotiDebugValue* values, int32_t status, const char* message) {
  aoti_debug_launch_end(launch, values, status, message);
}
EXPORT void h_stream(void* stream) { aoti_debug_stream(stream); }
EXPORT void h_grid(uint32_t kernel, const uint32_t* grid, uint32_t warps, uint32_t shared, void* const* args) {
  aoti_debug_grid(&g_kernels[kernel], grid, warps, shared, args);
}
EXPORT uint32_t h_allocate(uint32_t allocation, const char* name, int64_t ndim, const int64_t* sizes,
                           const int64_t* strides, int32_t dtype, int32_t device_type, AtenTensorHandle* tensor) {
  return aoti_debug_allocate(allocation, name, ndim, sizes, strides, dtype, device_type, 0, tensor);
}
EXPORT void h_weights(const char* what, uint32_t inactive, uint32_t all) { aoti_debug_weights(what, inactive, all); }
extern "C" int32_t aoti_torch_cpu_print_(const char* text, void* const* tensors, int64_t n_tensors,
                                         const int64_t* integers, int64_t n_integers, void* result);
EXPORT int32_t h_print(const char* text, void* const* tensors, int64_t n_tensors, const int64_t* integers,
                       int64_t n_integers) {
  return aoti_torch_cpu_print_(text, tensors, n_tensors, integers, n_integers, nullptr);
}
// -1 where the text is a watchpoint, otherwise the place of its mistake, which `error` receives.
EXPORT int64_t h_parse_watchpoint(const char* text, char* error, uint64_t bytes) {
  std::string mistake;
  size_t at = 0;
  if (aoti_debug::parse_watchpoint(text, &mistake, &at)) return -1;
  strncpy(error, mistake.c_str(), bytes - 1);
  return static_cast<int64_t>(at);
}
EXPORT void h_use_one_thread() { aoti_debug::use_one_thread(); }
EXPORT void h_containers(int32_t change) { aoti_debug_containers(change); }
EXPORT void h_loop_enter() { aoti_debug_loop_enter(); }
EXPORT void h_loop_next() { aoti_debug_loop_next(); }
EXPORT void h_loop_leave() { aoti_debug_loop_leave(); }

// Nanoseconds that a launch takes which passes one tensor for all of its arguments, where launches are at least
// `pause_ns` apart.
EXPORT double h_time_launches(uint32_t site, AtenTensorHandle tensor, uint32_t count, uint32_t pause_ns) {
  using aoti_debug::Clock;
  AotiDebugCall call;
  aoti_debug_call_begin(&call, AOTI_DEBUG_CALL_MODEL, nullptr, nullptr);
  AotiDebugValue values[8];
  for (AotiDebugValue& value : values) {
    value = AotiDebugValue{reinterpret_cast<uintptr_t>(tensor), AOTI_DEBUG_HANDLE, 0};
  }
  uint64_t elapsed = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t start = Clock::monotonic_ns();
    AotiDebugLaunch launch;
    aoti_debug_launch_begin(&launch, &g_sites[site], values, 8);
    aoti_debug_launch_end(&launch, values, 0, nullptr);
    const uint64_t end = Clock::monotonic_ns();
    elapsed += end - start;
    while (Clock::monotonic_ns() - end < pause_ns) {
    }
  }
  aoti_debug_call_end(&call, 0);
  return static_cast<double>(elapsed) / count;
}

// A model of one call with two launches, written as generated code writes it. `fault`: 1 throws from the second callee,
// 2 has it return an error.
EXPORT int h_run_model(AtenTensorHandle input, int fault) {
  try {
    aoti_debug::Call call(AOTI_DEBUG_CALL_MODEL, &g_sites, nullptr);
    for (aoti_debug::Loop loop;; loop.next()) {
      static int turn = 0;
      if (turn++ % 2 == 1) break;
      aoti_debug::launch(
          g_sites[0],
          [&](auto&&... x) -> decltype(auto) {
            return [](AtenTensorHandle, const float*, double) {}(aoti_debug::unwrap(std::forward<decltype(x)>(x))...);
          },
          input, static_cast<const float*>(nullptr), 0.5);
    }
    return aoti_debug::launch(
        g_sites[1],
        [&](auto&&... x) -> decltype(auto) {
          return [fault](AtenTensorHandle tensor, AtenTensorHandle* output) -> AOTITorchError {
            if (fault == 1) throw std::runtime_error("a planted fault");
            return fault == 2 ? AOTI_TORCH_FAILURE : aoti_torch_clone(tensor, output);
          }(aoti_debug::unwrap(std::forward<decltype(x)>(x))...);
        },
        input,
        [] {
          static AtenTensorHandle output;
          return &output;
        }());
  } catch (const std::exception&) {
    return -1;
  }
}

// A call whose second launch runs on another stream, written as generated code writes it.
EXPORT int h_run_streams(AtenTensorHandle input, void* stream, void* side) {
  aoti_debug::Call call(AOTI_DEBUG_CALL_MODEL, &g_sites, stream);
  int launched = 0;
  const auto kernel = [&launched](AtenTensorHandle, int64_t) -> AOTITorchError { return ++launched, 0; };
  const auto through = [&](auto&&... x) -> decltype(auto) {
    return kernel(aoti_debug::unwrap(std::forward<decltype(x)>(x))...);
  };
  aoti_debug::launch(g_sites[0], through, input, int64_t{4});
  aoti_debug::launch_on(side, g_sites[1], through, input, int64_t{4});
  aoti_debug::launch(g_sites[0], through, input, int64_t{4});
  return launched;
}

namespace {

aoti_debug::device::TensorView view_of(const void* data, int32_t dtype, uint32_t ndim, const int64_t* sizes,
                                       const int64_t* strides, uint64_t element_bytes) {
  aoti_debug::device::TensorView view{
      reinterpret_cast<uintptr_t>(data), dtype, 0, -1, ndim, sizes, strides, 1, element_bytes};
  for (uint32_t d = 0; d < ndim; ++d) view.numel *= sizes[d];
  return view;
}

}  // namespace

EXPORT void h_statistics(const void* data, int32_t dtype, uint32_t ndim, const int64_t* sizes, const int64_t* strides,
                         uint64_t element_bytes, TensorStats* stats) {
  aoti_debug::host_statistics(view_of(data, dtype, ndim, sizes, strides, element_bytes), stats);
}
EXPORT void h_hash(const void* data, int32_t dtype, uint32_t ndim, const int64_t* sizes, const int64_t* strides,
                   uint64_t element_bytes, uint64_t* hash) {
  const auto view = view_of(data, dtype, ndim, sizes, strides, element_bytes);
  const auto sums = aoti_debug::hash_elements(aoti_debug::StridedReader(view), view.numel, element_bytes);
  const uint64_t bytes = static_cast<uint64_t>(view.numel) * element_bytes;
  hash[0] = aoti_debug::hash_finish(sums.first, bytes);
  hash[1] = aoti_debug::hash_finish(sums.second, bytes);
}
EXPORT void h_file_name(const char* kernel, const char* argument, char* directory, char* file) {
  aoti_debug::TensorMeta meta{};
  const auto path = aoti_debug::tensor_path({0, 3, AOTI_DEBUG_CALL_CONSTANT}, PHASE_AFTER, kernel, argument, meta);
  strcpy(directory, path.directory.c_str());
  strcpy(file, path.file.c_str());
}
EXPORT int h_parse_bytes(const char* text, uint64_t* bytes) { return aoti_debug::parse_bytes(text, bytes); }
EXPORT int h_parse_launch(const char* text, uint32_t* kind, uint32_t* call, uint32_t* launch) {
  aoti_debug::LaunchChoice choice;
  if (!aoti_debug::parse_launch(text, &choice)) return 0;
  *kind = choice.kind;
  *call = choice.call;
  *launch = choice.launch;
  return 1;
}
EXPORT void h_crumb_pace(uint64_t fixed, uint32_t count, const uint64_t* now_ns, const uint32_t* sequences,
                         const uint32_t* completed, uint8_t* crumbs, uint8_t* statistics) {
  aoti_debug::LaunchRate rate;
  aoti_debug::CrumbPace pace;
  for (uint32_t i = 0; i < count; ++i) {
    if (fixed == 0) rate.add(now_ns[i], sequences[i], [&] { return completed[i]; });
    const auto due = pace.due(fixed, rate);
    crumbs[i] = due.crumb;
    statistics[i] = due.statistics;
  }
}
EXPORT uint64_t h_guard_bytes(uint64_t bytes) { return aoti_debug::guard_bytes(bytes); }
EXPORT uint64_t h_guarded_bytes(uint64_t bytes) { return aoti_debug::guarded_bytes(bytes); }
EXPORT int h_filter_matches(const char* patterns, int exact, const char* kernel) {
  using aoti_debug::Filter;
  return (exact != 0 ? Filter::names(patterns) : Filter::patterns(patterns)).matches(kernel);
}
EXPORT uint64_t h_sizeof(const char* name) {
#define SIZE(TYPE) \
  if (strcmp(name, #TYPE) == 0) return sizeof(TYPE)
  SIZE(JournalHeader);
  SIZE(BlockHeader);
  SIZE(RecordHeader);
  SIZE(CallBegin);
  SIZE(CallEnd);
  SIZE(WallClock);
  SIZE(Layout);
  SIZE(SlotValue);
  SIZE(LaunchBegin);
  SIZE(Grid);
  SIZE(LaunchEnd);
  SIZE(TensorFile);
  SIZE(TensorStats);
  SIZE(ReplayStats);
  SIZE(Fault);
  SIZE(GuardDamage);
  SIZE(Print);
  SIZE(Watch);
  SIZE(WatchHit);
  SIZE(WatchCount);
  SIZE(Note);
  SIZE(CrumbHeader);
  SIZE(CrumbSlot);
#undef SIZE
  return 0;
}
