// The condition of a watchpoint: comparisons of a tensor's statistics, joined by `and` and `or`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/watch_nodes.h"

namespace aoti_debug {

class Condition {
 public:
  // Where the text is none, `error` says why and `at` is the place: characters from its beginning.
  static std::optional<Condition> parse(std::string_view text, std::string* error, size_t* at);

  // The statistic of the first comparison that holds, where the condition as a whole does; otherwise nothing.
  std::optional<WatchStatistic> holds(const TensorStats& stats) const;

  const std::vector<WatchNode>& nodes() const { return nodes_; }

 private:
  friend class ConditionParser;

  std::vector<WatchNode> nodes_;  // at most kMaxWatchNodes
};

}  // namespace aoti_debug
