#include "crumbs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string_view>

#include "clock.h"
#include "device.h"
#include "file.h"

namespace aoti_debug {
namespace {

std::string because(const std::string& what, int error) { return what + ": " + strerror(error); }

}  // namespace

std::string Crumbs::open(const std::string& run_directory, uint64_t every) {
  link_path_ = run_directory + "/crumbs.bin";
  shared_path_ = "/dev/shm/aoti_debug-" + std::to_string(getpid()) + "-" + std::to_string(Clock::monotonic_ns());
  const File file(::open(shared_path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.is_open()) return because("cannot create " + shared_path_, errno);
  void* base = MAP_FAILED;
  int error = posix_fallocate(file.descriptor(), 0, kBytes);
  if (error == 0) {
    base = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.descriptor(), 0);
    if (base == MAP_FAILED) error = errno;
  }
  if (error == 0 && symlink(shared_path_.c_str(), link_path_.c_str()) != 0) error = errno;
  std::string reason;
  if (error != 0) {
    reason = because("cannot set up " + link_path_, error);
  } else if (!device::register_crumbs(base, kBytes)) {
    reason = "the device cannot write to shared memory";
    unlink(link_path_.c_str());
  }
  if (!reason.empty()) {
    if (base != MAP_FAILED) munmap(base, kBytes);
    unlink(shared_path_.c_str());
    return reason;
  }
  base_ = static_cast<uint8_t*>(base);
  CrumbHeader* header = reinterpret_cast<CrumbHeader*>(base_);
  header->version = 1;
  header->n_slots = kSlots;
  header->every = every;
  memcpy(header->magic, "AOTIDBC1", sizeof(header->magic));
  return "";
}

uint16_t Crumbs::slot(void* stream, const void* model) {
  const uint64_t key = reinterpret_cast<uintptr_t>(stream);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < used_; ++i) {
    if (slots()[i].stream == key && models_[i] == model) return static_cast<uint16_t>(i);
  }
  if (used_ == kSlots) return kNoSlot;
  models_[used_] = model;
  slots()[used_].stream = key;
  __atomic_store_n(&slots()[used_].used, 1u, __ATOMIC_RELEASE);
  return static_cast<uint16_t>(used_++);
}

bool Crumbs::write(void* stream, uint16_t slot, uint32_t sequence) const {
  const size_t offset = sizeof(CrumbHeader) + slot * sizeof(CrumbSlot) + offsetof(CrumbSlot, completed);
  return device::write_crumb(stream, offset, sequence);
}

void Crumbs::keep_copy() {
  if (base_ == nullptr) return;
  const std::string_view bytes(reinterpret_cast<const char*>(base_), kBytes);
  if (replace_file(link_path_, bytes) == 0) unlink(shared_path_.c_str());
}

}  // namespace aoti_debug
