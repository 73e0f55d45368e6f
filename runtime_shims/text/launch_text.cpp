#include "launch_text.h"

#include <charconv>
#include <cmath>

#include "element_text.h"
#include "number_text.h"
#include "tensors/dtype.h"

namespace aoti_debug {
namespace {

constexpr size_t kColumns = 80;
constexpr size_t kLongestName = 56;
constexpr size_t kLoopCounts = 12;  // columns of " iteration 1" behind the name of a kernel
constexpr std::string_view kMoreIndent = "        ";

// Puts words into lines that begin with a prefix and end before the last column. Without `end` there are no lines.
class Wrapper {
 public:
  Wrapper(std::string& text, std::string_view prefix, std::string_view indent)
      : text_(text), prefix_(prefix), whole_(text.size()) {
    open(indent);
  }
  ~Wrapper() { text_.resize(whole_); }
  Wrapper(const Wrapper&) = delete;
  Wrapper& operator=(const Wrapper&) = delete;

  void word(std::string_view word, std::string_view gap = "  ") {
    const size_t column = text_.size() - start_;
    if (column + (empty_ ? 0 : gap.size()) + word.size() > kColumns && !empty_) {
      text_ += '\n';
      open(kMoreIndent);
    }
    if (!empty_) text_ += gap;
    text_ += word.substr(0, kColumns - kMoreIndent.size() - prefix_.size());
    empty_ = false;
  }

  void end() {
    text_ += '\n';
    whole_ = text_.size();
  }

 private:
  void open(std::string_view indent) {
    start_ = text_.size();
    text_ += prefix_;
    text_ += indent;
    empty_ = true;
  }

  std::string& text_;
  std::string_view prefix_;
  size_t whole_;  // how much of the text stays
  size_t start_ = 0;
  bool empty_ = true;
};

// The name, cut in its middle where it is long: both ends tell names apart.
std::string shortened(std::string_view name) {
  if (name.size() <= kLongestName) return std::string(name);
  const size_t half = (kLongestName - 3) / 2;
  return std::string(name.substr(0, half)) + "..." + std::string(name.substr(name.size() - half));
}

char* digits(char* to, uint32_t number) { return std::to_chars(to, to + 10, number).ptr; }

const char* role_name(uint8_t role) {
  switch (role) {
    case AOTI_DEBUG_ROLE_IN:
      return "in";
    case AOTI_DEBUG_ROLE_OUT:
      return "out";
    case AOTI_DEBUG_ROLE_INOUT:
      return "in-out";
    default:
      return "unknown";
  }
}

std::string shape_text(const TensorMeta& meta) {
  std::string text = dtype(meta.dtype).name;
  if (meta.layout != kLayoutStrided) return text + " " + layout_name(meta.layout);
  text += '[';
  for (uint16_t d = 0; d < meta.ndim; ++d) {
    if (d != 0) text += ',';
    append_signed(text, meta.sizes[d]);
  }
  return text + ']';
}

void describe_slot(Wrapper& line, const AotiDebugSlot& slot, const TensorMeta& meta) {
  line.word(role_name(slot.role));
  line.word(shortened(slot.name), " ");
  line.word(shape_text(meta));
  line.word(device_name(meta.device_type, meta.device_index));
}

std::string number_text(const TensorStats& stats, uint64_t bits, int digits) {
  std::string text;
  if (stats.integer == 2) {
    append_unsigned(text, bits);
  } else if (stats.integer == 1) {
    append_signed(text, static_cast<int64_t>(bits));
  } else {
    append_real(text, extremum_value(stats, bits), digits);
  }
  return text;
}

std::string real_text(std::string_view name, double value) {
  std::string text(name);
  append_real(text, value, 6);
  return text;
}

void count_word(Wrapper& line, std::string_view name, uint64_t count) {
  if (count == 0) return;
  std::string text(name);
  append_unsigned(text, count);
  line.word(text);
}

void print_statistics(Wrapper& line, const TensorMeta& meta, const TensorStats& stats) {
  const uint64_t n_special = stats.n_nan + stats.n_pos_inf + stats.n_neg_inf;
  if (stats.numel > n_special) {
    const int digits = meta.dtype == kFloat64 || meta.dtype == kComplex128 ? 12 : 6;
    line.word("min " + number_text(stats, stats.min_bits, digits) + " at " + std::to_string(stats.min_index));
    line.word("max " + number_text(stats, stats.max_bits, digits) + " at " + std::to_string(stats.max_index));
    line.word(real_text("mean ", stats.mean));
    line.word(real_text("std ", stats.std));
  }
  count_word(line, "NaN ", stats.n_nan);
  count_word(line, "+Inf ", stats.n_pos_inf);
  count_word(line, "-Inf ", stats.n_neg_inf);
  count_word(line, "zeros ", stats.n_zero);
  if (stats.numel == 0) line.word("empty");
}

}  // namespace

LinePrefix::LinePrefix(const LaunchId& id, uint32_t thread) {
  char* at = text_;
  if (id.kind == AOTI_DEBUG_CALL_CONSTANT) *at++ = 'c';
  at = digits(at, id.call);
  *at++ = '.';
  at = digits(at, id.launch);
  if (thread != 0) {
    *at++ = ' ';
    *at++ = '[';
    at = digits(at, thread);
    *at++ = ']';
  }
  *at++ = ' ';
  size_ = static_cast<size_t>(at - text_);
}

void print_launch(std::string& text, const LinePrefix& prefix, Phase phase, const char* kernel, LoopCounts loops) {
  constexpr std::string_view kPhases[] = {"before ", "after  "};
  const std::string_view name(kernel), what = kPhases[phase == PHASE_BEFORE ? 0 : 1];
  if (name.size() > kColumns - prefix.text().size() - what.size() - kLoopCounts) {
    text.append(prefix.text()).append(what).append(shortened(name));
  } else {
    char line[kColumns];
    size_t size = prefix.text().copy(line, sizeof(line));
    size += what.copy(line + size, what.size());
    size += name.copy(line + size, name.size());
    text.append(line, size);
  }
  for (uint32_t i = 0; i < loops.n; ++i) {
    text += i == 0 ? " iteration " : ".";
    append_unsigned(text, loops.counts[i]);
  }
  text += '\n';
}

void print_tensor(std::string& text, const LinePrefix& prefix, const AotiDebugSlot& slot, const TensorMeta& meta,
                  const TensorStats& stats, const uint8_t* values) {
  {
    Wrapper line(text, prefix.text(), "  ");
    describe_slot(line, slot, meta);
    std::string hash("#");
    append_hex(hash, stats.hash, 8);
    line.word(hash);
    line.end();
  }
  {
    Wrapper line(text, prefix.text(), "      ");
    print_statistics(line, meta, stats);
    line.end();
  }
  const uint64_t element_bytes = dtype(meta.dtype).bytes;
  if (stats.value_bytes == 0 || element_bytes == 0) return;
  Wrapper line(text, prefix.text(), "      ");
  const uint64_t count = stats.value_bytes / element_bytes;
  for (uint64_t i = 0; i < count; ++i) {
    std::string word;
    if (i == 0) word += '[';
    append_element(word, meta.dtype, values + i * element_bytes);
    word += i + 1 == count ? ']' : ',';
    line.word(word, " ");
  }
  line.end();
}

void print_unread(std::string& text, const LinePrefix& prefix, const AotiDebugSlot& slot, const TensorMeta& meta,
                  std::string_view why) {
  Wrapper line(text, prefix.text(), "  ");
  describe_slot(line, slot, meta);
  line.word(why);
  line.end();
}

void print_fault(std::string& text, const LinePrefix& prefix, const char* kernel, std::string_view what) {
  const std::string_view first_line = what.substr(0, what.find('\n'));
  Wrapper line(text, prefix.text(), "");
  line.word("FAULT in");
  line.word(shortened(kernel), " ");
  line.word(first_line, ": ");
  line.end();
}

}  // namespace aoti_debug
