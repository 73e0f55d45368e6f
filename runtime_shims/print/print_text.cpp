#include "print_text.h"

#include <charconv>

#include "text/python_number.h"

namespace aoti_debug {
namespace {

// What stands between braces: "t0!r", "i1:5d". Empty where it is no field of ours.
std::string field_text(std::string_view field, const std::vector<PrintedTensor>& tensors,
                       const std::vector<int64_t>& integers) {
  if (field.size() < 2) return "";
  uint8_t byte = 0;
  if (field[0] == 'x') {
    std::from_chars(field.data() + 1, field.data() + field.size(), byte, 16);
    return std::string(1, static_cast<char>(byte));
  }
  size_t number = 0;
  const auto [end, status] = std::from_chars(field.data() + 1, field.data() + field.size(), number);
  if (status != std::errc()) return "";
  std::string_view rest = field.substr(static_cast<size_t>(end - field.data()));
  const bool is_repr = rest.substr(0, 2) == "!r";
  if (is_repr) rest.remove_prefix(2);
  const std::string_view spec = rest.empty() ? rest : rest.substr(1);
  if (field[0] == 't' && number < tensors.size()) {
    return is_repr ? tensor_repr(tensors[number]) : format_tensor(tensors[number], spec);
  }
  if (field[0] == 'i' && number < integers.size()) {
    const std::string digits = std::to_string(integers[number]);
    return spec.empty() ? digits : format_python_int(digits, static_cast<double>(integers[number]), spec);
  }
  return "";
}

}  // namespace

std::string print_text(std::string_view text, const std::vector<PrintedTensor>& tensors,
                       const std::vector<int64_t>& integers) {
  std::string printed;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text[at + 1] == c) {
      printed += c;
      at += 2;
      continue;
    }
    const size_t end = c == '{' ? text.find('}', at) : std::string_view::npos;
    if (end == std::string_view::npos) {
      printed += c;
      ++at;
      continue;
    }
    const std::string value = field_text(text.substr(at + 1, end - at - 1), tensors, integers);
    printed += value.empty() ? std::string(text.substr(at, end + 1 - at)) : value;
    at = end + 1;
  }
  return printed;
}

}  // namespace aoti_debug
