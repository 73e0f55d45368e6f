// What if: launches that do not run, whose results are replaced, or before which the run stops (AOTI_DEBUG_SUBSTITUTE).
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "aoti_debug.h"
#include "journal/launch_id.h"

namespace aoti_debug {

// A file whose bytes replace what a launch writes into an argument.
struct Replacement {
  std::string argument;
  int32_t dtype;  // c10::ScalarType
  std::vector<int64_t> sizes;
  uint64_t offset;  // of the elements in the file, row-major
  std::string path;
};

// A tensor of a launch whose elements are rounded to the numbers of another dtype: what it reads before it, and is
// given back afterwards; what it writes after it.
struct Rounding {
  std::string argument;
  int32_t dtype;  // c10::ScalarType
  bool after;
};

// Memory that gets these bytes again when a launch has returned.
struct KeptBytes {
  int32_t device_type;
  uint64_t address;
  std::vector<uint8_t> bytes;
};

// What is done at one launch.
struct Substitution {
  LaunchId id;
  bool skips = false;
  bool stops = false;     // before it
  std::string wait_file;  // before it the process waits until this file is gone
  std::vector<Replacement> replacements;
  std::vector<Rounding> roundings;
  std::vector<KeptBytes> kept;  // while it runs
  std::atomic<bool> reached{false};
};

// The instructions of a file, one a line, fields with tabs between them:
//   skip LAUNCH | stop LAUNCH | wait LAUNCH FILE | value LAUNCH ARGUMENT DTYPE SIZES OFFSET FILE
//   | round LAUNCH ARGUMENT DTYPE before|after
// LAUNCH is "0.36", DTYPE a number, SIZES "4,8" or "-" where there are no dimensions.
class Substitutions {
 public:
  // Reads a file. What is wrong with it is the text that is returned; "" where nothing is.
  std::string read(const std::string& path);

  // Those of a launch; nullptr where there are none.
  Substitution* find(const LaunchId& id);

  // "results replaced: 3, launches skipped: 2; not reached: 0.7"; "tensors rounded: 8" where nothing else was done.
  std::string summary() const;

  std::atomic<uint32_t> replaced{0}, skipped{0}, rounded{0};

 private:
  bool take(const std::vector<std::string>& fields);
  Substitution& at(const LaunchId& id);

  std::unordered_map<std::string, Substitution> by_launch_;
  bool rounds_ = false;
};

}  // namespace aoti_debug
