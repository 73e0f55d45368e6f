// The condition of a watchpoint: comparisons of a tensor's statistics, joined by `and` and `or`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/journal_format.h"

namespace aoti_debug {

// A statistic as a number. min, max and absmax take infinities into account and leave out NaN, which they are where
// every element is one; mean and std are over the finite elements.
double statistic_value(WatchStatistic statistic, const TensorStats& stats);

class Condition {
 public:
  // Where the text is none, `error` says why and `at` is the place: characters from its beginning.
  static std::optional<Condition> parse(std::string_view text, std::string* error, size_t* at);

  // The statistic of the first comparison that holds, where the condition as a whole does; otherwise nothing.
  std::optional<WatchStatistic> holds(const TensorStats& stats) const;

 private:
  friend class ConditionParser;

  struct Operand {
    WatchStatistic statistic = WATCH_NUMBER;
    double number = 0;
  };
  enum class Kind : uint8_t { kLess, kLessEqual, kGreater, kGreaterEqual, kEqual, kUnequal, kAnd, kOr };
  struct Node {
    Kind kind;
    Operand left;  // of a comparison
    Operand right;
    size_t first = 0;  // of `and` and `or`: the nodes that they join
    size_t second = 0;
  };

  std::optional<WatchStatistic> holds(size_t node, const TensorStats& stats) const;

  std::vector<Node> nodes_;  // the last one is the whole
};

}  // namespace aoti_debug
