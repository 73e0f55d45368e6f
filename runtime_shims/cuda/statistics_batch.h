// Tensors of one dtype, put together for one launch of its statistics kernel.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>

#include "layout.h"

namespace aoti_debug::cuda {

constexpr uint32_t kMaxBlocks = 1024;

// What the blocks of one launch share.
struct StatisticsScratch {
  static constexpr size_t kMailboxes = kMaxBlocks + StatisticsBatch::kMaxTensors;
  static constexpr size_t kBytes = kMailboxes * kPartialWords * sizeof(uint64_t);

  uint64_t mailboxes = 0;  // device address of kBytes, all 0 before a launch and after it
  uint64_t replays = 0;  // of the uint32_t that is the ticket of every result; 0: each has its own, outside of a graph
  uint32_t slot_mask = 0;  // of the ticket: which of its slots a result goes to
};

class BatchBuilder {
 public:
  // `most_blocks`: those that the device has room for at a time; a batch has at most so many and one for each tensor.
  BatchBuilder(bool hashed, uint32_t most_blocks) : most_blocks_(most_blocks) {
    batch_.n_tensors = batch_.n_dims = 0;
    batch_.hashed = hashed;
  }

  // False: there is no room; what is in it must be launched first.
  bool add(const StatisticsJob& job, const Dimension* dims) {
    const uint32_t n_dims = job.elements.n_dims;
    if (batch_.n_tensors == StatisticsBatch::kMaxTensors) return false;
    if (batch_.n_dims + n_dims > StatisticsBatch::kMaxDimsInAll) return false;
    StatisticsJob& added = batch_.jobs[batch_.n_tensors++];
    added = job;
    added.elements.first_dim = static_cast<uint16_t>(batch_.n_dims);
    memcpy(batch_.dims + batch_.n_dims, dims, n_dims * sizeof(Dimension));
    batch_.n_dims += n_dims;
    return true;
  }

  void use(const StatisticsScratch& scratch) {
    batch_.mailboxes = scratch.mailboxes;
    batch_.replays = scratch.replays;
    batch_.slot_mask = scratch.slot_mask;
  }

  // Gives each tensor its blocks; returns the grid for all of them.
  Grid divide() {
    uint64_t wanted = 0;
    Grid grid{0, kBlockThreads};
    for (uint32_t i = 0; i < batch_.n_tensors; ++i) {
      batch_.first_block[i] = blocks_for(batch_.jobs[i].chunks, most_blocks_);  // for now: how many it wants
      wanted += batch_.first_block[i];
    }
    for (uint32_t i = 0; i < batch_.n_tensors; ++i) {
      uint64_t blocks = batch_.first_block[i];
      if (wanted > most_blocks_) blocks = std::max<uint64_t>(blocks * most_blocks_ / wanted, 1);
      blocks = in_rows(blocks, batch_.jobs[i].interleaving);
      batch_.first_block[i] = grid.blocks;
      grid.blocks += static_cast<uint32_t>(blocks);
    }
    batch_.first_block[batch_.n_tensors] = grid.blocks;
    return grid;
  }

  StatisticsBatch& batch() { return batch_; }

 private:
  // At most so many blocks, of threads that each stay in one row, where so many can.
  static uint64_t in_rows(uint64_t blocks, const Interleaving& order) {
    if (order.rows == 0) return blocks;
    const uint64_t alike = order.rows / std::gcd(order.rows, kBlockThreads);
    return blocks < alike ? blocks : blocks / alike * alike;
  }

  static_assert(kMaxDims <= StatisticsBatch::kMaxDimsInAll, "every tensor fits an empty batch");

  StatisticsBatch batch_;  // jobs and dimensions behind the last one are never read
  uint32_t most_blocks_;
};

}  // namespace aoti_debug::cuda
