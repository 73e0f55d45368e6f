#include "control.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "aoti_debug.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif

namespace aoti_debug {
namespace {

// Variables that a control page has set. Replaced under the lock that guards the start of a run, and read under it.
std::map<std::string, std::string>& settings() {
  static std::map<std::string, std::string> kept;
  return kept;
}

template <size_t kBytes>
void write_text(char (&to)[kBytes], const std::string& text) {
  const size_t bytes = std::min(text.size(), kBytes - 1);
  memcpy(to, text.data(), bytes);
  memset(to + bytes, 0, kBytes - bytes);
}

std::string this_library() {
  Dl_info found;
  if (dladdr(&aoti_debug_package, &found) == 0 || found.dli_fname == nullptr) return "";
  return found.dli_fname;
}

}  // namespace

Control control;

const char* setting(const char* name) {
  const auto found = settings().find(name);
  if (found == settings().end()) return getenv(name);
  return found->second.empty() ? nullptr : found->second.c_str();
}

void Control::open() {
  if (tried_.exchange(true)) return;
  const std::string library = this_library();  // first: memory that is missing must not cost a descriptor
  const int descriptor = static_cast<int>(syscall(SYS_memfd_create, AOTI_DEBUG_CONTROL_NAME, MFD_CLOEXEC));
  if (descriptor < 0) return;
  void* memory = MAP_FAILED;
  if (ftruncate(descriptor, sizeof(ControlPage)) == 0) {
    memory = mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  if (memory == MAP_FAILED) {
    ::close(descriptor);
    return;
  }
  auto* made = static_cast<ControlPage*>(memory);
  made->version = AOTI_DEBUG_CONTROL_VERSION;
  write_text(made->library, library);
  descriptor_ = descriptor;
  memcpy(made->magic, AOTI_DEBUG_CONTROL_MAGIC, sizeof(made->magic));  // last: the page is whole now
  page_.store(made);
}

Control::~Control() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Control::close() {
  ControlPage* const made = page();
  forget();
  if (made != nullptr) munmap(made, sizeof(ControlPage));
}

void Control::forget() {
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  page_.store(nullptr);
  seen_ = 0;
  tried_.store(false);
}

void Control::accept() {
  ControlPage* const made = page();
  const uint32_t requested = __atomic_load_n(&made->requested, __ATOMIC_ACQUIRE);
  const size_t bytes = std::min<uint64_t>(made->settings_bytes, sizeof(made->settings) - 1);
  const std::string text(made->settings, bytes);
  settings().clear();
  for (size_t start = 0; start < text.size();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const size_t equals = text.find('=', start);
    if (equals < end) settings()[text.substr(start, equals - start)] = text.substr(equals + 1, end - equals - 1);
    start = end + 1;
  }
  __atomic_store_n(&made->delay, DELAY_NONE, __ATOMIC_RELAXED);
  __atomic_store_n(&made->launches, 0, __ATOMIC_RELAXED);
  write_text(made->run_directory, "");
  __atomic_store_n(&made->accepted, requested, __ATOMIC_RELEASE);
}

bool Control::is_new() {
  const uint32_t requested = __atomic_load_n(&page()->requested, __ATOMIC_ACQUIRE);
  return std::exchange(seen_, requested) != requested;
}

void Control::delay(ControlDelay reason) {
  if (ControlPage* made = page()) __atomic_store_n(&made->delay, reason, __ATOMIC_RELAXED);
}

void Control::set_level(uint32_t level) {
  if (ControlPage* made = page()) __atomic_store_n(&made->level, level, __ATOMIC_RELAXED);
}

void Control::begin_run(const std::string& directory) {
  ControlPage* const made = page();
  if (made == nullptr) return;
  __atomic_store_n(&made->launches, 0, __ATOMIC_RELAXED);
  write_text(made->run_directory, directory);
  __atomic_fetch_add(&made->runs, 1, __ATOMIC_RELEASE);
}

}  // namespace aoti_debug
