#include "print_queue.h"

#include <stdio.h>

#include <exception>
#include <utility>

#include "machine/background_thread.h"
#include "print_text.h"
#include "run/run.h"
#include "text/live_text.h"

namespace aoti_debug {

PrintQueue::~PrintQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (printer_.joinable()) printer_.join();
}

void PrintQueue::submit(PrintJob job) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!job.coming.empty() && !printer_.joinable()) printer_ = background_thread([this] { work(); });
    if (printer_.joinable() && (!job.coming.empty() || printing_ || !waiting_.empty())) {
      waiting_.push_back(std::move(job));
      lock.unlock();
      return changed_.notify_all();
    }
  }
  print(job);
}

void PrintQueue::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !printing_; });
}

void PrintQueue::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    PrintJob job = std::move(waiting_.front());
    waiting_.pop_front();
    printing_ = true;
    lock.unlock();
    try {
      print(job);
    } catch (const std::exception& error) {
      LiveText().write_failure("a print is missing", error);
    }
    lock.lock();
    printing_ = false;
    changed_.notify_all();
  }
}

void PrintQueue::print(PrintJob& job) {
  for (ComingElements& elements : job.coming) {
    PrintedTensor& tensor = job.tensors[elements.tensor];
    if (const uint8_t* from = elements.copy.wait()) {
      tensor.bytes.assign(from, from + elements.bytes);
    } else {
      tensor.unread = "not printed: the device reports an error";
    }
    elements.copy.reset();
  }
  const std::string text = print_text(job.text, job.tensors, job.integers);
  if (job.run != nullptr) job.run->record_print(job.id, text);
  fwrite(text.data(), 1, text.size(), stdout);
  fputc('\n', stdout);
  fflush(stdout);
}

}  // namespace aoti_debug
