#include "watch_condition.h"

#include <string.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "statistics/statistics.h"

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

bool is_count(WatchStatistic statistic) { return statistic >= WATCH_NAN; }

}  // namespace

double statistic_value(WatchStatistic statistic, const TensorStats& stats) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const uint64_t n_inf = stats.n_pos_inf + stats.n_neg_inf;
  const bool any_finite = stats.numel > stats.n_nan + n_inf;
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  switch (statistic) {
    case WATCH_MIN:
      if (stats.n_neg_inf != 0) return -kInfinity;
      return any_finite ? extremum_value(stats, stats.min_bits) : n_inf != 0 ? kInfinity : nothing;
    case WATCH_MAX:
      if (stats.n_pos_inf != 0) return kInfinity;
      return any_finite ? extremum_value(stats, stats.max_bits) : n_inf != 0 ? -kInfinity : nothing;
    case WATCH_ABSMAX:
      if (n_inf != 0) return kInfinity;
      if (!any_finite) return nothing;
      return std::max(std::fabs(extremum_value(stats, stats.min_bits)),
                      std::fabs(extremum_value(stats, stats.max_bits)));
    case WATCH_MEAN:
      return any_finite ? stats.mean : nothing;
    case WATCH_STD:
      return any_finite ? stats.std : nothing;
    case WATCH_NAN:
      return static_cast<double>(stats.n_nan);
    case WATCH_INF:
      return static_cast<double>(n_inf);
    case WATCH_POSINF:
      return static_cast<double>(stats.n_pos_inf);
    case WATCH_NEGINF:
      return static_cast<double>(stats.n_neg_inf);
    case WATCH_NONFINITE:
      return static_cast<double>(stats.n_nan + n_inf);
    case WATCH_ZEROS:
      return static_cast<double>(stats.n_zero);
    case WATCH_NUMEL:
      return static_cast<double>(stats.numel);
    case WATCH_NUMBER:
      break;
  }
  return nothing;
}

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

  size_t either() {
    size_t first = both();
    while (error_.empty() && takes_word("or")) first = join(Condition::Kind::kOr, first, both());
    return first;
  }

  size_t both() {
    size_t first = one();
    while (error_.empty() && takes_word("and")) first = join(Condition::Kind::kAnd, first, one());
    return first;
  }

  size_t one() {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != '(') return comparison();
    if (++depth_ > kDeepest) {
      fail("there are too many parentheses", at_);
      return 0;
    }
    ++at_;
    const size_t inner = either();
    skip_blanks();
    --depth_;
    if (error_.empty() && (at_ == text_.size() || text_[at_] != ')')) fail("a ) is missing", at_);
    ++at_;
    return inner;
  }

  size_t comparison() {
    skip_blanks();
    const size_t begin = at_;
    Condition::Node node{Condition::Kind::kGreater, operand(), {}};
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

  Condition::Operand operand() {
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

  Condition::Operand number() {
    size_t begin = at_;
    if (begin < text_.size() && text_[begin] == '+') ++begin;
    Condition::Operand operand;
    const auto [end, status] = std::from_chars(text_.data() + begin, text_.data() + text_.size(), operand.number);
    const bool is_digit = begin < text_.size() && strchr("-.0123456789", text_[begin]) != nullptr;
    if (status != std::errc() || !is_digit || !std::isfinite(operand.number)) {
      fail("a statistic or a number is missing", at_);
      return {};
    }
    at_ = static_cast<size_t>(end - text_.data());
    return operand;
  }

  bool takes_comparator(Condition::Kind* kind) {
    skip_blanks();
    static constexpr struct {
      std::string_view text;
      Condition::Kind kind;
    } kComparators[] = {{"<=", Condition::Kind::kLessEqual}, {">=", Condition::Kind::kGreaterEqual},
                        {"==", Condition::Kind::kEqual},     {"!=", Condition::Kind::kUnequal},
                        {"<", Condition::Kind::kLess},       {">", Condition::Kind::kGreater}};
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

  size_t join(Condition::Kind kind, size_t first, size_t second) {
    return add(Condition::Node{kind, {}, {}, first, second});
  }

  size_t add(const Condition::Node& node) {
    condition_.nodes_.push_back(node);
    return condition_.nodes_.size() - 1;
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
  std::string error_;
  size_t error_at_ = 0;
  Condition condition_;
};

std::optional<Condition> Condition::parse(std::string_view text, std::string* error, size_t* at) {
  return ConditionParser(text).whole(error, at);
}

std::optional<WatchStatistic> Condition::holds(const TensorStats& stats) const {
  return holds(nodes_.size() - 1, stats);
}

std::optional<WatchStatistic> Condition::holds(size_t index, const TensorStats& stats) const {
  const Node& node = nodes_[index];
  if (node.kind == Kind::kAnd || node.kind == Kind::kOr) {
    const std::optional<WatchStatistic> first = holds(node.first, stats);
    if (first.has_value() != (node.kind == Kind::kAnd)) return first;
    const std::optional<WatchStatistic> second = holds(node.second, stats);
    return node.kind == Kind::kAnd && second.has_value() ? first : second;
  }
  const auto value = [&stats](const Operand& operand) {
    return operand.statistic == WATCH_NUMBER ? operand.number : statistic_value(operand.statistic, stats);
  };
  const double left = value(node.left), right = value(node.right);
  bool result = false;
  switch (node.kind) {
    case Kind::kLess:
      result = left < right;
      break;
    case Kind::kLessEqual:
      result = left <= right;
      break;
    case Kind::kGreater:
      result = left > right;
      break;
    case Kind::kGreaterEqual:
      result = left >= right;
      break;
    case Kind::kEqual:
      result = left == right;
      break;
    default:
      result = left != right && left == left && right == right;
      break;
  }
  if (!result) return std::nullopt;
  return node.left.statistic != WATCH_NUMBER ? node.left.statistic : node.right.statistic;
}

}  // namespace aoti_debug
