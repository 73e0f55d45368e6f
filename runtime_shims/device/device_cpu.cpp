// The device half of a package for a CPU: there is no device.
#include <cstdlib>

#include "device.h"

namespace aoti_debug::device {

bool owns(int32_t) { return false; }

bool register_crumbs(void*, size_t) { return false; }

bool write_crumb(void*, size_t, uint32_t) { return false; }

void* begin_captured(void*, CrumbWord, size_t) { return nullptr; }

bool add_stats(void*, void*, const TensorView&) { return false; }

const CapturedWatch* add_watch(void*, void*, const WatchNode*, uint32_t) { return nullptr; }

void keep_stats(void*, void*, const TensorView*, int, StatsWanted, uint32_t, const void**) {}

Kept read_last(const void*, StatsResult*, uint32_t*) { return Kept::kNothing; }

Kept read_replay(const void*, uint32_t, StatsResult*) { return Kept::kNothing; }

bool register_flight(void*, size_t) { return false; }

bool unregister_flight() { return true; }

bool write_flight(void*, size_t, uint32_t) { return false; }

bool copy_to_flight(void*, uint64_t, size_t, void*) { return false; }

bool is_capturing(void*) { return false; }

void* current_stream(int32_t) { return nullptr; }

bool wait_stream(void*) { return true; }

int32_t pending_error(void*, char* text, size_t text_bytes) {
  if (text_bytes != 0) text[0] = '\0';
  return 0;
}

bool begin_copy(void*, const TensorView&, size_t, size_t, void*, uint64_t*) { return false; }

bool wait_copy(uint64_t) { return false; }

bool write_memory(void*, uint64_t, size_t, const void*) { return false; }

// NOLINTBEGIN(cppcoreguidelines-owning-memory): StagingPool owns it.
void* allocate_staging(size_t bytes) { return std::malloc(bytes); }

void free_staging(void* memory) { std::free(memory); }
// NOLINTEND(cppcoreguidelines-owning-memory)

int begin_stats(void*, const TensorView*, int, StatsWanted) { return 0; }

int take_stats(void*, StatsResult*, int, bool) { return 0; }

void forget_stats(void*) {}

void end_run() {}

bool fill_guarded(void*, const GuardedMemory&, uint8_t) { return false; }

bool check_guards(void*, const GuardedLaunch&, const GuardedMemory*, uint32_t) { return false; }

int take_damage(void*, GuardDamage*, int, bool) { return 0; }

}  // namespace aoti_debug::device
