// The C functions that generated code calls for a print (aoti_debug/instrument/frontend/worker/prints.py declares
// them).
#include "print_operator.h"

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "aoti_debug.h"
#include "launches/launch_record.h"
#include "print_queue.h"
#include "run/thread_state.h"
#include "tensors/dtype.h"
#include "tensors/readable.h"
#include "tensors/strided.h"

namespace aoti_debug {
namespace {

std::mutex g_print_mutex;
std::atomic<PrintQueue*> g_prints{nullptr};

// Prints what is left when this library is unloaded.
struct PrintEnder {
  ~PrintEnder() { std::unique_ptr<PrintQueue>(g_prints.exchange(nullptr)).reset(); }
};

PrintQueue& print_queue() {
  const std::lock_guard<std::mutex> lock(g_print_mutex);
  static PrintEnder ender;
  static_cast<void>(ender);
  PrintQueue* queue = g_prints.load();
  if (queue == nullptr) {
    queue = std::make_unique<PrintQueue>().release();
    g_prints.store(queue);
  }
  return *queue;
}

void read_host(const device::TensorView& printed, PrintedTensor* tensor) {
  tensor->bytes.resize(static_cast<size_t>(printed.numel) * printed.element_bytes);
  const uint8_t* elements = StridedReader(printed).read(0, printed.numel, tensor->bytes.data());
  if (elements != tensor->bytes.data()) tensor->bytes.assign(elements, elements + tensor->bytes.size());
}

void copy_from_device(PrintQueue& queue, void* stream, const device::TensorView& printed, PrintJob* job) {
  PrintedTensor& tensor = job->tensors.back();
  if (device::is_capturing(stream)) {
    tensor.unread = "not printed: a CUDA graph is being captured";
    return;
  }
  const size_t bytes = static_cast<size_t>(printed.numel) * printed.element_bytes;
  StagedCopy copy = queue.copy(stream, printed, bytes);
  if (copy.lacks_memory()) {
    tensor.unread = "not printed: the device has no memory for a copy";
  } else if (copy.has_begun()) {
    job->coming.push_back({job->tensors.size() - 1, std::move(copy), bytes});
  } else {
    tensor.unread = "not printed: the device cannot copy it";
  }
}

void add_tensor(PrintQueue& queue, const ThreadState* thread, const void* handle, PrintJob* job) {
  PrintedTensor& tensor = job->tensors.emplace_back();
  TensorMeta meta{};
  if (handle == nullptr || read_tensor_meta(reinterpret_cast<uintptr_t>(handle), &meta) != TensorState::kDefined) {
    tensor.unread = "not printed: an undefined tensor";
    return;
  }
  const Kind kind = dtype(meta.dtype).kind;
  tensor.unread = unreadable(meta);
  if (tensor.unread.empty() && (kind == Kind::kPacked || kind == Kind::kUnreadable)) {
    tensor.unread = std::string("not printed: ") + dtype(meta.dtype).name;
  }
  if (!tensor.unread.empty()) return;
  const device::TensorView view = view_of(meta);
  tensor.dtype = meta.dtype;
  tensor.sizes.assign(view.sizes, view.sizes + view.ndim);
  tensor.shown = printed_sizes(view);
  std::vector<int64_t> dims;
  const device::TensorView printed = printed_view(view, &dims);
  const bool on_host = meta.device_type == kDeviceCpu;
  if (!on_host) tensor.device = device_name(meta.device_type, meta.device_index);
  if (view.numel == 0) return;
  if (on_host) return read_host(printed, &tensor);
  const bool called = thread != nullptr && thread->call != nullptr;
  copy_from_device(queue, called ? thread->call->stream : device::current_stream(meta.device_index), printed, job);
}

void print_values(const char* text, void* const* tensors, int64_t n_tensors, const int64_t* integers,
                  int64_t n_integers) {
  PrintQueue& queue = print_queue();
  const ThreadState* thread = this_thread_state();
  PrintJob job;
  job.text = text;
  job.integers.assign(integers, integers + n_integers);
  job.tensors.reserve(static_cast<size_t>(n_tensors));
  for (int64_t i = 0; i < n_tensors; ++i) add_tensor(queue, thread, tensors[i], &job);
  if (thread != nullptr && thread->call != nullptr && thread->call->innermost != nullptr) {
    job.run = thread->run;
    job.id = thread->call->id(thread->call->innermost->launch);
  }
  queue.submit(std::move(job));
}

int32_t print_or_fail(const char* text, void* const* tensors, int64_t n_tensors, const int64_t* integers,
                      int64_t n_integers) {
  try {
    print_values(text, tensors, n_tensors, integers, n_integers);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

}  // namespace

void drain_prints() {
  if (PrintQueue* queue = g_prints.load()) queue->drain();
}

void forget_prints() {
  g_prints.store(nullptr);
  new (&g_print_mutex) std::mutex;
}

}  // namespace aoti_debug

extern "C" {

AOTI_DEBUG_HIDDEN int32_t aoti_torch_cpu_print_(const char* text, void* const* tensors, int64_t n_tensors,
                                                const int64_t* integers, int64_t n_integers, void* result);
AOTI_DEBUG_HIDDEN int32_t aoti_torch_cuda_print_(const char* text, void* const* tensors, int64_t n_tensors,
                                                 const int64_t* integers, int64_t n_integers, void* result);

int32_t aoti_torch_cpu_print_(const char* text, void* const* tensors, int64_t n_tensors, const int64_t* integers,
                              int64_t n_integers, void*) {
  return aoti_debug::print_or_fail(text, tensors, n_tensors, integers, n_integers);
}

int32_t aoti_torch_cuda_print_(const char* text, void* const* tensors, int64_t n_tensors, const int64_t* integers,
                               int64_t n_integers, void*) {
  return aoti_debug::print_or_fail(text, tensors, n_tensors, integers, n_integers);
}

// What `aoti_debug::inspect_` is lowered to: a launch whose arguments an inspector of the process sees, and that is
// measured and saved like any other.
AOTI_DEBUG_HIDDEN int32_t aoti_torch_cpu_inspect_(const char* tag, const char* phase, void* const* tensors,
                                                  int64_t n_tensors, void* result);
AOTI_DEBUG_HIDDEN int32_t aoti_torch_cuda_inspect_(const char* tag, const char* phase, void* const* tensors,
                                                   int64_t n_tensors, void* result);

int32_t aoti_torch_cpu_inspect_(const char*, const char*, void* const*, int64_t, void*) { return 0; }

int32_t aoti_torch_cuda_inspect_(const char*, const char*, void* const*, int64_t, void*) { return 0; }

}  // extern "C"
