#include "parallel.h"

#include <atomic>

namespace aoti_debug {
namespace {

std::atomic<bool> g_forked{false};

}  // namespace

void use_one_thread() { g_forked.store(true, std::memory_order_relaxed); }

bool may_use_threads() { return !g_forked.load(std::memory_order_relaxed); }

}  // namespace aoti_debug
