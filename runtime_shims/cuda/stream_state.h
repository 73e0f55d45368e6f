// What the CUDA half of the runtime keeps for each stream, and for the process.
//
// It takes some pinned memory, some device memory and, at levels 1, 2 and hash, kernels: all kept until the process
// ends, since streams may use them after any call.
#pragma once

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "copies.h"
#include "device/device.h"
#include "driver.h"
#include "guard_reports.h"
#include "kernels.h"
#include "layout.h"
#include "shared_words.h"
#include "statistics_ring.h"

namespace aoti_debug::cuda {

struct StreamKey {
  CUcontext context;
  CUstream stream;
  std::thread::id thread;  // tells per-thread default streams apart

  bool operator<(const StreamKey& other) const {
    if (context != other.context) return context < other.context;
    return stream != other.stream ? stream < other.stream : thread < other.thread;
  }
};

// What a stream reuses. Work on a stream is ordered, so one of each is enough.
struct StreamState {
  std::unique_ptr<StatisticsRing> ring;
  std::unique_ptr<GuardReports> guards;
  CUdeviceptr gather = 0;
  size_t gather_bytes = 0;
  int device = -1;
  uint32_t most_blocks = 1;
  const char* module = nullptr;  // whose statistics kernel was launched last
  const Kernels::Kernel* kernel = nullptr;
};

struct State {
  explicit State(std::string_view ptx) : kernels(ptx) {}

  std::mutex mutex;
  std::map<StreamKey, StreamState> streams;
  Kernels kernels;
  SharedWords<struct OfCrumbs> crumbs;
  SharedWords<struct OfFlight> flight;
  GuardKernels guards{&kernels};
  Copies copies;
  size_t gather_bytes = 0;
  CUcontext known_context = nullptr;  // for threads that have none
};

// The state of the process.
State& state();

// The state of a stream of the current context. The caller holds the lock.
StreamState& stream_state(CUcontext context, CUstream stream);

// The context of the calling thread; on a thread without one the context that a stream was last met in.
CUcontext current_or_known_context();

// Waits for all that is enqueued on the stream. False on a device error.
bool synchronize(CUstream stream);

// Why the kernels cannot read a tensor; empty where they can.
const char* unreadable(const device::TensorView& view, const StreamState& stream);

// The entry for elements of 1, 2, 4, 8 or 16 bytes.
inline const char* by_size(const char* const (&names)[5], size_t element_bytes) {
  return names[__builtin_ctzll(element_bytes)];
}

// Enqueues a kernel with one argument. False where that fails.
bool launch_kernel(CUfunction function, const Grid& grid, CUstream stream, void* argument);

// The same for a kernel that waits for the work before it by itself: the driver has less to do then. Not in a capture.
bool launch_early(CUfunction function, const Grid& grid, CUstream stream, void* argument);

// Runs what may run out of memory; then it has failed.
template <class Body>
auto attempt(const Body& body, decltype(body()) failed) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception&) {
    return failed;
  }
}

// Runs `body` on the state of a stream, in its context.
template <class Body, class Result>
Result on_stream(void* stream, const Body& body, Result failed) noexcept {
  const CUcontext context = context_of(static_cast<CUstream>(stream));
  const WithContext own(context);
  if (context == nullptr) return failed;
  const auto locked = [&] {
    const std::lock_guard<std::mutex> lock(state().mutex);
    return body(static_cast<CUstream>(stream), stream_state(context, static_cast<CUstream>(stream)));
  };
  return attempt(locked, failed);
}

}  // namespace aoti_debug::cuda
