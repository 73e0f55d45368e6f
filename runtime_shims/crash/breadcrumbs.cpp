#include "breadcrumbs.h"

#include <string.h>

#include "device/device.h"

namespace aoti_debug {

std::string Crumbs::open(const std::string& run_directory, uint64_t every) {
  std::string reason = shared_.create(run_directory, "crumbs.bin", kBytes, kBytes);
  if (!reason.empty()) return reason;
  if (!device::register_crumbs(shared_.base(), kBytes)) {
    shared_.discard();
    return "the device cannot write to shared memory";
  }
  auto* header = reinterpret_cast<CrumbHeader*>(shared_.base());
  header->version = 1;
  header->n_slots = kSlots;
  every_ = every;
  header->every = most_launches();
  memcpy(header->magic, "AOTIDBC1", sizeof(header->magic));
  registered_ = true;
  return "";
}

uint16_t Crumbs::slot(void* stream, const void* model) {
  const auto key = reinterpret_cast<uintptr_t>(stream);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t i = 0; i < used_; ++i) {
    if (slots()[i].stream == key && models_[i] == model) return static_cast<uint16_t>(i);
  }
  return take(stream, model, every_);
}

uint16_t Crumbs::captured_slot(void* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (captured_ == kCaptured) return kNoSlot;
  ++captured_;
  return take(stream, this, every_ == 0 ? kMaxCapturedLaunches : every_);
}

uint16_t Crumbs::take(void* stream, const void* model, uint64_t every) {
  if (used_ == kSlots) return kNoSlot;
  models_[used_] = model;
  paces_[used_].every = every;
  slots()[used_].stream = reinterpret_cast<uintptr_t>(stream);
  __atomic_store_n(&slots()[used_].used, 1u, __ATOMIC_RELEASE);
  return static_cast<uint16_t>(used_++);
}

void* Crumbs::begin_captured(void* stream, uint16_t slot, uint32_t sequence) const {
  const device::CrumbWord first{slot_offset(slot) + offsetof(CrumbSlot, completed), sequence};
  return device::begin_captured(stream, first, slot_offset(slot) + offsetof(CrumbSlot, replays));
}

bool Crumbs::write(void* stream, uint16_t slot, uint32_t sequence) const {
  return device::write_crumb(stream, slot_offset(slot) + offsetof(CrumbSlot, completed), sequence);
}

}  // namespace aoti_debug
