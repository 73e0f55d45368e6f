// Runs CUDA C++ kernels on the host: the threads of a block are fibers that switch where they wait for one another, and
// blocks run one after the other.
#pragma once

#include <setjmp.h>
#include <stdint.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)

struct Index {
  uint32_t x;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr uint32_t kLanes = 32;
constexpr size_t kStackBytes = 128 << 10;

class Block {
 public:
  static Block& current() { return *current_; }

  Block(uint32_t threads, const std::function<void()>& body) : body_(body), done_(threads), warps_(threads / kLanes) {
    current_ = this;
    live_ = threads;
    while (live_ > 0) run_round();
  }

  void wait_for_block() {
    const uint64_t generation = generation_;
    ++arrived_;
    ++events_;
    release();
    while (generation_ == generation) yield();
  }

  // Whether a thread of the block says so.
  bool any_of_block(bool value) {
    any_ |= value;
    wait_for_block();
    const bool any = any_;
    if (++told_ == live_) {
      told_ = 0;
      any_ = false;
    }
    wait_for_block();
    return any;
  }

  // What that lane of the warp gave.
  uint32_t shuffle(uint32_t value, uint32_t lane) { return exchange(value)[lane]; }

  // A bit for each lane of the warp that says so.
  uint32_t ballot(bool value) {
    const uint32_t* const values = exchange(value);
    uint32_t bits = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) bits |= values[lane] << lane;
    return bits;
  }

 private:
  // Runs the threads of this number, of one block after another.
  struct Fiber {
    std::unique_ptr<char[]> stack{new char[kStackBytes]};
    jmp_buf state;
    bool started = false;
  };
  struct Warp {
    uint64_t generation = 0;
    uint32_t arrived = 0;
    uint32_t values[2][kLanes];
  };

  static Fiber& fiber(uint32_t thread) {
    static std::vector<std::unique_ptr<Fiber>> fibers;
    while (fibers.size() <= thread) fibers.emplace_back(new Fiber);
    return *fibers[thread];
  }

  // Lets a thread go on until it waits. Unlike swapcontext, _setjmp asks nothing of the system.
  static void resume(Fiber& fiber) {
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.started) _longjmp(fiber.state, 1);
    fiber.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    makecontext(&context, run_threads, 0);
    setcontext(&context);
  }

  static void pause(Fiber& fiber) {
    if (_setjmp(fiber.state) == 0) _longjmp(scheduler_, 1);
  }

  // What every lane of the warp gives.
  const uint32_t* exchange(uint32_t value) {
    Warp& warp = warps_[threadIdx.x / kLanes];
    const uint64_t generation = warp.generation;
    uint32_t* const values = warp.values[generation % 2];
    values[threadIdx.x % kLanes] = value;
    ++events_;
    if (++warp.arrived == kLanes) {
      warp.arrived = 0;
      ++warp.generation;
    }
    while (warp.generation == generation) yield();
    return values;
  }

  static void run_threads() {
    for (Fiber& own = fiber(threadIdx.x);; pause(own)) {
      Block& block = current();
      block.body_();
      block.done_[threadIdx.x] = true;
      --block.live_;
      ++block.events_;
      block.release();
    }
  }

  // Lets every thread go on until it waits. Without an arrival or an end in a whole round, all wait for good.
  void run_round() {
    const uint64_t before = events_;
    for (uint32_t i = 0; i < done_.size(); ++i) {
      if (done_[i]) continue;
      threadIdx.x = i;
      resume(fiber(i));
    }
    if (events_ != before) return;
    fprintf(stderr, "emulator: the threads of a block wait for one another forever\n");
    abort();
  }

  void yield() {
    const uint32_t self = threadIdx.x;
    pause(fiber(self));
    threadIdx.x = self;
  }

  // A barrier opens once every thread that has not ended is at it.
  void release() {
    if (arrived_ == 0 || arrived_ < live_) return;
    arrived_ = 0;
    ++generation_;
  }

  static inline Block* current_ = nullptr;
  static inline jmp_buf scheduler_;
  const std::function<void()>& body_;
  std::vector<char> done_;  // for each thread
  std::vector<Warp> warps_;
  uint64_t generation_ = 0;
  uint64_t events_ = 0;
  uint32_t arrived_ = 0;
  uint32_t live_ = 0;
  uint32_t told_ = 0;  // threads that know `any_`
  bool any_ = false;
};

}  // namespace emulator
