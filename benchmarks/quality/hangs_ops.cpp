// Operators that never come back, as the variable PLANTED says, for hangs.py: each hang in a function of its own, whose
// name is that of the hang with an underscore in place of each space.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <fcntl.h>
#include <omp.h>
#include <semaphore.h>
#include <torch/library.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

std::atomic<int64_t> g_steps{0};

__attribute__((noinline)) void spin() {
  static std::atomic<bool> ready{false};
  while (!ready.load()) g_steps.fetch_add(1);
}

// An earlier user has left by another way than the one that unlocks.
__attribute__((noinline)) void mutex() {
  static std::mutex guard;
  std::thread([] { guard.lock(); }).join();
  const std::lock_guard<std::mutex> lock(guard);
  g_steps.fetch_add(1);
}

__attribute__((noinline)) void openmp_barrier() {
#pragma omp parallel num_threads(2)
  {
    if (omp_get_thread_num() == 0) {
#pragma omp barrier
    } else {
      for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
    }
  }
}

// The other side has notified before anybody waited, and nothing remembers it.
__attribute__((noinline)) void condition_variable() {
  static std::mutex guard;
  static std::condition_variable changed;
  std::thread([] { changed.notify_all(); }).join();
  std::unique_lock<std::mutex> lock(guard);
  changed.wait(lock);
  g_steps.fetch_add(1);
}

// Another process holds it: the child, which never ends.
__attribute__((noinline)) void file_lock() {
  const int file = open(std::getenv("PLANTED_FILE"), O_RDWR | O_CREAT, 0600);
  struct flock request {};
  request.l_type = F_WRLCK;
  while (true) {  // until the other process has it
    fcntl(file, F_GETLK, &request);
    if (request.l_type != F_UNLCK) break;
    request.l_type = F_WRLCK;
    usleep(1000);
  }
  request.l_type = F_WRLCK;
  fcntl(file, F_SETLKW, &request);
}

__attribute__((noinline)) void semaphore() {
  static sem_t left;
  sem_init(&left, 0, 0);
  sem_wait(&left);
  g_steps.fetch_add(1);
}

// Nobody writes to the pipe.
__attribute__((noinline)) void pipe_read() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  char byte = 0;
  if (read(ends[0], &byte, 1) == 1) g_steps.fetch_add(1);
}

std::mutex g_first, g_second;

__attribute__((noinline)) void second_then_first(std::atomic<int>* held) {
  const std::lock_guard<std::mutex> outer(g_second);
  held->fetch_add(1);
  while (held->load() < 2) std::this_thread::yield();
  const std::lock_guard<std::mutex> inner(g_first);
  g_steps.fetch_add(1);
}

// Two threads take two locks in the other order.
__attribute__((noinline)) void two_locks() {
  std::atomic<int> held{0};
  std::thread other(second_then_first, &held);
  {
    const std::lock_guard<std::mutex> outer(g_first);
    held.fetch_add(1);
    while (held.load() < 2) std::this_thread::yield();
    const std::lock_guard<std::mutex> inner(g_second);
    g_steps.fetch_add(1);
  }
  other.join();
}

at::Tensor stay(const at::Tensor& x) {
  static const std::map<std::string, std::function<void()>> hangs = {
      {"spin", spin},           {"mutex", mutex},         {"openmp barrier", openmp_barrier},
      {"file lock", file_lock}, {"semaphore", semaphore}, {"condition variable", condition_variable},
      {"pipe read", pipe_read}, {"two locks", two_locks},
  };
  const char* const planted = std::getenv("PLANTED");
  const auto found = hangs.find(planted == nullptr ? "" : planted);
  if (found != hangs.end()) found->second();
  return x.clone();
}

TORCH_LIBRARY(hangs, library) { library.def("stay(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(hangs, CPU, library) { library.impl("stay", stay); }
TORCH_LIBRARY_IMPL(hangs, Meta, library) {
  library.impl("stay", [](const at::Tensor& x) { return at::empty_like(x); });
}

}  // namespace
