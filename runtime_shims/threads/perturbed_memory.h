// An allocator of torch's tensors in the memory of the host, with which races and wrong uses of memory show more often:
// memory that one thread has freed goes to whichever thread asks next, addresses differ from run to run, and freed and
// new memory hold NaN.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <random>
#include <vector>

namespace aoti_debug {

class PerturbedMemory final : public c10::Allocator {
 public:
  explicit PerturbedMemory(uint32_t seed) : random_(seed) {}

  c10::DataPtr allocate(size_t bytes) override {
    const size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* data = freed(size);
    if (data == nullptr) data = made(size);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static constexpr size_t kAlignment = 64;              // as torch's own: the results of some kernels depend on it
  static constexpr unsigned kPlaces = 16;               // where the data may begin, this far apart
  static constexpr size_t kMostKept = size_t{1} << 28;  // bytes that are freed and not yet given again
  static constexpr int kFill = 0xff;

  // Stands before the data.
  struct Block {
    PerturbedMemory* owner;
    void* memory;
    size_t size;
  };
  static_assert(sizeof(Block) <= kAlignment);

  static Block& block_of(void* data) { return *reinterpret_cast<Block*>(static_cast<char*>(data) - kAlignment); }

  // The data of this size that were freed last, by any thread; new ones in one of four cases.
  void* freed(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& known = freed_[size];
    if (known.empty() || random_() % 4 == 0) return nullptr;
    void* data = known.back();
    known.pop_back();
    kept_ -= size;
    return data;
  }

  void* made(size_t size) {
    void* memory = ::operator new(size + kAlignment * (kPlaces + 1), std::align_val_t{kAlignment});
    void* data = static_cast<char*>(memory) + kAlignment * (1 + random() % kPlaces);
    Block& block = block_of(data);
    block.owner = this;
    block.memory = memory;
    block.size = size;
    std::memset(data, kFill, size);
    return data;
  }

  unsigned random() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<unsigned>(random_());
  }

  static void give_back(void* data) {
    const Block& block = block_of(data);
    std::memset(data, kFill, block.size);
    if (!block.owner->keep(data, block.size)) ::operator delete(block.memory, std::align_val_t{kAlignment});
  }

  bool keep(void* data, size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_ + size > kMostKept) return false;
    kept_ += size;
    freed_[size].push_back(data);
    return true;
  }

  std::mutex mutex_;
  std::mt19937 random_;
  std::map<size_t, std::vector<void*>> freed_;  // by size
  size_t kept_ = 0;
};

// From now on tensors in the memory of the host lie in perturbed memory, until the process ends.
inline void perturb_memory(uint32_t seed) {
  // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): tensors need it until the process has ended.
  static auto* const memory = new PerturbedMemory(seed);
  c10::SetCPUAllocator(memory, /*priority=*/UINT8_MAX);
}

}  // namespace aoti_debug
