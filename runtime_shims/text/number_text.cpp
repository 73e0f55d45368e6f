#include "number_text.h"

#include <charconv>

namespace aoti_debug {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";

template <class T>
void append_integer(std::string& text, T value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

void append_unsigned(std::string& text, uint64_t value) { append_integer(text, value); }

void append_signed(std::string& text, int64_t value) { append_integer(text, value); }

void append_real(std::string& text, double value, int digits) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::general, digits);
  text.append(buffer, end.ptr);
}

void append_hex(std::string& text, uint64_t value, int digits) {
  for (int i = 0; i < digits; ++i) text += kHexDigits[(value >> (60 - 4 * i)) & 15];
}

void append_json(std::string& text, std::string_view value) {
  text += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text += "\\u00";
      text += kHexDigits[(c >> 4) & 15];
      text += kHexDigits[c & 15];
    } else {
      text += c;
    }
  }
  text += '"';
}

}  // namespace aoti_debug
