// The file of summaries of a run: rows of some calls, and of some replays of CUDA graphs, in bounded room.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "formats/summaries_format.h"
#include "machine/file.h"

namespace aoti_debug {

class Summaries {
 public:
  // Creates summaries.bin in the run directory. A call, or a replay, is summarised if its number is a multiple of
  // `every`; the file takes up to `bytes`. 0 or an errno.
  int open(const std::string& run_directory, uint32_t every, uint64_t bytes);

  bool is_open() const { return every_.load(std::memory_order_relaxed) != 0; }

  // Whether the call of the model, or the replay, with this number is summarised.
  bool wants(uint32_t number) const {
    const uint64_t every = every_.load(std::memory_order_relaxed);
    return every != 0 && number % every == 0;
  }

  // Adds a row; it is written with others.
  void add(const SummaryRow& row);

  // Counts rows of replays that could not be read in time.
  void miss(uint64_t rows);

  // Writes what was added, at the end of a call or after a look at replays.
  void flush();

  uint64_t missed();

  // What has changed since the last time, for a note: fewer calls are summarised, or a file that cannot be written.
  std::string take_news();

 private:
  static constexpr size_t kRowsPerWrite = 1024;

  void write();
  void thin_out();
  void stop(int error);

  std::mutex mutex_;  // guards what follows
  File file_;
  SummariesHeader header_{};
  std::vector<SummaryRow> pending_;
  std::string news_;
  std::atomic<uint64_t> every_{0};  // 0: off
  std::atomic<bool> has_news_{false};
};

}  // namespace aoti_debug
