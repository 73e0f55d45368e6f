#include "unknown_variables.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

namespace aoti_debug {
namespace {

// What this runtime and the commands read (aoti_debug/base/abi.py).
constexpr std::string_view kKnownVariables[] = {
    "AOTI_DEBUG_LEVEL",
    "AOTI_DEBUG_FILTER",
    "AOTI_DEBUG_MODULE",
    "AOTI_DEBUG_LINE",
    "AOTI_DEBUG_DIR",
    "AOTI_DEBUG_HOME",
    "AOTI_DEBUG_RUN",
    "AOTI_DEBUG_PHASE",
    "AOTI_DEBUG_MAX_BYTES",
    "AOTI_DEBUG_MAX_FILES",
    "AOTI_DEBUG_MAX_TENSOR_BYTES",
    "AOTI_DEBUG_KEEP_FREE_BYTES",
    "AOTI_DEBUG_JOURNAL_BYTES",
    "AOTI_DEBUG_CRUMB_EVERY",
    "AOTI_DEBUG_LAUNCH",
    "AOTI_DEBUG_FLIGHT",
    "AOTI_DEBUG_FLIGHT_BYTES",
    "AOTI_DEBUG_SUMMARIES",
    "AOTI_DEBUG_SUMMARIES_BYTES",
    "AOTI_DEBUG_PRINT",
    "AOTI_DEBUG_BACKTRACE",
    "AOTI_DEBUG_GUARDS",
    "AOTI_DEBUG_POISON",
    "AOTI_DEBUG_WATCH",
    "AOTI_DEBUG_ON_HIT",
    "AOTI_DEBUG_INSPECT",
    "AOTI_DEBUG_RANKS",
    "AOTI_DEBUG_SUBSTITUTE",
    "AOTI_DEBUG_JITTER",
    "AOTI_DEBUG_WEIGHTS",
};
constexpr std::string_view kOwnPrefix = "AOTI_DEBUG_";
constexpr size_t kMostEdits = 3;  // letters of a name that is still taken for a misspelt one

// How many letters have to be inserted, left out or replaced to make one word of the other.
size_t edits(std::string_view one, std::string_view other) {
  std::vector<size_t> row(other.size() + 1);
  for (size_t column = 0; column <= other.size(); ++column) row[column] = column;
  for (size_t line = 1; line <= one.size(); ++line) {
    size_t diagonal = row[0];
    row[0] = line;
    for (size_t column = 1; column <= other.size(); ++column) {
      const size_t replaced = diagonal + (one[line - 1] == other[column - 1] ? 0 : 1);
      diagonal = row[column];
      row[column] = std::min({replaced, row[column] + 1, row[column - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> unknown_variables() {
  std::vector<std::string> lines;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    const auto* const end = std::end(kKnownVariables);
    if (name.substr(0, kOwnPrefix.size()) != kOwnPrefix || std::find(std::begin(kKnownVariables), end, name) != end)
      continue;
    const auto* const nearest = std::min_element(
        std::begin(kKnownVariables), end, [&](auto one, auto other) { return edits(name, one) < edits(name, other); });
    std::string line = std::string(name) + " is not known";
    if (edits(name, *nearest) <= kMostEdits) line += "; perhaps " + std::string(*nearest);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace aoti_debug
