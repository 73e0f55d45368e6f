// The condition of a watchpoint as an array of nodes, which the host and a device evaluate alike, and what a device has
// found of one in the replays of a CUDA graph.
#pragma once

#include "statistic_value.h"

namespace aoti_debug {

constexpr uint32_t kMaxWatchComparisons = 32;
constexpr uint32_t kMaxWatchNodes = 2 * kMaxWatchComparisons - 1;

// A comparison, or two nodes before it joined. The last node of an array is the whole condition.
struct WatchNode {
  enum Kind : uint32_t { kLess, kLessEqual, kGreater, kGreaterEqual, kEqual, kUnequal, kAnd, kOr };
  struct Operand {
    uint32_t statistic = WATCH_NUMBER;  // WatchStatistic
    double number = 0;
  };

  Kind kind = kLess;
  Operand left, right;             // of a comparison
  uint32_t first = 0, second = 0;  // of `and` and `or`: the nodes that they join
};

AOTI_DEBUG_HOST_DEVICE inline double operand_value(const WatchNode::Operand& operand, const TensorStats& stats) {
  return operand.statistic == WATCH_NUMBER ? operand.number : statistic_value(operand.statistic, stats);
}

// The statistic of a comparison that holds; WATCH_NUMBER where it does not.
AOTI_DEBUG_HOST_DEVICE inline uint32_t comparison_holds(const WatchNode& node, const TensorStats& stats) {
  const double left = operand_value(node.left, stats), right = operand_value(node.right, stats);
  bool result = false;
  switch (node.kind) {
    case WatchNode::kLess:
      result = left < right;
      break;
    case WatchNode::kLessEqual:
      result = left <= right;
      break;
    case WatchNode::kGreater:
      result = left > right;
      break;
    case WatchNode::kGreaterEqual:
      result = left >= right;
      break;
    case WatchNode::kEqual:
      result = left == right;
      break;
    default:
      result = left < right || left > right;
      break;
  }
  if (!result) return WATCH_NUMBER;
  return node.left.statistic != WATCH_NUMBER ? node.left.statistic : node.right.statistic;
}

// The statistic of the first comparison that holds, where the condition as a whole does; otherwise WATCH_NUMBER.
AOTI_DEBUG_HOST_DEVICE inline uint32_t condition_holds(const WatchNode* nodes, uint32_t count,
                                                       const TensorStats& stats) {
  uint8_t held[kMaxWatchNodes];
  for (uint32_t i = 0; i < count; ++i) {
    const WatchNode& node = nodes[i];
    const bool joins = node.kind == WatchNode::kAnd || node.kind == WatchNode::kOr;
    if (!joins) {
      held[i] = static_cast<uint8_t>(comparison_holds(node, stats));
      continue;
    }
    const uint8_t first = held[node.first], second = held[node.second];
    const bool both = first != WATCH_NUMBER && second != WATCH_NUMBER;
    held[i] = node.kind == WatchNode::kAnd ? (both ? first : uint8_t{WATCH_NUMBER})
                                           : (first != WATCH_NUMBER ? first : second);
  }
  return held[count - 1];
}

// In host memory that a device writes: `hits` comes after all else of the first hit.
struct CapturedWatch {
  uint64_t evaluated;  // how often the condition was looked at
  uint64_t hits;
  // of the first hit
  uint32_t replay;                                   // from 1
  uint32_t statistic;                                // WatchStatistic of the comparison that held
  TensorStats stats;                                 // call, launch, slot, kind, phase, hash and layout are not filled
  uint64_t nan_index, pos_inf_index, neg_inf_index;  // they mean nothing where there is none
};

}  // namespace aoti_debug
