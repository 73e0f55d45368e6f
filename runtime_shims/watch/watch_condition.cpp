#include "watch_condition.h"

#include <string.h>

#include <charconv>
#include <cmath>

namespace aoti_debug {
namespace {

struct StatisticName {
  const char* name;
  WatchStatistic statistic;
};

constexpr StatisticName kStatisticNames[] = {
    {"min", WATCH_MIN},
    {"max", WATCH_MAX},
    {"absmax", WATCH_ABSMAX},
    {"mean", WATCH_MEAN},
    {"std", WATCH_STD},
    {"nan", WATCH_NAN},
    {"inf", WATCH_INF},
    {"posinf", WATCH_POSINF},
    {"neginf", WATCH_NEGINF},
    {"zeros", WATCH_ZEROS},
    {"nonfinite", WATCH_NONFINITE},
    {"numel", WATCH_NUMEL},
};

bool is_count(uint32_t statistic) { return statistic >= WATCH_NAN; }

}  // namespace

// Recursive descent; the first mistake ends it.
class ConditionParser {
 public:
  explicit ConditionParser(std::string_view text) : text_(text) {}

  std::optional<Condition> whole(std::string* error, size_t* at) {
    either();
    skip_blanks();
    if (error_.empty() && at_ < text_.size()) fail("'" + std::string(1, text_[at_]) + "' is not expected here", at_);
    if (error_.empty()) return condition_;
    *error = error_;
    *at = error_at_;
    return std::nullopt;
  }

 private:
  static constexpr int kDeepest = 64;

  uint32_t either() {
    uint32_t first = both();
    while (error_.empty() && takes_word("or")) first = join(WatchNode::kOr, first, both());
    return first;
  }

  uint32_t both() {
    uint32_t first = one();
    while (error_.empty() && takes_word("and")) first = join(WatchNode::kAnd, first, one());
    return first;
  }

  uint32_t one() {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != '(') return comparison();
    if (++depth_ > kDeepest) {
      fail("there are too many parentheses", at_);
      return 0;
    }
    ++at_;
    const uint32_t inner = either();
    skip_blanks();
    --depth_;
    if (error_.empty() && (at_ == text_.size() || text_[at_] != ')')) fail("a ) is missing", at_);
    ++at_;
    return inner;
  }

  uint32_t comparison() {
    skip_blanks();
    const size_t begin = at_;
    WatchNode node{WatchNode::kGreater, operand(), {}};
    if (error_.empty() && ++comparisons_ > kMaxWatchComparisons) fail("there are more than 32 comparisons", begin);
    if (!error_.empty()) return 0;
    if (takes_comparator(&node.kind)) {
      node.right = operand();
    } else if (!is_count(node.left.statistic)) {
      fail("a comparison is missing, such as > 0", at_);
    }
    if (error_.empty() && node.left.statistic == WATCH_NUMBER && node.right.statistic == WATCH_NUMBER) {
      fail("it compares no statistic", begin);
    }
    return add(node);
  }

  WatchNode::Operand operand() {
    skip_blanks();
    const size_t begin = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]))) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) return number();
    for (const StatisticName& known : kStatisticNames) {
      if (word == known.name) return {known.statistic, 0};
    }
    std::string names;
    for (const StatisticName& known : kStatisticNames) names += (names.empty() ? "" : ", ") + std::string(known.name);
    fail("there is no statistic '" + std::string(word) + "': they are " + names, begin);
    return {};
  }

  WatchNode::Operand number() {
    size_t begin = at_;
    if (begin < text_.size() && text_[begin] == '+') ++begin;
    WatchNode::Operand operand;
    const auto [end, status] = std::from_chars(text_.data() + begin, text_.data() + text_.size(), operand.number);
    const bool is_digit = begin < text_.size() && strchr("-.0123456789", text_[begin]) != nullptr;
    if (status != std::errc() || !is_digit || !std::isfinite(operand.number)) {
      fail("a statistic or a number is missing", at_);
      return {};
    }
    at_ = static_cast<size_t>(end - text_.data());
    return operand;
  }

  bool takes_comparator(WatchNode::Kind* kind) {
    skip_blanks();
    static constexpr struct {
      std::string_view text;
      WatchNode::Kind kind;
    } kComparators[] = {{"<=", WatchNode::kLessEqual}, {">=", WatchNode::kGreaterEqual}, {"==", WatchNode::kEqual},
                        {"!=", WatchNode::kUnequal},   {"<", WatchNode::kLess},          {">", WatchNode::kGreater}};
    for (const auto& known : kComparators) {
      if (text_.substr(at_, known.text.size()) != known.text) continue;
      at_ += known.text.size();
      *kind = known.kind;
      return true;
    }
    return false;
  }

  bool takes_word(std::string_view word) {
    skip_blanks();
    const size_t end = at_ + word.size();
    if (text_.substr(at_, word.size()) != word || (end < text_.size() && is_letter(text_[end]))) return false;
    at_ = end;
    return true;
  }

  uint32_t join(WatchNode::Kind kind, uint32_t first, uint32_t second) {
    return add(WatchNode{kind, {}, {}, first, second});
  }

  uint32_t add(const WatchNode& node) {
    condition_.nodes_.push_back(node);
    return static_cast<uint32_t>(condition_.nodes_.size() - 1);
  }

  static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  void fail(std::string error, size_t at) {
    if (!error_.empty()) return;
    error_ = std::move(error);
    error_at_ = at;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  uint32_t comparisons_ = 0;
  std::string error_;
  size_t error_at_ = 0;
  Condition condition_;
};

std::optional<Condition> Condition::parse(std::string_view text, std::string* error, size_t* at) {
  return ConditionParser(text).whole(error, at);
}

std::optional<WatchStatistic> Condition::holds(const TensorStats& stats) const {
  const uint32_t statistic = condition_holds(nodes_.data(), static_cast<uint32_t>(nodes_.size()), stats);
  if (statistic == WATCH_NUMBER) return std::nullopt;
  return static_cast<WatchStatistic>(statistic);
}

}  // namespace aoti_debug
