// Breadcrumbs: shared memory in which the device stores the last launch that it has completed, a word a stream.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "journal_format.h"
#include "shared_file.h"

namespace aoti_debug {

class Crumbs {
 public:
  static constexpr uint16_t kNoSlot = UINT16_MAX;

  // Makes the shared memory, registers it with the device and links it as crumbs.bin in the run directory.
  // "", or why there are no crumbs.
  std::string open(const std::string& run_directory, uint64_t every);

  bool is_open() const { return registered_; }

  // The slot of a stream as a model uses it; kNoSlot where all are taken. The same address may name the default streams
  // of two devices, which is why the model counts.
  uint16_t slot(void* stream, const void* model);

  // Asks the device to store `sequence` once it has completed what was enqueued on `stream` so far.
  bool write(void* stream, uint16_t slot, uint32_t sequence) const;

  // Puts a copy into the run directory in place of the link, and removes the shared memory.
  void keep_copy() { shared_.keep_copy(kBytes); }

 private:
  static constexpr uint32_t kSlots = 1023;
  static constexpr size_t kBytes = sizeof(CrumbHeader) + kSlots * sizeof(CrumbSlot);

  CrumbSlot* slots() const { return reinterpret_cast<CrumbSlot*>(shared_.base() + sizeof(CrumbHeader)); }

  SharedFile shared_;
  bool registered_ = false;
  std::mutex mutex_;
  uint32_t used_ = 0;
  const void* models_[kSlots] = {};
};

}  // namespace aoti_debug
