// Loads packages (package.cpp with the runtime) and drives them as hosts do: from many threads, across forks, loading
// and unloading. Every call's checksum is compared with that of the package at level 0.
//
// usage: host SCENARIO PLAIN PACKAGE PACKAGE; PLAIN is another copy of the package, loaded at level 0. The scenario
// takes its level from AOTI_DEBUG_LEVEL. Exits with 1 after a line that says what went wrong.
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "formats/control_format.h"

namespace {

constexpr uint32_t kThreads = 8;
constexpr uint32_t kRunners = 4;
constexpr uint32_t kTypes = 14;  // shapes and dtypes that the model goes through

using Call = uint64_t (*)(const void* model, uint32_t type, uint32_t device, uint32_t fault, void (*within)());
using Set = void (*)(const char* what, int value);

char g_runners[kRunners];
std::array<uint64_t, kTypes> g_expected;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "host: %s\n", what.c_str());
  std::_Exit(1);
}

class Package {
 public:
  explicit Package(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) fail(dlerror());
    call_ = reinterpret_cast<Call>(dlsym(library_, "sanitized_call"));
    set = reinterpret_cast<Set>(dlsym(library_, "f_set"));
  }
  ~Package() { dlclose(library_); }
  Package(const Package&) = delete;

  void call(uint32_t number, uint32_t fault = 0, void (*within)() = nullptr) const {
    const uint32_t type = number % kTypes;
    const uint64_t sum = call_(&g_runners[number % kRunners], type, number / kTypes % 2, fault, within);
    if (fault == 1 ? sum != 0 : sum != g_expected[type]) fail("another result than at level 0");
  }
  uint64_t plain(uint32_t type) const { return call_(&g_runners[0], type, 0, 0, nullptr); }

  Set set;

 private:
  void* library_;
  Call call_;
};

template <class Work>
void in_threads(uint32_t count, const Work& work) {
  std::vector<std::thread> threads;
  for (uint32_t number = 0; number < count; ++number) threads.emplace_back([&work, number] { work(number); });
  for (std::thread& thread : threads) thread.join();
}

void finish_child(pid_t child) {
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
    fail("the child of a fork ended with status " + std::to_string(status));
  }
}

void fork_within() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  finish_child(child);
}

void request_stack() { pthread_kill(pthread_self(), SIGRTMIN + 7); }

void threads(char** paths) {
  const Package packages[] = {Package(paths[0]), Package(paths[1])};
  in_threads(kThreads, [&](uint32_t thread) {
    for (uint32_t i = 0; i < 5; ++i) {
      packages[i % 2].call(thread * 3 + i, i == 3 ? 1 + thread % 2 : 0, i == 1 ? request_stack : nullptr);
    }
  });
}

void forks(char** paths) {
  const Package package(paths[0]);
  package.call(0);
  for (uint32_t i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      for (uint32_t n = 0; n < 4; ++n) package.call(n + i);
      std::exit(0);
    }
    package.call(i, 0, fork_within);
    finish_child(child);
  }
  std::atomic<bool> over{false};
  std::thread busy([&] {
    for (uint32_t i = 0; !over; ++i) package.call(i % 4);
  });
  for (uint32_t i = 0; i < 4; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    finish_child(child);
  }
  over = true;
  busy.join();
}

void reloads(char** paths) {
  const Package stays(paths[1]);
  std::atomic<bool> over{false};
  std::thread busy([&] {
    for (uint32_t i = 0; !over; ++i) stays.call(i % 4);
  });
  for (uint32_t i = 0; i < 6; ++i) {
    const Package package(paths[0]);
    in_threads(2, [&](uint32_t thread) {
      for (uint32_t n = 0; n < 3; ++n) package.call(i + n * 2 + thread);
    });
    package.call(i);
  }
  over = true;
  busy.join();
}

// The device breaks, has no memory to spare, or captures a graph, while threads call the package.
void device(char** paths) {
  const Package package(paths[0]);
  package.call(0);  // a graph takes nodes of a model that was called before
  for (const char* what : {"capturing", "copies fail", "no staging", "error"}) {
    package.set(what, 1);
    in_threads(4, [&](uint32_t thread) {
      for (uint32_t i = 0; i < 4; ++i) package.call(thread + i * 5);
    });
    package.set(what, 0);
  }
  package.set("replay", 1);
}

// The control page of the only package.
ControlPage* control_page() {
  for (int descriptor = 3; descriptor < 256; ++descriptor) {
    char target[128] = "";
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    if (readlink(link.c_str(), target, sizeof(target) - 1) < 0) continue;
    if (std::strstr(target, AOTI_DEBUG_CONTROL_NAME) == nullptr) continue;
    void* page = mmap(nullptr, sizeof(ControlPage), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (page != MAP_FAILED) return static_cast<ControlPage*>(page);
  }
  fail("no control page");
}

// Somebody asks for other levels, again and again, while calls of two threads overlap.
void attach(char** paths) {
  const Package package(paths[0]);
  package.call(0);
  ControlPage* const page = control_page();
  std::atomic<bool> over{false};
  std::thread asks([&] {
    uint64_t runs = 1;
    for (const char* level : {"0", "3", "2", "0", "1", "hash", "3", "0", "2"}) {
      const std::string settings = std::string("AOTI_DEBUG_LEVEL=") + level + "\nAOTI_DEBUG_PRINT=none\n";
      std::memcpy(page->settings, settings.data(), settings.size());
      page->settings_bytes = settings.size();
      uint32_t requested = __atomic_add_fetch(&page->requested, 1, __ATOMIC_RELEASE);
      runs += level[0] != '0' ? 1 : 0;
      for (int waits = 1; __atomic_load_n(&page->accepted, __ATOMIC_ACQUIRE) != requested; ++waits) {
        usleep(1000);
        // On a device new calls wait for running ones for a second, which may not be enough: whoever asks asks again.
        if (waits % 3000 == 0) requested = __atomic_add_fetch(&page->requested, 1, __ATOMIC_RELEASE);
      }
      while (__atomic_load_n(&page->runs, __ATOMIC_ACQUIRE) != runs) usleep(1000);
      usleep(20000);
    }
    over = true;
  });
  in_threads(2, [&](uint32_t thread) {
    for (uint32_t i = thread; !over; ++i) package.call(i, i % 5 == 3 ? 1 : 0);
  });
  asks.join();
}

struct Scenario {
  const char* name;
  void (*run)(char** packages);
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) fail("usage: host SCENARIO PLAIN PACKAGE PACKAGE");
  const std::string level = std::getenv("AOTI_DEBUG_LEVEL");
  setenv("AOTI_DEBUG_LEVEL", "0", 1);
  {
    const Package plain(argv[2]);
    for (uint32_t type = 0; type < kTypes; ++type) g_expected[type] = plain.plain(type);
  }
  setenv("AOTI_DEBUG_LEVEL", level.c_str(), 1);
  for (const Scenario& scenario :
       {Scenario{"threads", threads}, {"forks", forks}, {"reloads", reloads}, {"device", device}, {"attach", attach}}) {
    if (std::strcmp(scenario.name, argv[1]) != 0) continue;
    scenario.run(argv + 3);
    std::puts("done");
    return 0;
  }
  fail("no such scenario");
}
