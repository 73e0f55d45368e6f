// Stands in front of the functions that a model's library calls, and hands every call on to where it was to go.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "interposer.h"

extern "C" AOTI_DEBUG_HIDDEN void aoti_debug_interposed_invoke(void* function, AotiDebugFrame* frame, uint64_t words);
extern "C" AOTI_DEBUG_HIDDEN void aoti_debug_interposed_dispatch(uint32_t symbol, AotiDebugFrame* frame);
extern "C" __attribute__((visibility("default"))) void aoti_debug_interposer_attach(const AotiDebugHooks* hooks);

namespace aoti_debug {
namespace {

constexpr uint64_t kMaxWords = 1024;  // of arguments on the stack: how many there are is not known
constexpr char kDriver[] = "libcuda.so.1";
constexpr char kModelFunction[] = "AOTInductorModelContainerRun";

// Where a call goes, and whether a model's library makes it: what others call is none of our business.
struct Target {
  void* function;
  bool of_model;
};

std::shared_mutex g_mutex;  // guards what follows
std::map<std::pair<const void*, uint32_t>, Target> g_targets;
const AotiDebugHooks* g_hooks = nullptr;  // set before a model's library is loaded

struct Close {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

// nullptr where the process has not loaded it.
Library loaded(const char* path) { return Library(dlopen(path, RTLD_LAZY | RTLD_NOLOAD)); }

// What a library calls that does not say that it needs the driver: the recorder.
void* of_driver(const char* symbol) {
  const Library driver = loaded(kDriver);
  return driver == nullptr ? nullptr : dlsym(driver.get(), symbol);
}

// What the caller's library would have called: itself first, then the libraries that it needs.
Target resolve(const void* caller, const char* symbol) {
  Target target{nullptr, false};
  Dl_info info{};
  if (dladdr(caller, &info) != 0 && info.dli_fname != nullptr) {
    if (const Library library = loaded(info.dli_fname)) {
      target.function = dlsym(library.get(), symbol);
      target.of_model = dlsym(library.get(), kModelFunction) != nullptr;
    }
  }
  if (target.function == nullptr) target.function = of_driver(symbol);
  if (target.function == nullptr) {
    fprintf(stderr, "aoti-debug: %s is called, and no library has it\n", symbol);
    abort();
  }
  return target;
}

Target find(const void* caller, uint32_t symbol) {
  const std::pair<const void*, uint32_t> key(caller, symbol);
  {
    const std::shared_lock<std::shared_mutex> lock(g_mutex);
    const auto known = g_targets.find(key);
    if (known != g_targets.end()) return known->second;
  }
  const Target target = resolve(caller, aoti_debug_interposed[symbol].symbol);
  const std::unique_lock<std::shared_mutex> lock(g_mutex);
  return g_targets.emplace(key, target).first->second;
}

uintptr_t end_of_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
  void* begin = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &begin, &size);
  pthread_attr_destroy(&attributes);
  return reinterpret_cast<uintptr_t>(begin) + size;
}

void invoke(const Target& target, AotiDebugFrame* frame) {
  thread_local const uintptr_t end = end_of_stack();
  const auto begin = reinterpret_cast<uintptr_t>(frame->stack);
  const uint64_t there = end > begin ? (end - begin) / sizeof(uint64_t) : 0;
  aoti_debug_interposed_invoke(target.function, frame, std::min(there, kMaxWords) & ~uint64_t{1});
}

void invoke_recorded(const Target& target, uint32_t symbol, AotiDebugFrame* frame) {
  AotiDebugInterposedCall call;
  g_hooks->enter(&call, symbol, frame);
  try {
    invoke(target, frame);
  } catch (const std::exception& error) {
    g_hooks->leave(&call, frame, error.what());
    throw;
  } catch (...) {
    g_hooks->leave(&call, frame, "an exception that is no std::exception");
    throw;
  }
  g_hooks->leave(&call, frame, nullptr);
}

}  // namespace
}  // namespace aoti_debug

void aoti_debug_interposed_dispatch(uint32_t symbol, AotiDebugFrame* frame) {
  const aoti_debug::Target target = aoti_debug::find(frame->caller, symbol);
  if (target.of_model && aoti_debug::g_hooks != nullptr) {
    aoti_debug::invoke_recorded(target, symbol, frame);
  } else {
    aoti_debug::invoke(target, frame);
  }
}

void aoti_debug_interposer_attach(const AotiDebugHooks* hooks) { aoti_debug::g_hooks = hooks; }
