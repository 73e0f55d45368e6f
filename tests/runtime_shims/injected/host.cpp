// Calls a package (../sanitized/package.cpp with the runtime) as a program does, while one call of the runtime to the
// system fails: one after the other, each in a child of its own.
//
// usage: host PLAIN PACKAGE FOLDER CLASS CHOICE ONLY PART COUNT FIRST STEP MOST
//
// PLAIN is another copy of the package, called at level 0: every checksum is compared with its. FOLDER receives a
// folder for each child, with its runs and what it prints. From call FIRST on, MOST calls of the class fail in turn
// (CHOICE, ONLY and PART say how: faults.h), each with COUNT - 1 that follow, until none is left.
//
// A child loads the package, calls it on two threads and unloads it, HOST_ROUNDS times: without the failing call the
// last time, and with it before. A line of a child is
//
//   NUMBER STATUS FAILED NAME ERROR FROM REMOVALS, then how much the last failing time has left: FILES MAPPED_BYTES
//   BYTES
//
// with the status of wait(2). A child that takes too long is ended by SIGALRM.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "faults.h"

namespace {

uint32_t g_types[] = {0, 0};  // of the two calls
constexpr unsigned kSeconds = 20;
constexpr int kMostRounds = 8;
constexpr int kWrong = 3;  // the exit status after another result than at level 0

using Call = uint64_t (*)(const void* model, uint32_t type, uint32_t device, uint32_t fault, void (*within)());

struct Left {
  int64_t files, mapped, bytes;
};

struct Shared {
  Faults faults;
  Left left[kMostRounds];
};

char g_model;
uint64_t g_expected[2];
Shared* g_shared;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "host: %s\n", what.c_str());
  std::_Exit(2);
}

class Package {
 public:
  explicit Package(const char* path) : library_(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) fail(dlerror());
    call = reinterpret_cast<Call>(dlsym(library_, "sanitized_call"));
    containers = reinterpret_cast<void (*)(int32_t)>(dlsym(library_, "sanitized_containers"));
    reinterpret_cast<void (*)(Faults*)>(dlsym(library_, "inject"))(&g_shared->faults);
  }
  ~Package() { dlclose(library_); }
  Package(const Package&) = delete;

  Call call;
  void (*containers)(int32_t change);

 private:
  void* library_;
};

uint32_t number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : static_cast<uint32_t>(std::atoi(text));
}

void use(const char* path) {
  const Package package(path);
  const uint32_t device = number_in("HOST_DEVICE"), fault = number_in("HOST_FAULT");
  const auto check = [&](int which, uint32_t planted) {
    const uint64_t expected = planted == 1 ? 0 : g_expected[which];
    if (package.call(&g_model, g_types[which], device, planted, nullptr) != expected) std::_Exit(kWrong);
  };
  package.containers(1);
  check(0, 0);
  std::thread([&] { check(1, 0); }).join();
  check(0, fault);
  if (number_in("HOST_FORKS") != 0) {
    const pid_t child = fork();
    if (child == 0) {
      check(0, 0);
      std::_Exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) std::_Exit(status == 0 ? 2 : kWrong);
  }
  package.containers(-1);
}

Left measure() {
  Left left{0, 0, 0};
  if (DIR* const files = opendir("/proc/self/fd")) {
    while (readdir(files) != nullptr) ++left.files;
    closedir(files);
  }
  if (FILE* const maps = std::fopen("/proc/self/maps", "r")) {
    unsigned long begin = 0, end = 0;
    for (char line[4096]; std::fgets(line, sizeof(line), maps) != nullptr;) {
      if (std::strstr(line, "[heap]") == nullptr && std::sscanf(line, "%lx-%lx", &begin, &end) == 2) {
        left.mapped += static_cast<int64_t>(end - begin);
      }
    }
    std::fclose(maps);
  }
  const struct mallinfo2 heap = mallinfo2();
  left.bytes = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
  left.mapped -= static_cast<int64_t>(heap.hblkhd);  // malloc's choice: it is among the bytes
  return left;
}

[[noreturn]] void run_child(const char* package, const std::string& folder) {
  alarm(kSeconds);
  mkdir(folder.c_str(), 0777);
  const int output = open((folder + "/output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  close(output);
  const int rounds = static_cast<int>(number_in("HOST_ROUNDS"));
  for (int round = 0; round < rounds; ++round) {
    setenv("AOTI_DEBUG_DIR", (folder + "/" + std::to_string(round)).c_str(), 1);
    const bool fails = round + 1 < rounds;
    if (fails) g_shared->faults.calls = 0;
    g_shared->faults.armed = fails;
    use(package);
    g_shared->faults.armed = 0;
    g_shared->left[round] = measure();
    if (g_shared->faults.failed == 0 && g_shared->faults.first != UINT64_MAX) break;  // the call has no such error
  }
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 12) fail("usage: host PLAIN PACKAGE FOLDER CLASS CHOICE ONLY PART COUNT FIRST STEP MOST");
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no shared memory");
  g_shared = new (memory) Shared{};
  g_types[1] = number_in("HOST_TYPE");
  const std::string level = std::getenv("AOTI_DEBUG_LEVEL");
  setenv("AOTI_DEBUG_LEVEL", "0", 1);
  const Package plain(argv[1]);
  for (int i = 0; i < 2; ++i) g_expected[i] = plain.call(&g_model, g_types[i], 0, 0, nullptr);
  setenv("AOTI_DEBUG_LEVEL", level.c_str(), 1);
  const uint64_t first = std::strtoull(argv[9], nullptr, 10), step = std::strtoull(argv[10], nullptr, 10);
  const uint64_t most = std::strtoull(argv[11], nullptr, 10);
  for (uint64_t i = 0; i < most; ++i) {
    const uint64_t number = first + i * step;
    Faults& faults = g_shared->faults;
    new (g_shared) Shared{};
    faults.fault_class = static_cast<uint32_t>(std::atoi(argv[4]));
    faults.choice = static_cast<uint32_t>(std::atoi(argv[5]));
    faults.only = std::atoi(argv[6]);
    faults.part = std::strtoull(argv[7], nullptr, 10);
    faults.count = std::strtoull(argv[8], nullptr, 10);
    faults.first = number;
    const pid_t child = fork();
    if (child == 0) run_child(argv[2], std::string(argv[3]) + "/" + std::to_string(number));
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) fail("no child");
    const int rounds = static_cast<int>(number_in("HOST_ROUNDS"));
    const Left& before = g_shared->left[rounds - 3];
    const Left& after = g_shared->left[rounds - 2];
    std::printf("%" PRIu64 " %d %u %s %d %" PRIu64 " %u %" PRId64 " %" PRId64 " %" PRId64 "\n", number, status,
                faults.failed.load(), faults.failed == 0 ? "-" : faults.name, faults.error, faults.from,
                faults.removals.load(), after.files - before.files, after.mapped - before.mapped,
                after.bytes - before.bytes);
    std::fflush(stdout);
    if (status == 0 && faults.failed == 0 && faults.calls <= number) break;
  }
  return 0;
}
