#include "configuration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "control.h"
#include "unknown_variables.h"

namespace aoti_debug {
namespace {

// The value of a variable; nullptr where it is absent or empty.
const char* variable(const char* name) {
  const char* value = setting(name);
  return value != nullptr && value[0] != '\0' ? value : nullptr;
}

// A number without a suffix, at most INT32_MAX.
bool parse_count(const char* text, uint32_t* count) {
  uint64_t value = 0;
  if (text[0] == '\0' || strspn(text, "0123456789") != strlen(text)) return false;
  if (!parse_bytes(text, &value) || value > INT32_MAX) return false;
  *count = static_cast<uint32_t>(value);
  return true;
}

class Loader {
 public:
  explicit Loader(Config& config) : config_(config) {}

  void level(const char* name, uint32_t baked) {
    const char* value = variable(name);
    if (value == nullptr) return;
    if (value[0] >= '0' && value[0] <= '3' && value[1] == '\0') {
      config_.level = static_cast<uint32_t>(value[0] - '0');
    } else if (strcmp(value, "hash") == 0) {
      config_.level = LEVEL_HASH;
    } else {
      complain(name, value, "0, 1, 2, 3 or hash", baked == LEVEL_HASH ? "hash" : std::to_string(baked));
    }
  }

  void bytes(const char* name, uint64_t* target) {
    const char* value = variable(name);
    if (value != nullptr && !parse_bytes(value, target)) complain(name, value, "a number such as 512M", "the default");
  }

  void phase() {
    const char* value = variable("AOTI_DEBUG_PHASE");
    if (value == nullptr) return;
    if (strcmp(value, "before") == 0) {
      config_.phase = PhaseChoice::kBefore;
    } else if (strcmp(value, "after") == 0) {
      config_.phase = PhaseChoice::kAfter;
    } else if (strcmp(value, "both") == 0) {
      config_.phase = PhaseChoice::kBoth;
    } else {
      complain("AOTI_DEBUG_PHASE", value, "before, after or both", "the default");
    }
  }

  void launch() {
    const char* value = variable("AOTI_DEBUG_LAUNCH");
    if (value != nullptr && !parse_launches(value, &config_.launches)) {
      complain("AOTI_DEBUG_LAUNCH", value, "CALL.LAUNCH such as 0.3, or several with commas", "every launch");
    }
  }

  void jitter() {
    const char* value = variable("AOTI_DEBUG_JITTER");
    if (value == nullptr || parse_jitter(value, &config_.jitter)) return;
    complain("AOTI_DEBUG_JITTER", value, "a seed such as 7, or one with numbers of launches such as 7:0,3",
             "no delays");
  }

  void crumbs() {
    const char* value = variable("AOTI_DEBUG_CRUMB_EVERY");
    if (value == nullptr || (parse_bytes(value, &config_.crumb_every) && config_.crumb_every != 0)) return;
    complain("AOTI_DEBUG_CRUMB_EVERY", value, "a number from 1", "the default");
  }

  void flight() {
    bytes("AOTI_DEBUG_FLIGHT", &config_.flight);
    bytes("AOTI_DEBUG_FLIGHT_BYTES", &config_.flight_bytes);
    if (config_.flight <= kLongestFlight) return;
    complain("AOTI_DEBUG_FLIGHT", variable("AOTI_DEBUG_FLIGHT"), "a number up to 65536", "65536");
    config_.flight = kLongestFlight;
  }

  void summaries() {
    const char* value = variable("AOTI_DEBUG_SUMMARIES");
    if (value != nullptr && (!parse_bytes(value, &config_.summaries) || config_.summaries > UINT32_MAX)) {
      config_.summaries = 0;
      complain("AOTI_DEBUG_SUMMARIES", value, "a number of calls, such as 1", "no summaries");
    }
    bytes("AOTI_DEBUG_SUMMARIES_BYTES", &config_.summaries_bytes);
  }

  void print() {
    const char* value = variable("AOTI_DEBUG_PRINT");
    if (value == nullptr) return;
    if (strcmp(value, "none") == 0) {
      config_.print = false;
    } else if (strcmp(value, "stderr") != 0) {
      complain("AOTI_DEBUG_PRINT", value, "stderr or none", "stderr");
    }
  }

  void backtrace() {
    const char* value = variable("AOTI_DEBUG_BACKTRACE");
    config_.backtrace = value == nullptr ? config_.level != LEVEL_OFF : strcmp(value, "1") == 0;
    if (value == nullptr) return;
    if (!config_.backtrace && strcmp(value, "0") != 0) complain("AOTI_DEBUG_BACKTRACE", value, "0 or 1", "0");
  }

  void guards() {
    const char* value = variable("AOTI_DEBUG_GUARDS");
    if (value == nullptr) return;
    config_.guards = strcmp(value, "1") == 0;
    if (!config_.guards && strcmp(value, "0") != 0) complain("AOTI_DEBUG_GUARDS", value, "0 or 1", "0");
  }

  void poison() {
    const char* value = variable("AOTI_DEBUG_POISON");
    if (value == nullptr) return;
    const char* const end = value + strlen(value);
    uint8_t byte = 0;
    if (end == value + 2 && std::from_chars(value, end, byte, 16).ptr == end) {
      config_.poison = byte;
    } else {
      complain("AOTI_DEBUG_POISON", value, "two hexadecimal digits", "ff");
    }
    if (!config_.guards) config_.complaints.emplace_back("AOTI_DEBUG_POISON does nothing without AOTI_DEBUG_GUARDS=1");
  }

  void watchpoints() {
    const char* value = variable("AOTI_DEBUG_WATCH");
    const std::string_view words = value == nullptr ? "" : value;
    for (size_t start = 0; start < words.size();) {
      const size_t end = std::min(words.find(';', start), words.size());
      watchpoint(words.substr(start, end - start));
      start = end + 1;
    }
    if (config_.watchpoints.empty() || config_.level != LEVEL_OFF) return;
    config_.complaints.emplace_back("AOTI_DEBUG_WATCH does nothing at level 0");
  }

  // Set by the process itself: its id, and the address of a function in it.
  void inspector() {
    const char* value = variable("AOTI_DEBUG_INSPECT");
    if (value == nullptr) return;
    const char* const end = value + strlen(value);
    pid_t pid = 0;
    uintptr_t address = 0;
    const char* const colon = std::from_chars(value, end, pid).ptr;
    if (pid != getpid() || *colon != ':') return;
    const auto [rest, status] = std::from_chars(colon + 1, end, address, 16);
    if (status == std::errc() && rest == end) config_.inspector = reinterpret_cast<AotiDebugInspector>(address);
  }

  void on_hit() {
    const char* value = variable("AOTI_DEBUG_ON_HIT");
    if (value == nullptr) return;
    const std::optional<uint32_t> actions = parse_watch_actions(value);
    if (!actions)
      return complain("AOTI_DEBUG_ON_HIT", value, "save, stack, stop or count, with commas", "none of them");
    config_.on_hit = *actions;
    config_.backtrace |= (*actions & WATCH_STACK) != 0;
  }

  void rank() {
    const char* number = variable("RANK");
    const char* world_size = variable("WORLD_SIZE");
    if (number == nullptr || world_size == nullptr) return;
    Rank rank;
    if (!parse_count(number, &rank.number) || !parse_count(world_size, &rank.world_size)) return;
    if (rank.number >= rank.world_size) return;
    const auto text = [](const char* name) { return std::string(variable(name) == nullptr ? "" : variable(name)); };
    if (!parse_count(text("LOCAL_WORLD_SIZE").c_str(), &rank.local_world_size)) rank.local_world_size = 0;
    rank.run_id = text("TORCHELASTIC_RUN_ID");
    rank.master = text("MASTER_ADDR") + ":" + text("MASTER_PORT");
    rank.restart = text("TORCHELASTIC_RESTART_COUNT");
    config_.rank = std::move(rank);
  }

  // What AOTI_DEBUG_RANKS leaves out keeps its journal: who waits for whom is seen in those of all.
  void ranks() {
    const char* value = variable("AOTI_DEBUG_RANKS");
    if (value == nullptr || config_.level == LEVEL_OFF) return;
    const char* own = variable("RANK");  // WORLD_SIZE need not be set for this
    uint32_t number = config_.rank.number;
    if (own != nullptr && !parse_count(own, &number)) number = config_.rank.number;
    bool is_chosen = false;
    if (!parse_ranks(value, number, &is_chosen)) {
      return complain("AOTI_DEBUG_RANKS", value, "numbers such as 0,2-3", "all ranks");
    }
    if (is_chosen) return;
    config_.level = LEVEL_NAMES;
    config_.print = config_.guards = false;
    config_.flight = config_.summaries = 0;
    config_.watchpoints.clear();
    config_.inspector = nullptr;
  }

  void complain(const char* name, const char* value, const char* wanted, const std::string& used) {
    config_.complaints.push_back(std::string(name) + "=" + value + " is not " + wanted + "; using " + used);
  }

 private:
  void watchpoint(std::string_view text) {
    std::string error;
    size_t at = 0;
    if (std::optional<Watchpoint> watchpoint = parse_watchpoint(text, &error, &at)) {
      config_.watchpoints.push_back(std::move(*watchpoint));
      return;
    }
    std::string complaint = "AOTI_DEBUG_WATCH: " + error + ", at the caret; this watchpoint is ignored\n  ";
    complaint += text;
    config_.complaints.push_back(complaint + "\n  " + std::string(at, ' ') + "^");
  }

  Config& config_;
};

}  // namespace

bool parse_ranks(const char* text, uint32_t rank, bool* is_chosen) {
  const std::string_view words = text;
  bool found = false;
  for (size_t start = 0; start <= words.size();) {
    const size_t end = std::min(words.find(',', start), words.size());
    const std::string word(words.substr(start, end - start));
    const size_t dash = word.find('-');
    uint32_t first = 0, last = 0;
    if (!parse_count(word.substr(0, dash).c_str(), &first)) return false;
    last = first;
    if (dash != std::string::npos && (!parse_count(word.substr(dash + 1).c_str(), &last) || last < first)) return false;
    found |= first <= rank && rank <= last;
    start = end + 1;
  }
  *is_chosen = found;
  return true;
}

bool parse_jitter(const char* text, Jitter* jitter) {
  const std::string_view words = text;
  const size_t colon = std::min(words.find(':'), words.size());
  Jitter found;
  uint32_t seed = 0;
  if (!parse_count(std::string(words.substr(0, colon)).c_str(), &seed)) return false;
  for (size_t start = colon + 1; start <= words.size();) {
    const size_t end = std::min(words.find(',', start), words.size());
    if (!parse_count(std::string(words.substr(start, end - start)).c_str(), &found.launches.emplace_back()))
      return false;
    start = end + 1;
  }
  found.seed = seed;
  found.is_on = true;
  *jitter = std::move(found);
  return true;
}

bool parse_bytes(const char* text, uint64_t* bytes) {
  if (text[0] < '0' || text[0] > '9') return false;
  uint64_t value = 0;
  while (*text >= '0' && *text <= '9') {
    if (__builtin_mul_overflow(value, uint64_t{10}, &value)) return false;
    if (__builtin_add_overflow(value, static_cast<uint64_t>(*text++ - '0'), &value)) return false;
  }
  if (*text != '\0') {
    const char* units = "KMGT";
    const char* unit = strchr(units, *text & ~0x20);
    if (unit == nullptr || *unit == '\0' || text[1] != '\0') return false;
    if (__builtin_mul_overflow(value, uint64_t{1} << (10 * (unit - units + 1)), &value)) return false;
  }
  *bytes = value;
  return true;
}

bool parse_launch(const char* text, LaunchChoice* launch) {
  LaunchChoice choice;
  if (*text == 'c') {
    choice.kind = AOTI_DEBUG_CALL_CONSTANT;
    ++text;
  }
  uint32_t numbers[2] = {0, 0};
  int count = 0;
  for (; count < 2; ++count) {
    if (*text < '0' || *text > '9') return false;
    for (; *text >= '0' && *text <= '9'; ++text) {
      if (__builtin_mul_overflow(numbers[count], 10u, &numbers[count])) return false;
      if (__builtin_add_overflow(numbers[count], static_cast<uint32_t>(*text - '0'), &numbers[count])) return false;
    }
    if (*text != '.') break;
    ++text;
  }
  if (*text != '\0' || count == 2) return false;
  choice.call = count == 0 ? 0 : numbers[0];
  choice.launch = numbers[count];
  *launch = choice;
  return true;
}

bool parse_launches(const char* text, std::vector<LaunchChoice>* launches) {
  std::vector<LaunchChoice> found;
  const std::string_view words = text;
  for (size_t start = 0; start <= words.size();) {
    const size_t end = std::min(words.find(',', start), words.size());
    if (!parse_launch(std::string(words.substr(start, end - start)).c_str(), &found.emplace_back())) return false;
    start = end + 1;
  }
  *launches = std::move(found);
  return true;
}

Config load_config(const AotiDebugPackage& package) {
  Config config;
  config.level = package.level;
  Loader loader(config);
  loader.level(
      variable("AOTI_DEBUG_LEVEL") != nullptr ? "AOTI_DEBUG_LEVEL" : "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
      package.level);
  if (const char* patterns = setting("AOTI_DEBUG_FILTER")) {
    config.filter = Filter::patterns(patterns);
  } else if (const char* names = variable("AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT")) {
    config.filter = Filter::names(names);
  } else {
    config.filter = Filter::patterns(package.filter);
  }
  const auto or_empty = [](const char* text) { return text == nullptr ? "" : text; };
  const char* modules = setting("AOTI_DEBUG_MODULE");
  config.modules = Filter::patterns(or_empty(modules != nullptr ? modules : package.module_filter));
  const char* lines = setting("AOTI_DEBUG_LINE");
  config.lines = Filter::patterns(or_empty(lines != nullptr ? lines : package.line_filter));
  if (const char* base = variable("AOTI_DEBUG_DIR")) config.base_directory = base;
  if (const char* home = variable("AOTI_DEBUG_HOME")) config.home = home;
  if (const char* run = variable("AOTI_DEBUG_RUN")) config.run_directory = run;
  if (const char* file = variable("AOTI_DEBUG_SUBSTITUTE")) config.substitute = file;
  if (const char* table = variable("AOTI_DEBUG_WEIGHTS")) config.weights = table;
  loader.phase();
  loader.bytes("AOTI_DEBUG_MAX_BYTES", &config.max_bytes);
  loader.bytes("AOTI_DEBUG_MAX_FILES", &config.max_files);
  loader.bytes("AOTI_DEBUG_MAX_TENSOR_BYTES", &config.max_tensor_bytes);
  loader.bytes("AOTI_DEBUG_KEEP_FREE_BYTES", &config.keep_free_bytes);
  loader.bytes("AOTI_DEBUG_JOURNAL_BYTES", &config.journal_bytes);
  loader.jitter();
  loader.crumbs();
  loader.launch();
  loader.flight();
  loader.summaries();
  loader.print();
  loader.guards();
  loader.poison();
  loader.backtrace();
  loader.watchpoints();
  loader.on_hit();
  loader.inspector();
  loader.rank();
  loader.ranks();
  if (config.run_directory.empty()) {  // a parent has said it
    for (std::string& line : unknown_variables()) config.complaints.push_back(std::move(line));
  }
  return config;
}

}  // namespace aoti_debug
