// Calls a model from several threads at once, as a server does, and compares what each call returns with what the same
// call returned before. Python's binding of the loader holds the lock of the interpreter while a model runs:
// aoti_debug/runs/run/thread_host.py loads this library instead.
//
// A tensor is passed as an AtenTensorHandle: an at::Tensor on the heap, which whoever receives it deletes. A function
// that fails returns nullptr or -1, and `aoti_debug_threads_error` says why.
#include "thread_host.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <sys/syscall.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perturbed_memory.h"

namespace aoti_debug {
namespace {

using Tensors = std::vector<at::Tensor>;
using Weights = std::unordered_map<std::string, at::Tensor>;

thread_local std::string t_error;

// What `work` returns; `failed` after an exception.
template <class Result, class Work>
Result caught(Result failed, const Work& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    t_error = error.what();
  } catch (...) {
    t_error = "an exception of an unknown type";
  }
  return failed;
}

Tensors taken(void* const* handles, uint64_t count) {
  Tensors tensors;
  for (uint64_t i = 0; i < count; ++i) {
    const std::unique_ptr<at::Tensor> tensor(static_cast<at::Tensor*>(handles[i]));
    tensors.push_back(*tensor);
  }
  return tensors;
}

void* given(const at::Tensor& tensor) { return std::make_unique<at::Tensor>(tensor).release(); }

// All elements, row-major, on the CPU; also of a sparse tensor, which has no strides.
at::Tensor row_major(const at::Tensor& tensor) {
  const at::Tensor here = tensor.cpu();
  return (here.layout() == at::kStrided ? here : here.to_dense()).contiguous();
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.dtype() != b.dtype() || a.layout() != b.layout()) return false;
  const at::Tensor first = row_major(a), second = row_major(b);
  return first.nbytes() == 0 || memcmp(first.data_ptr(), second.data_ptr(), first.nbytes()) == 0;
}

// A copy with the same strides: a model may write to its inputs. One whose elements share memory stays as it is.
at::Tensor copied(const at::Tensor& tensor) {
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) return tensor;
  }
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()).copy_(tensor);
}

// Opens once.
class Gate {
 public:
  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    opened_.wait(lock, [this] { return is_open_; });
  }
  void open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool is_open_ = false;
};

class Host {
 public:
  Host(const char* path, const char* model, uint64_t runners, int8_t device)
      : loader_(path, model, /*run_single_threaded=*/false, runners, device), spec_(loader_.get_call_spec()) {}
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  ~Host() {
    start_.open();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  const std::string& spec(uint32_t index) const { return spec_.at(index); }
  torch::inductor::AOTIModelPackageLoader& loader() { return loader_; }
  void add_inputs(Tensors inputs) { inputs_.push_back(std::move(inputs)); }
  void add_expected(Tensors outputs) { expected_.push_back(std::move(outputs)); }
  const Tensors& expected(uint32_t inputs) const { return expected_.at(inputs); }
  const std::string& exception() const { return exception_; }

  // Makes the threads, which wait; their ids are those of the operating system.
  void make_threads(const AotiDebugThreadPlan& plan, AotiDebugThreadCall* calls, uint32_t* ids) {
    keep_first_ = expected_.empty();
    if (keep_first_) expected_.resize(inputs_.size());
    if (plan.updates != 0) weights_ = copies_of_weights();
    if (plan.perturbs_memory != 0) perturb_memory(plan.seed);
    running_ = plan.threads;
    waiting_ = plan.threads;
    for (uint32_t number = 0; number < plan.threads; ++number) {
      std::vector<AotiDebugThreadCall*> own;
      for (uint32_t i = 0; i < plan.calls; ++i) {
        if (calls[i].thread == number) own.push_back(&calls[i]);
      }
      const bool updates = plan.updates != 0 && number == 0;
      threads_.emplace_back([this, own = std::move(own), updates, number, ids] {
        ids[number] = static_cast<uint32_t>(syscall(SYS_gettid));
        if (waiting_.fetch_sub(1) == 1) ready_.open();
        start_.wait();
        run_thread(own, updates);
      });
    }
    ready_.wait();
  }

  // Lets the threads make their calls; returns the number of times that the weights were updated.
  uint32_t run() {
    start_.open();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    return updated_.load();
  }

 private:
  Weights copies_of_weights() {
    Weights copies;
    for (const auto& [name, tensor] : loader_.get_runner()->extract_constants_map(/*use_inactive=*/false)) {
      copies.emplace(name, tensor.clone());
    }
    return copies;
  }

  void run_thread(const std::vector<AotiDebugThreadCall*>& own, bool updates) {
    at::init_num_threads();
    const c10::AutoGradMode no_gradients(false);
    std::optional<c10::StreamGuard> own_stream;
    const std::optional<at::Device> device = device_of_inputs();
    if (device) {
      const c10::impl::VirtualGuardImpl guard(device->type());
      own_stream.emplace(guard.getStreamFromGlobalPool(*device));
    }
    Tensors held;  // what the call before returned
    AotiDebugThreadCall* before = nullptr;
    for (AotiDebugThreadCall* call : own) {
      if (failed_.load()) break;
      Tensors outputs;
      if (!made(*call, &outputs)) break;
      if (updates) update();
      if (before != nullptr) look_again(*before, held);
      before = call;
      held = std::move(outputs);
    }
    wait_for_others();
    if (before != nullptr) look_again(*before, held);
  }

  std::optional<at::Device> device_of_inputs() const {
    for (const Tensors& tensors : inputs_) {
      for (const at::Tensor& tensor : tensors) {
        if (!tensor.is_cpu()) return tensor.device();
      }
    }
    return std::nullopt;
  }

  // Makes a call; false after an exception.
  bool made(AotiDebugThreadCall& record, Tensors* outputs) {
    try {
      Tensors inputs;
      for (const at::Tensor& tensor : inputs_.at(record.inputs)) inputs.push_back(copied(tensor));
      *outputs = loader_.boxed_run(std::move(inputs));
      Tensors& expected = expected_.at(record.inputs);
      if (keep_first_ && expected.empty()) {
        for (const at::Tensor& output : *outputs) expected.push_back(output.cpu().clone());
        record.state = THREAD_CALL_EQUAL;
      } else {
        record.state = compare(record, *outputs, THREAD_CALL_DIFFERS);
      }
      return true;
    } catch (const std::exception& error) {
      record.state = THREAD_CALL_RAISED;
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failed_.exchange(true)) exception_ = error.what();
      return false;
    }
  }

  void look_again(AotiDebugThreadCall& record, const Tensors& outputs) {
    if (record.state == THREAD_CALL_EQUAL) record.state = compare(record, outputs, THREAD_CALL_CHANGED);
  }

  uint32_t compare(AotiDebugThreadCall& record, const Tensors& outputs, uint32_t different) {
    const Tensors& expected = expected_.at(record.inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor output = outputs[i].cpu();
      if (i < expected.size() && equal_bits(output, expected[i])) continue;
      record.output = static_cast<uint32_t>(i);
      record.tensor = given(output.clone());
      return different;
    }
    return THREAD_CALL_EQUAL;
  }

  // Gives the model equal weights, on the inactive side, and swaps the sides, while other threads call it.
  void update() {
    try {
      Weights weights = weights_;
      loader_.load_constants(weights, /*use_inactive=*/true, /*check_full_update=*/true);
      loader_.get_runner()->swap_constant_buffer();
      updated_.fetch_add(1);
    } catch (const std::exception& error) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failed_.exchange(true)) exception_ = std::string("an update of the weights: ") + error.what();
    }
  }

  void wait_for_others() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (--running_ == 0) all_done_.notify_all();
    all_done_.wait(lock, [this] { return running_ == 0; });
  }

  torch::inductor::AOTIModelPackageLoader loader_;
  std::vector<std::string> spec_;
  std::vector<Tensors> inputs_, expected_;  // of each set of inputs
  bool keep_first_ = false;                 // what the first call with each set returns is what is expected
  Weights weights_;
  std::vector<std::thread> threads_;
  std::atomic<uint32_t> waiting_{0};
  Gate ready_, start_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  uint32_t running_ = 0;
  std::atomic<bool> failed_{false};
  std::atomic<uint32_t> updated_{0};
  std::string exception_;
};

Host& host_of(void* host) { return *static_cast<Host*>(host); }

}  // namespace
}  // namespace aoti_debug

using namespace aoti_debug;

const char* aoti_debug_threads_error(void) { return t_error.c_str(); }

void* aoti_debug_threads_load(const char* path, const char* model, uint64_t runners, int32_t device) {
  return caught<void*>(
      nullptr, [&] { return std::make_unique<Host>(path, model, runners, static_cast<int8_t>(device)).release(); });
}

void aoti_debug_threads_unload(void* host) { const std::unique_ptr<Host> ended(static_cast<Host*>(host)); }

const char* aoti_debug_threads_spec(void* host, uint32_t index) {
  return caught<const char*>(nullptr, [&] { return host_of(host).spec(index).c_str(); });
}

int32_t aoti_debug_threads_weights(void* host, const char* const* names, void* const* tensors, uint64_t count,
                                   const AotiDebugWeightsUpdate* how) {
  Tensors values = taken(tensors, count);
  return caught<int32_t>(-1, [&] {
    Weights weights;
    for (uint64_t i = 0; i < count; ++i) weights.emplace(names[i], values[i]);
    auto& loader = host_of(host).loader();
    if (how->loads != 0) {
      loader.load_constants(weights, how->inactive != 0, how->whole != 0, how->user_managed != 0);
    } else {
      loader.update_constant_buffer(weights, how->inactive != 0, how->whole != 0, how->user_managed != 0);
    }
    return 0;
  });
}

void aoti_debug_threads_inputs(void* host, void* const* tensors, uint64_t count) {
  host_of(host).add_inputs(taken(tensors, count));
}

void aoti_debug_threads_expect(void* host, void* const* tensors, uint64_t count) {
  host_of(host).add_expected(taken(tensors, count));
}

void* aoti_debug_threads_expected(void* host, uint32_t inputs, uint64_t index) {
  const Tensors& tensors = host_of(host).expected(inputs);
  return index < tensors.size() ? given(tensors[index]) : nullptr;
}

int32_t aoti_debug_threads_make(void* host, const AotiDebugThreadPlan* plan, AotiDebugThreadCall* calls,
                                uint32_t* ids) {
  return caught<int32_t>(-1, [&] {
    host_of(host).make_threads(*plan, calls, ids);
    return 0;
  });
}

int32_t aoti_debug_threads_run(void* host) {
  const uint32_t updates = host_of(host).run();
  if (host_of(host).exception().empty()) return static_cast<int32_t>(updates);
  t_error = host_of(host).exception();
  return -1;
}
