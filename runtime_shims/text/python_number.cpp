#include "python_number.h"

#include <charconv>
#include <cmath>
#include <string>

namespace aoti_debug {
namespace {

// [[fill]align][sign][0][width][.precision][type]
struct FormatSpec {
  char fill = ' ';
  char align = '>';
  char sign = '-';
  size_t width = 0;
  int precision = -1;
  char type = '\0';
};

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }

FormatSpec read_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  bool aligned = true;
  if (text.size() >= 2 && is_align(text[1])) {
    spec.fill = text[0];
    spec.align = text[1];
    at = 2;
  } else if (is_align(peek())) {
    spec.align = text[at++];
  } else {
    aligned = false;
  }
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '0') {
    ++at;
    if (!aligned) {
      spec.fill = '0';
      spec.align = '=';
    }
  }
  while (is_decimal(peek()) && spec.width < 100000)
    spec.width = spec.width * 10 + static_cast<size_t>(text[at++] - '0');
  if (peek() == '.') {
    ++at;
    spec.precision = 0;
    while (is_decimal(peek()) && spec.precision < 1000) spec.precision = spec.precision * 10 + (text[at++] - '0');
  }
  spec.type = peek();
  return spec;
}

std::string padded(const FormatSpec& spec, bool negative, const std::string& digits) {
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  const size_t used = sign.size() + digits.size();
  const size_t room = spec.width > used ? spec.width - used : 0;
  switch (spec.align) {
    case '<':
      return sign + digits + std::string(room, spec.fill);
    case '=':
      return sign + std::string(room, spec.fill) + digits;
    case '^':
      return std::string(room / 2, spec.fill) + sign + digits + std::string(room - room / 2, spec.fill);
    default:
      return std::string(room, spec.fill) + sign + digits;
  }
}

std::string upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return text;
}

// repr without the ".0" of a whole number.
std::string complex_part(double value) {
  std::string text = python_float(value);
  if (text.size() > 2 && text.compare(text.size() - 2, 2, ".0") == 0) text.resize(text.size() - 2);
  return text;
}

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double magnitude = std::fabs(value);
  const bool fixed = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value, format).ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string python_complex(double real, double imaginary) {
  const std::string part = complex_part(imaginary);
  if (real == 0 && !std::signbit(real)) return part + "j";
  return "(" + complex_part(real) + (part[0] == '-' ? "" : "+") + part + "j)";
}

std::string python_digits(double value, char format, int precision) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const auto chosen = format == 'e'   ? std::chars_format::scientific
                      : format == 'g' ? std::chars_format::general
                                      : std::chars_format::fixed;
  std::string text(400 + static_cast<size_t>(precision), '\0');
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value, chosen, precision);
  text.resize(static_cast<size_t>(end.ptr - text.data()));
  return text;
}

std::string format_python_float(double value, std::string_view spec_text) {
  const FormatSpec spec = read_spec(spec_text);
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  std::string digits;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = python_digits(magnitude, 'f', precision);
      break;
    case 'e':
    case 'E':
      digits = python_digits(magnitude, 'e', precision);
      break;
    case 'g':
    case 'G':
      digits = python_digits(magnitude, 'g', precision == 0 ? 1 : precision);
      break;
    case '%':
      digits = python_digits(magnitude * 100, 'f', precision) + "%";
      break;
    default:
      digits = python_float(magnitude);
      break;
  }
  const bool capitals = spec.type >= 'A' && spec.type <= 'Z';
  return padded(spec, negative, capitals ? upper(digits) : digits);
}

std::string format_python_int(const std::string& text, double value, std::string_view spec_text) {
  const FormatSpec spec = read_spec(spec_text);
  if (spec.type != '\0' && spec.type != 'd') return format_python_float(value, spec_text);
  const bool negative = text[0] == '-';
  return padded(spec, negative, negative ? text.substr(1) : text);
}

}  // namespace aoti_debug
