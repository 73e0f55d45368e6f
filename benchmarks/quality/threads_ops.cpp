// Operators that share state between threads as the variable PLANTED says, for threads.py: store and load, between
// which a model has kernels; touch, which is given a weight that it may write to. Some ways look similar and are right.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/rand_like.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
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

// One that others may look into before it is filled, or after it was filled for another input.
void remembered(const float* in, float* out, int64_t n) {
  static volatile float key = -1;
  static std::vector<float> values(kMost);
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += in[i];
  if (key != sum) {
    key = sum;
    for (int64_t i = 0; i < n; ++i) values[i] = std::tanh(in[i]);
  }
  std::memcpy(out, values.data(), n * sizeof(float));
}

// Buffers that are taken without a lock: two calls may take the same one.
void with_free_buffer(const float* in, float* out, int64_t n) {
  static std::array<std::vector<float>, 16> buffers;
  static volatile int taken = 0;
  const int mine = taken;
  std::vector<float>& buffer = buffers.at(mine % 16);
  buffer.assign(kMost, 0);
  taken = mine + 1;
  neighbours(in, out, buffer.data(), n);
  taken = mine;
}

void random_numbers(const float* in, float* out, int64_t n, std::mt19937& generator) {
  generator.seed(7);
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] + static_cast<float>(generator() >> 8) * 0x1p-24F;
}

// Numbers that are 0 if the thread flushes denormal ones.
void small_numbers(const float* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    volatile float small = in[i] * 1e-20F;
    small = small * 1e-20F;
    out[i] = in[i] + small * 1e38F * 100;
  }
}

// A mean whose last bits depend on the number of threads that it would be split over.
void split_mean(const float* in, float* out, int64_t n) {
  const int64_t parts = at::get_num_threads();
  float sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    float own = 0;
    for (int64_t i = part * n / parts; i < (part + 1) * n / parts; ++i) own += in[i];
    sum += own;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] - sum / static_cast<float>(n);
}

// A table that each call replaces by an equal one, and frees while others may read it.
void with_replaced_table(const float* in, float* out, int64_t n) {
  static float* volatile table = new float[kMost]();
  const float* const current = table;
  for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]) + current[i];
  float* const old = table;
  table = new float[kMost]();
  delete[] old;
}

float memoised(std::unordered_map<uint64_t, float>& memo, uint64_t key) {
  const auto found = memo.find(key);
  return found != memo.end() ? found->second : memo[key] = std::sin(static_cast<float>(key % 1000));
}

// One thread that works for all calls. Each waits until a piece of work is done: whose is not asked.
class Worker {
 public:
  Worker() : thread_([this] { work(); }) { thread_.detach(); }
  void run(std::function<void()> piece) {
    std::unique_lock<std::mutex> lock(mutex_);
    const uint64_t before = done_;
    pieces_.push_back(std::move(piece));
    changed_.notify_all();
    changed_.wait(lock, [&] { return done_ != before; });
  }

 private:
  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return !pieces_.empty(); });
      const std::function<void()> piece = std::move(pieces_.front());
      pieces_.pop_front();
      lock.unlock();
      piece();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> pieces_;
  uint64_t done_ = 0;
  std::thread thread_;
};

// Divides by a sum that all calls set to 0 and add to, each time atomically.
void with_atomic_sum(const float* in, float* out, int64_t n) {
  static std::atomic<int64_t> sum{0};
  sum = 0;
  for (int64_t i = 0; i < n; ++i) sum.fetch_add(static_cast<int64_t>(std::fabs(in[i]) * 1000));
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] / static_cast<float>(sum.load() + 1);
}

// By way of a file; false if it does not hold as much.
void by_file(const std::string& name, const float* in, float* out, int64_t n) {
  const char* folder = std::getenv("TMPDIR");
  const std::string path = (folder == nullptr ? "/tmp" : std::string(folder)) + "/planted." + name;
  const auto bytes = static_cast<std::streamsize>(n * sizeof(float));
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(in), bytes);
  std::memset(out, 0, static_cast<size_t>(bytes));
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(out), bytes);
}

std::string process() { return std::to_string(getpid()); }

// Lets as many calls go on as permits were given back.
class Permits {
 public:
  explicit Permits(int count) : count_(count) {}
  void take() {
    std::unique_lock<std::mutex> lock(mutex_);
    given_.wait(lock, [this] { return count_ > 0; });
    --count_;
  }
  void give(int count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    count_ += count;
    given_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  int count_;
};

Permits permits(2);  // of which each call needs two

// Lets calls go on in batches of as many as there are threads that have called.
void wait_for_batch() {
  static std::mutex mutex;
  static std::condition_variable changed;
  static std::map<std::thread::id, int> calls;
  std::unique_lock<std::mutex> lock(mutex);
  const int mine = ++calls[std::this_thread::get_id()];
  changed.notify_all();
  changed.wait(lock, [mine] {
    for (const auto& [thread, count] : calls) {
      if (count < mine) return false;
    }
    return true;
  });
}

std::mutex first_lock, second_lock;

// Works under both locks; holds the one while it works and takes the other.
void under_locks(std::mutex& one, std::mutex& other, const float* in, float* out, int64_t n) {
  const std::lock_guard<std::mutex> holds(one);
  for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]);
  const std::lock_guard<std::mutex> holds_too(other);
  out[0] += 1;
}

// The faults and the right ways of store whose state outlives it; false if `what` is none of them.
bool stored(const std::string& what, const at::Tensor& x, at::Tensor& result) {
  const float* in = x.data_ptr<float>();
  float* out = result.data_ptr<float>();
  const int64_t n = x.numel();
  if (what == "cache") {
    remembered(in, out, n);
  } else if (what == "free buffer") {
    with_free_buffer(in, out, n);
  } else if (what == "generator") {
    static std::mt19937 generator;
    random_numbers(in, out, n, generator);
  } else if (what == "own generator") {
    std::mt19937 generator;
    random_numbers(in, out, n, generator);
  } else if (what == "torch's generator") {
    at::manual_seed(7);
    result.copy_(at::rand_like(x).add_(x));
  } else if (what == "denormals") {
    static const bool is_set = at::globalContext().setFlushDenormal(true);
    if (is_set) small_numbers(in, out, n);
  } else if (what == "denormals of the call") {
    at::globalContext().setFlushDenormal(true);
    small_numbers(in, out, n);
    at::globalContext().setFlushDenormal(false);
  } else if (what == "OpenMP threads") {
    static const bool is_set = (at::set_num_threads(at::get_num_threads() + 1), true);
    if (is_set) split_mean(in, out, n);
  } else if (what == "default dtype") {
    c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
    for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]);
    result.copy_(at::linspace(0, 1, n).cumsum(0).reshape(x.sizes())).add_(x);
    c10::set_default_dtype(caffe2::TypeMeta::Make<float>());
  } else if (what == "replaced table") {
    with_replaced_table(in, out, n);
  } else if (what == "map") {
    static std::unordered_map<uint64_t, float> memo;
    if (memo.size() > 2 * kMost) memo.clear();
    const auto first = static_cast<uint64_t>(std::fabs(in[0]) * 1e6F) << 20;
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] + memoised(memo, first + static_cast<uint64_t>(i));
  } else if (what == "worker") {
    static Worker& worker = *new Worker;  // which is never taken apart: its thread has no end
    worker.run([x, result, in, out, n] {
      for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]);
    });
  } else if (what == "atomic sum") {
    with_atomic_sum(in, out, n);
  } else if (what == "file") {
    by_file(process(), in, out, n);
  } else if (what == "file of the thread") {
    by_file(process() + "." + std::to_string(gettid()), in, out, n);
  } else if (what == "lock order" || what == "locks in order") {
    under_locks(first_lock, second_lock, in, out, n);
  } else if (what == "permits" || what == "batch") {
    what == "batch" ? wait_for_batch() : permits.take();
    std::memcpy(out, in, x.nbytes());
  } else {
    return false;
  }
  return true;
}

// Reads intermediate memory that it has given back already.
void with_freed_memory(const float* in, float* out, int64_t n) {
  constexpr int64_t kFirst = 32;  // what lies before is where malloc keeps its own
  const float* work = nullptr;
  {
    const at::Tensor tensor = at::empty({n + 2 * kFirst});
    float* values = tensor.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) values[kFirst + i] = std::tanh(in[i]);
    work = values;
  }
  for (int64_t i = 0; i < n; ++i) out[i] = in[i] + work[kFirst + i];
}

at::Tensor store(const at::Tensor& x) {
  const std::string& what = planted();
  if (what == "table") {  // the result is a table that nothing writes to any more
    static const at::Tensor table = at::linspace(0, 1, x.numel()).reshape(x.sizes());
    return table;
  }
  if (what == "alias") {  // the result lies in memory that all calls share
    std::memcpy(static_buffer(), x.data_ptr(), x.nbytes());
    return at::from_blob(static_buffer(), x.sizes(), x.options());
  }
  const float* in = x.data_ptr<float>();
  at::Tensor result = at::empty_like(x);
  float* out = result.data_ptr<float>();
  const int64_t n = x.numel();
  if (stored(what, x, result)) return result;
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
  if (what == "slow call") {  // every other thread waits, as for something that it asks for elsewhere
    static std::atomic<unsigned> threads{0};
    thread_local const bool is_slow = threads.fetch_add(1) % 2 == 1;
    if (is_slow) std::this_thread::sleep_for(std::chrono::milliseconds(25));
    kept_scale = largest(in, n);
  }
  if (what == "freed memory") with_freed_memory(in, out, n);
  if (what == "kept pointer") kept_pointer = out;
  if (what == "global") kept_scale = largest(in, n);
  return result;
}

at::Tensor load(const at::Tensor& x, const at::Tensor& stored) {
  const std::string& what = planted();
  if (what == "ring") {  // the memory of a result is given to the next but one call
    static std::array<std::vector<float>, 2> ring{std::vector<float>(kMost), std::vector<float>(kMost)};
    static std::atomic<unsigned> calls{0};
    std::vector<float>& mine = ring.at(calls.fetch_add(1) % 2);
    std::memcpy(mine.data(), x.data_ptr(), x.nbytes());
    return at::from_blob(mine.data(), x.sizes(), x.options());
  }
  const float* in = x.data_ptr<float>();
  const float* kept = what == "kept pointer" && kept_pointer != nullptr ? kept_pointer : stored.data_ptr<float>();
  const float scale =
      what == "global" || what == "slow call" ? kept_scale : largest(stored.data_ptr<float>(), stored.numel());
  at::Tensor result = at::empty_like(x);
  float* out = result.data_ptr<float>();
  if (what == "lock order") under_locks(second_lock, first_lock, in, out, x.numel());
  if (what == "locks in order") under_locks(first_lock, second_lock, in, out, x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] + kept[i] * scale;
  if (what == "permits") permits.give(2);
  return result;
}

// Multiplies by what it has made of the weight, which it makes again where the weight lies elsewhere.
at::Tensor with_packed_weight(const at::Tensor& x, const at::Tensor& weight) {
  static const void* volatile packed_from = nullptr;
  static std::vector<float> packed(kMost);
  const float* values = weight.data_ptr<float>();
  const int64_t n = weight.numel();
  if (packed_from != values) {
    packed_from = values;
    std::fill(packed.begin(), packed.end(), 0.0F);
    for (int64_t i = 0; i < kMost; ++i) packed[i] = values[i % n] * std::exp(static_cast<float>(i % n) / 64);
  }
  at::Tensor result = x.clone();
  float* out = result.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] *= packed[i];
  return result;
}

// Halves a weight while it works, and doubles it afterwards, which is exact.
at::Tensor touch(const at::Tensor& x, at::Tensor& weight) {
  if (planted() == "permits") permits.take();
  if (planted() == "packed weight") return with_packed_weight(x, weight);
  static std::mutex mutex;
  std::unique_lock<std::mutex> lock(mutex, std::defer_lock);
  if (planted() == "locked weight") lock.lock();
  if (planted() == "locked weight" || planted() == "unlocked weight") {
    at::Tensor result = x.add(weight);
    weight.add_(1);
    return result;
  }
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
