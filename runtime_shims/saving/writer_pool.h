// Threads that write files, each with its own place in the journal.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "journal/journal.h"

namespace aoti_debug {

class WriterPool {
 public:
  // Gets the journal writer of the thread that it runs on. Does not throw.
  using Task = std::function<void(JournalWriter*)>;

  explicit WriterPool(Journal* journal) : journal_(journal) {}
  ~WriterPool();  // after all tasks
  WriterPool(const WriterPool&) = delete;
  WriterPool& operator=(const WriterPool&) = delete;

  // Has a thread run the task; runs it at once where the system gives no threads, or no memory to keep it.
  void submit(Task task, JournalWriter* writer) noexcept;

  // Runs tasks until `done()`, which changes before a call of `notify`.
  template <class Done>
  void help_until(const Done& done, JournalWriter* writer) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done()) {
      if (tasks_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const Task task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task(writer);
      lock.lock();
    }
  }
  void notify();

 private:
  // Whether a thread will run it; otherwise it stays where it is.
  bool enqueue(Task* task);
  bool start();
  void work(JournalWriter* writer);

  Journal* journal_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::vector<std::thread> threads_;
  bool failed_ = false;  // there will be no more threads
  bool closing_ = false;
};

}  // namespace aoti_debug
