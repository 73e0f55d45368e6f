#include "writer_pool.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "machine/background_thread.h"

namespace aoti_debug {
namespace {

constexpr unsigned kMaxThreads = 4;

}  // namespace

WriterPool::~WriterPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WriterPool::submit(Task task, JournalWriter* writer) noexcept {
  if (!enqueue(&task)) return task(writer);
  changed_.notify_all();
}

bool WriterPool::enqueue(Task* task) {
  if (!start()) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    tasks_.push_back(std::move(*task));
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

void WriterPool::notify() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
  }
  changed_.notify_all();
}

bool WriterPool::start() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  try {
    threads_.reserve(count);
    while (!failed_ && threads_.size() < count) {
      auto writer = std::make_unique<JournalWriter>(journal_, 0);
      std::thread thread = background_thread([this, writer = std::move(writer)] { work(writer.get()); });
      failed_ = !thread.joinable();
      if (!failed_) threads_.push_back(std::move(thread));
    }
  } catch (const std::bad_alloc&) {
    failed_ = true;
  }
  return !threads_.empty();
}

void WriterPool::work(JournalWriter* writer) {
  writer->set_thread(static_cast<uint32_t>(syscall(SYS_gettid)));
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return closing_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task(writer);
  }
}

}  // namespace aoti_debug
