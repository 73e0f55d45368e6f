// What the environment, or somebody who has attached, asks for. It is read here and nowhere else, once per run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aoti_debug.h"
#include "filter.h"
#include "rank.h"
#include "watch/watchpoints.h"

namespace aoti_debug {

constexpr uint64_t kNoLimit = UINT64_MAX;
constexpr uint64_t kLongestFlight = 65536;  // launches

// Whether a level records statistics or the hash of every tensor.
constexpr bool measures_tensors(uint32_t level) { return level == LEVEL_VALUES || level == LEVEL_HASH; }

enum class PhaseChoice : uint8_t { kByRole, kBefore, kAfter, kBoth };

// A launch that AOTI_DEBUG_LAUNCH names.
struct LaunchChoice {
  uint8_t kind = AOTI_DEBUG_CALL_MODEL;
  uint32_t call = 0;
  uint32_t launch = 0;
};

// Random delays before launches.
struct Jitter {
  bool is_on = false;
  uint64_t seed = 0;
  std::vector<uint32_t> launches;  // numbers in a call; empty: every one
};

struct Config {
  uint32_t level = 0;
  Filter filter;
  Filter modules;
  Filter lines;
  std::string base_directory;  // of runs; "": the folder for them in the home
  std::string home;            // "": the default
  std::string run_directory;   // of the parent; "" where there is none
  PhaseChoice phase = PhaseChoice::kByRole;
  uint64_t max_bytes = kNoLimit;
  uint64_t max_files = kNoLimit;
  uint64_t max_tensor_bytes = kNoLimit;
  uint64_t keep_free_bytes = uint64_t{1} << 30;
  uint64_t journal_bytes = uint64_t{256} << 20;
  uint64_t crumb_every = 0;            // launches; 0: every launch, fewer in a burst
  std::vector<LaunchChoice> launches;  // what is printed and saved; empty: every one
  uint64_t flight = 0;                 // launches whose inputs the flight recorder keeps; 0: off
  uint64_t flight_bytes = kNoLimit;    // of tensors that it keeps; kNoLimit: as /dev/shm allows
  std::vector<Watchpoint> watchpoints;
  uint32_t on_hit = 0;     // WatchActions
  uint64_t summaries = 0;  // calls per call that is summarised; 0: off
  uint64_t summaries_bytes = uint64_t{64} << 20;
  AotiDebugInspector inspector = nullptr;
  Jitter jitter;
  Rank rank;
  std::string substitute;  // a file of instructions (substitutions.h); "" where there is none
  std::string weights;     // a table of weights in a file (weights_file.h), or a folder of them; "" where there is none
  bool print = true;
  bool backtrace = false;               // write down the native stack of a crash
  bool guards = false;                  // zones of known bytes around the buffers that the wrapper allocates
  uint8_t poison = 0xff;                // what guarded buffers are filled with
  std::vector<std::string> complaints;  // a line for each value that was not understood
};

Config load_config(const AotiDebugPackage& package);

// "0.3", "c0.1"; a bare "3" is "0.3". False where `text` is none of them.
bool parse_launch(const char* text, LaunchChoice* launch);

// Launches with commas between them.
bool parse_launches(const char* text, std::vector<LaunchChoice>* launches);

// Ranks with commas between them, "0,2-3", and whether `rank` is one of them. False where `text` is something else.
bool parse_ranks(const char* text, uint32_t rank, bool* is_chosen);

// A seed, or a seed and numbers of launches: "7", "7:0,3".
bool parse_jitter(const char* text, Jitter* jitter);

// A number with an optional suffix K, M, G or T (powers of 1024).
bool parse_bytes(const char* text, uint64_t* bytes);

}  // namespace aoti_debug
